"""Single segments, and subscriptions in them: `/admin/v2/segments`, as PIP-468 and Pulsar have it.

There a controller makes, terminates and deletes segments by these calls, and each segment has a
cursor of its own. Here it does so by records of the log, and a subscription is one for all of a
topic's segments. So a call that would part them is refused, with the way to do it on the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Query

from anabranch.broker.errors import NotFoundError, PreconditionError, UnavailableError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative
from anabranch.broker.http.routing import DecidingRoute, TopicName
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.names import full_name

_PATH: Final = "/{tenant}/{namespace}/{topic}/{descriptor}"
_SUBSCRIPTION: Final = "/subscription/{subscription}"
_ONE: Final = "a subscription is one for all segments of its topic: "
_MADE: Final = "segments come from creating the topic, split, merge and rebucket"
_SEALED: Final = "a split, merge or rebucket seals it, when others take over its keys"
# Verb, path behind that of the segment, operation, and the way to do it.
_ON_THE_TOPIC: Final = (
    ("PUT", "", "create_segment", _MADE),
    ("POST", "/terminate", "terminate_segment", _SEALED),
    ("PUT", _SUBSCRIPTION, "create_segment_subscription", f"{_ONE}create it there"),
    ("DELETE", _SUBSCRIPTION, "delete_segment_subscription", f"{_ONE}delete it there"),
    ("POST", _SUBSCRIPTION + "/seek", "seek_segment_subscription", f"{_ONE}seek it there"),
    ("POST", _SUBSCRIPTION + "/skip-all", "skip_all_of_segment", f"{_ONE}skip all there"),
)


def router(topics: TopicOperations) -> APIRouter:
    """All routes of single segments; a descriptor is `hexStart-hexEnd-id`."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2/segments", tags=["segments"])
    for verb, end, operation, way in _ON_THE_TOPIC:
        routes.add_api_route(
            _PATH + end,
            _refusing(topics, way),
            methods=[verb],
            status_code=204,
            responses=problems(404, 412),
            name=operation,
            description=f"Refused: {way}.",
        )

    @routes.delete(_PATH, status_code=204, responses=problems(307, 404, 409, 412, 503, 504))
    async def delete_segment(
        name: TopicName,
        descriptor: str,
        force: Annotated[bool, Query(description="Accepted; a needed segment stays.")] = False,
        authoritative: Authoritative = False,
    ) -> None:
        """Deletes a sealed segment that all subscriptions have read; nothing if it is gone."""
        await topics.prune(name, descriptor)

    @routes.get(_PATH + _SUBSCRIPTION + "/backlog", responses=problems(404, 412, 503))
    async def get_segment_backlog(
        name: TopicName,
        descriptor: str,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> int:
        """Records of the segment that the subscription has not acknowledged."""
        segment_id = topics.must_have_segment(name, descriptor).segment_id
        known = {each: said for each, said, _ in topics.subscriptions(name)}
        if subscription not in known:
            raise NotFoundError(f"Subscription not found on segment: {subscription}")
        found = (await topics.backlogs.of(name, topics.topic(name), known))[subscription]
        messages = found.segments.get(segment_id)
        if messages is None:
            raise UnavailableError(
                f"the backlog of {subscription} on segment {descriptor} is not known: "
                f"{found.unknown}"
            )
        return messages

    return routes


def _refusing(topics: TopicOperations, way: str) -> Callable[..., Awaitable[None]]:
    async def refuse(name: TopicName, descriptor: str) -> None:
        topics.must_have_segment(name, descriptor)
        raise PreconditionError(f"segment {descriptor} of {full_name(name)}: {way}")

    return refuse
