"""Single segments and subscriptions in them: `/admin/v2/segments`, as PIP-468 has it.

PIP-468's controller makes, terminates and deletes segments by these calls, and each segment has
cursors of its own. Here a controller does so by records of the log, and a subscription is one for
all of a topic's segments. A call that would do it behind the log's back is refused with the way to
do it. So no call leaves a topic in a state that it cannot go on from.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from anabranch.broker.errors import NotFoundError, PreconditionError, UnavailableError, listed
from anabranch.broker.http.routing import BODY, RouteGroup, TopicName
from anabranch.broker.topics.controllers.access import active_segments
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.names import full_name

_Subscriptions = Annotated[
    list[str], BODY, Meta(description="Subscriptions that the segment must have.")
]
_Force = Annotated[bool, Meta(description="Accepted; a needed segment stays.")]
_Timestamp = Annotated[int, Meta(ge=0, description="Milliseconds since 1970.")]


def routes(topics: TopicOperations) -> RouteGroup:
    """All routes of single segments; a descriptor is `hexStart-hexEnd-id`."""
    found = RouteGroup("segments", "/admin/v2/segments/{tenant}/{namespace}/{topic}/{descriptor}")
    _segments(found, topics)
    _subscriptions(found, topics)
    return found


def _segments(routes: RouteGroup, topics: TopicOperations) -> None:
    @routes.put("")
    async def create_segment(
        name: TopicName, descriptor: str, subscriptions: _Subscriptions | None = None
    ) -> None:
        """Checks that the segment is there, with these subscriptions; makes none by itself."""
        if topics.segment(name, descriptor) is None:
            raise PreconditionError(
                f"{full_name(name)} has no segment {descriptor}, and one alone would not fit its "
                "ring: segments come from creating the topic, split, merge and rebucket; "
                f"{active_segments(topics.topic(name), descriptors=True)}"
            )
        known = {each for each, _, _ in topics.subscriptions(name)}
        missing = [each for each in subscriptions or () if each not in known]
        if missing:
            raise NotFoundError(
                f"Subscription not found: {listed(missing)} on {full_name(name)}; create it on "
                "the topic, which gives it to every segment"
            )

    @routes.post("/terminate")
    async def terminate_segment(name: TopicName, descriptor: str) -> None:
        """Nothing for a segment that is sealed already; an active one is not sealed alone."""
        if topics.must_have_segment(name, descriptor).is_active:
            raise PreconditionError(
                f"segment {descriptor} of {full_name(name)} is active, and its keys have no other "
                "segment: split, merge or rebucket it, which seals it when others take over"
            )

    @routes.delete("")
    async def delete_segment(name: TopicName, descriptor: str, force: _Force = False) -> None:
        """Deletes a sealed segment that all subscriptions have read; nothing if it is gone."""
        await topics.prune(name, descriptor)


def _subscriptions(routes: RouteGroup, topics: TopicOperations) -> None:
    path = "/subscription/{subscription}"

    @routes.put(path)
    async def create_segment_subscription(
        name: TopicName, descriptor: str, subscription: str
    ) -> None:
        """Checks that the subscription is there; it is created on the topic."""
        topics.must_have_segment(name, descriptor)
        if not _is_known(topics, name, subscription):
            raise PreconditionError(_on_the_topic(name, subscription, "create it"))

    @routes.delete(path)
    async def delete_segment_subscription(
        name: TopicName, descriptor: str, subscription: str
    ) -> None:
        """Checks that the subscription is not there; it is deleted on the topic."""
        if topics.segment(name, descriptor) and _is_known(topics, name, subscription):
            raise PreconditionError(_on_the_topic(name, subscription, "delete it"))

    @routes.get(path + "/backlog")
    async def get_segment_backlog(name: TopicName, descriptor: str, subscription: str) -> int:
        """Records of the segment that the subscription has not acknowledged."""
        return await _backlog(topics, name, descriptor, subscription)

    @routes.post(path + "/seek")
    async def seek_segment_subscription(
        name: TopicName, descriptor: str, subscription: str, timestamp: _Timestamp
    ) -> None:
        """Refused: one segment alone would be read out of the order of the DAG."""
        _must_have(topics, name, descriptor, subscription)
        raise PreconditionError(_on_the_topic(name, subscription, "seek it"))

    @routes.post(path + "/skip-all")
    async def skip_all_of_segment(name: TopicName, descriptor: str, subscription: str) -> None:
        """Nothing where nothing is left; else refused as `seek`."""
        if await _backlog(topics, name, descriptor, subscription):
            raise PreconditionError(_on_the_topic(name, subscription, "skip everything"))


def _is_known(topics: TopicOperations, name: str, subscription: str) -> bool:
    return any(each == subscription for each, _, _ in topics.subscriptions(name))


def _must_have(topics: TopicOperations, name: str, descriptor: str, subscription: str) -> int:
    """The segment's id. Raises NotFoundError."""
    part = topics.must_have_segment(name, descriptor)
    if not _is_known(topics, name, subscription):
        raise NotFoundError(f"Subscription not found on segment: {subscription}")
    return part.segment_id


async def _backlog(topics: TopicOperations, name: str, descriptor: str, subscription: str) -> int:
    segment_id = _must_have(topics, name, descriptor, subscription)
    known = {each: said for each, said, _ in topics.subscriptions(name)}
    found = (await topics.backlogs.of(name, topics.topic(name), known))[subscription]
    messages = found.segments.get(segment_id)
    if messages is None:
        raise UnavailableError(
            f"the backlog of {subscription} on segment {descriptor} is not known: {found.unknown}"
        )
    return messages


def _on_the_topic(name: str, subscription: str, what: str) -> str:
    return (
        f"subscription {subscription} is one for all segments of {full_name(name)}: {what} on the "
        "topic"
    )
