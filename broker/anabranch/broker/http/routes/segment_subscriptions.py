"""Subscriptions in single segments: `/admin/v2/segments/.../subscription`, as Pulsar has them.

There each segment has a cursor of its own. Here a subscription is one for all of a topic's
segments, and what would part them is refused with the way to do it on the topic.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from anabranch.broker.errors import NotFoundError, PreconditionError, UnavailableError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative
from anabranch.broker.http.routes.segments import PREFIX
from anabranch.broker.http.routing import DecidingRoute, TopicName
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.names import full_name

_PATH: Final = "/{tenant}/{namespace}/{topic}/{descriptor}/subscription/{subscription}"


def router(topics: TopicOperations) -> APIRouter:
    """All routes of subscriptions in segments."""
    routes = APIRouter(route_class=DecidingRoute, prefix=PREFIX, tags=["segments"])
    _existence(routes, topics)
    _positions(routes, topics)
    return routes


def _existence(routes: APIRouter, topics: TopicOperations) -> None:
    @routes.put(_PATH, status_code=204, responses=problems(404, 412))
    async def create_segment_subscription(
        name: TopicName,
        descriptor: str,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> None:
        """Checks that the subscription is there; it is created on the topic."""
        _must_have(topics, name, descriptor)
        if not _is_known(topics, name, subscription):
            raise PreconditionError(_on_the_topic(name, subscription, "create it"))

    @routes.delete(_PATH, status_code=204, responses=problems(404, 412))
    async def delete_segment_subscription(
        name: TopicName,
        descriptor: str,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> None:
        """Checks that the subscription is not there; it is deleted on the topic."""
        if topics.segment(name, descriptor) and _is_known(topics, name, subscription):
            raise PreconditionError(_on_the_topic(name, subscription, "delete it"))


def _positions(routes: APIRouter, topics: TopicOperations) -> None:
    @routes.get(_PATH + "/backlog", responses=problems(404, 412, 503))
    async def get_segment_backlog(
        name: TopicName,
        descriptor: str,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> int:
        """Records of the segment that the subscription has not acknowledged."""
        return await _backlog(topics, name, descriptor, subscription)

    @routes.post(_PATH + "/seek", status_code=204, responses=problems(404, 412))
    async def seek_segment_subscription(
        name: TopicName,
        descriptor: str,
        subscription: str,
        timestamp: Annotated[int, Query(ge=0, description="Milliseconds since 1970.")],
        authoritative: Authoritative = False,
    ) -> None:
        """Refused: one segment alone would be read out of the order of the DAG."""
        _must_have(topics, name, descriptor, subscription)
        raise PreconditionError(_on_the_topic(name, subscription, "seek it"))

    @routes.post(_PATH + "/skip-all", status_code=204, responses=problems(404, 412, 503))
    async def skip_all_of_segment(
        name: TopicName,
        descriptor: str,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> None:
        """Nothing where nothing is left; else refused as `seek`."""
        if await _backlog(topics, name, descriptor, subscription):
            raise PreconditionError(_on_the_topic(name, subscription, "skip everything"))


def _is_known(topics: TopicOperations, name: str, subscription: str) -> bool:
    return any(each == subscription for each, _, _ in topics.subscriptions(name))


def _must_have(
    topics: TopicOperations, name: str, descriptor: str, subscription: str | None = None
) -> int:
    """The segment's id. Raises NotFoundError."""
    part = topics.must_have_segment(name, descriptor)
    if subscription is not None and not _is_known(topics, name, subscription):
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
