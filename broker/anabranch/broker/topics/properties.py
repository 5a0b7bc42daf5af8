"""Changes of a topic's properties, which say nothing to Anabranch and anything to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.broker.topics.limits import check_properties
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.records import TopicChange
from anabranch.core.topics import ScalableTopic, TopicMove, properties_dict, properties_flat

Change = Callable[[dict[str, str]], Mapping[str, str]]


async def change_properties(topics: TopicOperations, name: str, change: Change) -> None:
    """Replaces the properties by what `change` makes of them, which it may be asked repeatedly.

    Raises NotFoundError, PreconditionError for what cannot be stored, or ConflictError.
    """

    def build(topic: ScalableTopic) -> TopicChange | None:
        before = properties_dict(topic.properties)
        after = change(dict(before))
        check_properties(after)
        if after == before:
            return None
        return topics.access.proposal(
            name, topic, TopicMove.UPDATE, properties=properties_flat(after)
        )

    await topics.access.change(name, build, topics.deadline())
