"""Single segments: `/admin/v2/segments`, as PIP-468 has it.

PIP-468's controller makes, terminates and deletes segments by these calls. Here it does so by
records of the log. A call that would do it behind the log's back is refused with the way to do it.
So no call leaves a topic in a state that it cannot go on from.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Query

from anabranch.broker.errors import NotFoundError, PreconditionError, listed
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative
from anabranch.broker.http.models.wanted import Texts
from anabranch.broker.http.routing import DecidingRoute, TopicName
from anabranch.broker.topics.controllers.access import active_segments
from anabranch.broker.topics.operations import TopicOperations
from anabranch.core.names import full_name

PREFIX: Final = "/admin/v2/segments"

_Subscriptions = Annotated[
    Texts | None, Body(description="Subscriptions that the segment must have.")
]


def router(topics: TopicOperations) -> APIRouter:
    """All routes of single segments; a descriptor is `hexStart-hexEnd-id`."""
    routes = APIRouter(route_class=DecidingRoute, prefix=PREFIX, tags=["segments"])
    path = "/{tenant}/{namespace}/{topic}/{descriptor}"

    @routes.put(path, status_code=204, responses=problems(404, 412))
    async def create_segment(
        name: TopicName,
        descriptor: str,
        subscriptions: _Subscriptions = None,
        authoritative: Authoritative = False,
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

    @routes.post(path + "/terminate", status_code=204, responses=problems(404, 412))
    async def terminate_segment(
        name: TopicName,
        descriptor: str,
        authoritative: Authoritative = False,
    ) -> None:
        """Nothing for a segment that is sealed already; an active one is not sealed alone."""
        if topics.must_have_segment(name, descriptor).is_active:
            raise PreconditionError(
                f"segment {descriptor} of {full_name(name)} is active, and its keys have no other "
                "segment: split, merge or rebucket it, which seals it when others take over"
            )

    @routes.delete(path, status_code=204, responses=problems(307, 404, 409, 412, 503, 504))
    async def delete_segment(
        name: TopicName,
        descriptor: str,
        force: Annotated[bool, Query(description="Accepted; a needed segment stays.")] = False,
        authoritative: Authoritative = False,
    ) -> None:
        """Deletes a sealed segment that all subscriptions have read; nothing if it is gone."""
        await topics.prune(name, descriptor)

    return routes
