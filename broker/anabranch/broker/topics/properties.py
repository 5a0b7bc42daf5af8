"""Changes of a topic's properties, which say nothing to Anabranch and anything to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.broker.errors import ConflictError
from anabranch.broker.requests import RACES_MAX
from anabranch.broker.topics.limits import check_properties
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.names import full_name
from anabranch.core.topics import TopicMove, properties_dict, properties_flat
from anabranch.core.verdicts import Verdict

Change = Callable[[dict[str, str]], Mapping[str, str]]


async def change_properties(topics: TopicOperations, name: str, change: Change) -> None:
    """Replaces the properties by what `change` makes of them, which it may be asked repeatedly.

    Raises NotFoundError, PreconditionError for what cannot be stored, or ConflictError.
    """
    deadline = topics.deadline()
    topics.topic(name)
    await topics.control(name)
    for _ in range(RACES_MAX):
        topic = topics.topic(name)
        before = properties_dict(topic.properties)
        after = change(dict(before))
        check_properties(after)
        if after == before:
            return
        verdict = await topics.propose(
            name, topic, TopicMove.UPDATE, deadline, properties=properties_flat(after)
        )
        if verdict is Verdict.ACCEPTED:
            return
    raise ConflictError(f"{full_name(name)} kept changing; try again")
