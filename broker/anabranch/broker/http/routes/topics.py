"""Scalable topics: `/admin/v2/scalable`, as PIP-468 and Pulsar's admin REST have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import Field

from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative
from anabranch.broker.http.models.topics import (
    LayoutBody,
    SegmentBody,
    SegmentDetail,
    TopicStats,
    segment_bodies,
)
from anabranch.broker.http.routes.topic_names import names_response
from anabranch.broker.http.routes.topic_stats import segment_detail, stats_body
from anabranch.broker.http.routing import DecidingRoute, Home, Marked, TopicName
from anabranch.broker.topics.controllers.access import active_segments
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.restoring import restore
from anabranch.core.entities.topic import properties_dict
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter

PREFIX: Final = "/admin/v2/scalable"
_ID_MAX: Final = 2**63 - 1
_BROKER_MAX: Final = 2**31 - 1

_Filters = Annotated[
    list[str] | None,
    Query(alias="property", description="key=value; may be given several times, all must hold."),
]
_Limit = Annotated[
    int | None,
    Query(ge=1, le=100_000, description="At most so many names, and of 256 KiB; all if left out."),
]
_After = Annotated[
    str, Query(description="Only names that follow on this one, as the `Link` header gives it.")
]
_SegmentId = Annotated[int, Path(ge=0, le=_ID_MAX)]
_Properties = Annotated[
    dict[str, str] | None, Body(description="Properties of the topic; may be left out.")
]


def router(topics: TopicOperations, limiter: AsyncDualMemoryLimiter) -> APIRouter:
    """All routes of topics, their statistics, properties and layouts."""
    routes = APIRouter(route_class=DecidingRoute, prefix=PREFIX, tags=["scalable topics"])
    _topics(routes, topics, limiter)
    _stats(routes, topics)
    _properties(routes, topics)
    _layouts(routes, topics)
    return routes


def _topics(routes: APIRouter, topics: TopicOperations, limiter: AsyncDualMemoryLimiter) -> None:
    @routes.get("/{tenant}/{namespace}", dependencies=[Marked], responses=problems(404, 412, 503))
    async def list_topics(
        home: Home,
        request: Request,
        response: Response,
        wanted: _Filters = None,
        limit: _Limit = None,
        after: _After = "",
    ) -> list[str]:
        """Names of the namespace's scalable topics, in order.

        With `limit`, the header `Link` with rel="next" says where those are that follow.
        """
        find = await topics.names(home, _filters(wanted or ()), limiter)
        return await names_response(  # type: ignore[return-value]  # its bytes
            find, limiter, request, limit, after, response.headers
        )

    path = "/{tenant}/{namespace}/{topic}"

    @routes.put(path, status_code=204, responses=problems(307, 404, 409, 412, 500, 503, 504))
    async def create_topic(
        name: TopicName,
        properties: _Properties = None,
        segments: Annotated[int, Query(alias="numInitialSegments")] = 1,
    ) -> None:
        """Creates a topic whose segments have equal parts of the ring; returns when it is ready."""
        await topics.create(name, segments, properties or {})

    @routes.get(path, dependencies=[Marked], responses=problems(404, 412))
    async def get_layout(name: TopicName) -> LayoutBody:
        """The DAG of the topic's segments."""
        raise NotImplementedError  # `reads.ReadMiddleware` answers it

    @routes.delete(path, status_code=204, responses=problems(307, 404, 409, 412, 503, 504))
    async def delete_topic(
        name: TopicName,
        force: Annotated[bool, Query(description="Also if it has consumers.")] = False,
    ) -> None:
        """Deletes the topic with its data; force ends its consumers' sessions, too."""
        await topics.delete(name, force=force)


