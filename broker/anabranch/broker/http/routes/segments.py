"""Single segments, and subscriptions in them: `/admin/v2/segments`, as PIP-468 and Pulsar have it.

There a controller makes, terminates and deletes segments by these calls, and each segment has a
cursor of its own. Here it does so by records of the log, and a subscription is one for all of a
topic's segments. So a call that would part them is refused, with the way to do it on the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, NoReturn

from msgspec import Meta

from anabranch.broker.errors import NotFoundError, PreconditionError, UnavailableError
from anabranch.broker.http.routing import RouteGroup, TopicName
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.names import full_name

_SUBSCRIPTION: Final = "/subscription/{subscription}"
_ONE: Final = "a subscription is one for all segments of its topic: "
_Timestamp = Annotated[int, Meta(ge=0, description="Milliseconds since 1970.")]
_Force = Annotated[bool, Meta(description="Accepted; a needed segment stays.")]


def routes(topics: TopicOperations) -> RouteGroup:
    """All routes of single segments; a descriptor is `hexStart-hexEnd-id`."""
    found = RouteGroup("segments", "/admin/v2/segments/{tenant}/{namespace}/{topic}/{descriptor}")
    # Path behind that of the segment, and the way to do it.
    for add, end, way in (
        (found.put, "", "segments come from creating the topic, split, merge and rebucket"),
        (
            found.post,
            "/terminate",
            "a split, merge or rebucket seals it, when others take over its keys",
        ),
        (found.put, _SUBSCRIPTION, f"{_ONE}create it there"),
        (found.delete, _SUBSCRIPTION, f"{_ONE}delete it there"),
        (found.post, f"{_SUBSCRIPTION}/skip-all", f"{_ONE}skip all there"),
    ):
        add(end)(_refusing(topics, way))

    @found.post(f"{_SUBSCRIPTION}/seek")
    async def seek_segment_subscription(
        name: TopicName, descriptor: str, timestamp: _Timestamp
    ) -> None:
        """Refused: one segment alone would be read out of the DAG's order."""
        _refuse(topics, name, descriptor, f"{_ONE}seek it there")

    @found.delete("")
    async def delete_segment(name: TopicName, descriptor: str, force: _Force = False) -> None:
        """Deletes a sealed segment that all subscriptions have read; nothing if it is gone."""
        await topics.prune(name, descriptor)

    @found.get(f"{_SUBSCRIPTION}/backlog")
    async def get_segment_backlog(name: TopicName, descriptor: str, subscription: str) -> int:
        """Records of the segment that the subscription has not acknowledged."""
        segment_id = topics.must_have_segment(name, descriptor).segment_id
        known = dict(topics.access.runtime.view.subscriptions(name))
        if subscription not in known:
            raise NotFoundError(f"Subscription not found on segment: {subscription}")
        backlog = (await topics.backlogs.of(name, topics.topic(name), known))[subscription]
        messages = backlog.segments.get(segment_id)
        if messages is None:
            raise UnavailableError(
                f"the backlog of {subscription} on segment {descriptor} is not known: "
                f"{backlog.unknown}"
            )
        return messages

    return found


def _refusing(topics: TopicOperations, way: str) -> Callable[..., Awaitable[None]]:
    async def refused(name: TopicName, descriptor: str) -> None:
        _refuse(topics, name, descriptor, way)

    refused.__doc__ = f"Refused: {way}."
    return refused


def _refuse(topics: TopicOperations, name: str, descriptor: str, way: str) -> NoReturn:
    topics.must_have_segment(name, descriptor)
    raise PreconditionError(f"segment {descriptor} of {full_name(name)}: {way}")