def _stats(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}"
    refusals = problems(307, 404, 412, 503, 504)

    @routes.get(path + "/stats", dependencies=[Marked], responses=refusals)
    async def get_stats(name: TopicName, response: Response) -> TopicStats:
        """Segments, and subscriptions with their consumers and backlogs."""
        await topics.controlled(name, reading=True)
        # FastAPI drops the mark of staleness when a route makes its own response.
        return _raw(await stats_body(topics, name), response.headers)  # type: ignore[return-value]  # its bytes

    stats = path + "/segments/{segmentId}/stats"

    @routes.get(stats, dependencies=[Marked], responses=refusals)
    async def get_segment_stats(
        name: TopicName,
        segmentId: _SegmentId,
        authoritative: Authoritative = False,
    ) -> SegmentDetail:
        """The same of one segment."""
        found = await topics.controlled(name, reading=True)
        part = found.segment(segmentId)
        if part is None:
            raise NotFoundError(f"Segment not found: {segmentId}; {active_segments(found)}")
        return await segment_detail(topics, name, found, part)

    @routes.get(
        path + "/segments/{segmentId}/lineage",
        dependencies=[Marked],
        responses=problems(404, 412),
    )
    async def get_lineage(name: TopicName, segmentId: _SegmentId) -> list[SegmentBody]:
        """The segment with all that it descends from and all that descend from it, by id."""
        _, parts = topics.access.lineage(name, segmentId)
        return [SegmentBody(**each) for each in segment_bodies(parts)]

    lost = path + "/segments/{segmentId}/restore"

    @routes.post(lost, status_code=204, responses=problems(307, 404, 409, 412, 500, 503, 504))
    async def restore_segment(name: TopicName, segmentId: _SegmentId) -> None:
        """Goes on without a segment whose Kafka topic is gone; the segment's messages are lost."""
        await restore(topics, name, segmentId)


def _properties(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}/properties"
    refusals = problems(307, 400, 404, 409, 412, 503, 504)

    @routes.get(path, dependencies=[Marked], responses=problems(307, 404, 412, 503, 504))
    async def get_properties(name: TopicName) -> dict[str, str]:
        """The topic's properties, as its controller has changed them."""
        found = await topics.controlled(name, reading=True)
        return properties_dict(found.properties)

    @routes.put(path, status_code=204, responses=refusals)
    async def update_properties(
        name: TopicName,
        properties: Annotated[dict[str, str], Body(description="Those to be set.")],
    ) -> None:
        """Sets these properties; the others stay."""
        await topics.change_properties(name, lambda before: {**before, **properties})

    @routes.delete(path, status_code=204, responses=refusals)
    async def remove_property(
        name: TopicName,
        key: Annotated[str, Query(description="The property's name.")],
    ) -> None:
        """Removes one property; nothing if it is not there."""
        await topics.change_properties(
            name, lambda before: {k: v for k, v in before.items() if k != key}
        )


def _layouts(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}"
    refusals = problems(307, 404, 409, 412, 500, 503, 504)
    malformed = problems(307, 400, 404, 409, 412, 500, 503, 504)

    @routes.post(path + "/split/{segmentId}", status_code=204, responses=refusals)
    async def split_segment(
        name: TopicName,
        segmentId: _SegmentId,
    ) -> None:
        """Divides an active segment at its midpoint; returns when the children have taken over."""
        await topics.split(name, segmentId)

    @routes.post(path + "/merge/{segmentId1}/{segmentId2}", status_code=204, responses=refusals)
    async def merge_segments(
        name: TopicName,
        segmentId1: _SegmentId,
        segmentId2: _SegmentId,
    ) -> None:
        """Makes one segment of two active neighbours; returns when it has taken over."""
        await topics.merge(name, segmentId1, segmentId2)

    @routes.post(path + "/rebucket/{segmentId}", status_code=204, responses=refusals)
    async def rebucket_segment(
        name: TopicName,
        segmentId: _SegmentId,
        buckets: Annotated[int, Query(alias="bucketCount")],
    ) -> None:
        """Replaces an active segment by one of the same range with other entry buckets."""
        await topics.rebucket(name, segmentId, buckets)

    @routes.post(path + "/relocate/{segmentId}", status_code=204, responses=malformed)
    async def relocate_segment(
        name: TopicName,
        segmentId: _SegmentId,
        off: Annotated[
            Annotated[list[Annotated[int, Field(ge=0, le=_BROKER_MAX)]], Field(fail_fast=True)]
            | None,
            Query(description="Ids of Kafka's brokers to leave; may be given several times."),
        ] = None,
    ) -> None:
        """Replaces an active segment by one of the same range on other brokers of Kafka."""
        await topics.relocate(name, segmentId, off or ())


def _filters(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in given:
        key, sep, value = each.partition("=")
        if not sep:
            raise PreconditionError(f"property filter must be in the form key=value, got: {each}")
        yield key, value


def _raw(content: bytes, headers: Mapping[str, str]) -> Response:
    return Response(content, headers=dict(headers), media_type="application/json")
