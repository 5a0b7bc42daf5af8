"""Scalable topics: `/admin/v2/scalable`, as PIP-468 and Pulsar's admin REST have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, cast

from msgspec import Meta
from starlette.requests import Request

from anabranch.admin import AutoScaleOverride, Layout, Segment, SegmentDetail, TopicStats
from anabranch.broker.errors import NotFoundError, PreconditionError
from anabranch.broker.http.routes.topic_names import NamesResponse, names_response
from anabranch.broker.http.routes.topic_stats import (
    layout_of,
    segment_detail,
    segment_of,
    topic_stats,
)
from anabranch.broker.http.routing import BODY, Home, Named, RouteGroup, TopicName
from anabranch.broker.topics.controllers.access import active_segments
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.policies import AutoScalePolicies
from anabranch.broker.topics.restoring import restore
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, Override
from anabranch.core.entities.topic import properties_dict
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter

_ID_MAX: Final = 2**63 - 1
_BROKER_MAX: Final = 2**31 - 1
_TOPICS: Final = "/scalable/{tenant}/{namespace}"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"

_Filters = Annotated[
    list[str] | None,
    Named("property"),
    Meta(description="key=value; may be given several times, all must hold."),
]
_Limit = Annotated[
    Annotated[int, Meta(ge=1, le=100_000)] | None,
    Meta(description="At most so many names, and of 256 KiB; all if left out."),
]
_After = Annotated[
    str, Meta(description="Only names that follow on this one, as the `Link` header gives it.")
]
_SegmentId = Annotated[int, Meta(ge=0, le=_ID_MAX)]
_Properties = Annotated[dict[str, str], BODY]
_Segments = Annotated[int, Named("numInitialSegments")]
_Buckets = Annotated[int, Named("bucketCount")]
_Off = Annotated[
    list[Annotated[int, Meta(ge=0, le=_BROKER_MAX)]] | None,
    Meta(description="Ids of Kafka's brokers to leave; may be given several times."),
]
_Override = Annotated[
    dict[str, Any],
    BODY,
    Meta(description="Fields to override; all may be left out: " + ", ".join(OVERRIDE_FIELDS)),
]


def routes(topics: TopicOperations, limiter: AsyncDualMemoryLimiter) -> RouteGroup:
    """All routes of topics, their statistics, properties, layouts and auto-scale policies."""
    found = RouteGroup("scalable topics", "/admin/v2")
    _topics(found, topics, limiter)
    _stats(found, topics)
    _properties(found, topics)
    _layouts(found, topics)
    _policies(found, topics.policies)
    return found


def _topics(routes: RouteGroup, topics: TopicOperations, limiter: AsyncDualMemoryLimiter) -> None:
    @routes.get(_TOPICS)
    async def list_topics(
        home: Home,
        request: Request,
        wanted: _Filters = None,
        limit: _Limit = None,
        after: _After = "",
    ) -> NamesResponse:
        """Names of the namespace's scalable topics, in order.

        With `limit`, the header `Link` with rel="next" says where those are that follow.
        """
        find = await topics.names(home, _filters(wanted or ()), limiter)
        return await names_response(find, limiter, request, limit, after)

    @routes.put(_TOPIC)
    async def create_topic(
        name: TopicName, properties: _Properties | None = None, segments: _Segments = 1
    ) -> None:
        """Creates a topic whose segments have equal parts of the ring; returns when it is ready."""
        await topics.create(name, segments, properties or {})

    @routes.get(_TOPIC)
    async def get_layout(name: TopicName) -> Layout:
        """The DAG of the topic's segments."""
        return layout_of(topics.topic(name))

    @routes.delete(_TOPIC)
    async def delete_topic(
        name: TopicName,
        force: Annotated[bool, Meta(description="Also if it has consumers.")] = False,
    ) -> None:
        """Deletes the topic with its data; force ends its consumers' sessions, too."""
        await topics.delete(name, force=force)


def _stats(routes: RouteGroup, topics: TopicOperations) -> None:
    segment = f"{_TOPIC}/segments/{{segmentId}}"

    @routes.get(f"{_TOPIC}/stats")
    async def get_stats(name: TopicName) -> TopicStats:
        """Segments, and subscriptions with their consumers and backlogs."""
        await topics.controlled(name, reading=True)
        return await topic_stats(topics, name)

    @routes.get(f"{segment}/stats")
    async def get_segment_stats(name: TopicName, segmentId: _SegmentId) -> SegmentDetail:
        """The same of one segment."""
        found = await topics.controlled(name, reading=True)
        part = found.segment(segmentId)
        if part is None:
            raise NotFoundError(f"Segment not found: {segmentId}; {active_segments(found)}")
        return await segment_detail(topics, name, found, part)

    @routes.get(f"{segment}/lineage")
    async def get_lineage(name: TopicName, segmentId: _SegmentId) -> list[Segment]:
        """The segment with all that it descends from and all that descend from it, by id."""
        _, parts = topics.access.lineage(name, segmentId)
        return [segment_of(each) for each in parts]

    @routes.post(f"{segment}/restore")
    async def restore_segment(name: TopicName, segmentId: _SegmentId) -> None:
        """Goes on without a segment whose Kafka topic is gone; the segment's messages are lost."""
        await restore(topics, name, segmentId)


def _properties(routes: RouteGroup, topics: TopicOperations) -> None:
    path = f"{_TOPIC}/properties"

    @routes.get(path)
    async def get_properties(name: TopicName) -> dict[str, str]:
        """The topic's properties, as its controller has changed them."""
        found = await topics.controlled(name, reading=True)
        return properties_dict(found.properties)

    @routes.put(path)
    async def update_properties(name: TopicName, properties: _Properties) -> None:
        """Sets these properties; the others stay."""
        await topics.change_properties(name, lambda before: {**before, **properties})

    @routes.delete(path)
    async def remove_property(name: TopicName, key: str) -> None:
        """Removes one property; nothing if it is not there."""
        await topics.change_properties(
            name, lambda before: {k: v for k, v in before.items() if k != key}
        )


def _layouts(routes: RouteGroup, topics: TopicOperations) -> None:
    @routes.post(f"{_TOPIC}/split/{{segmentId}}")
    async def split_segment(name: TopicName, segmentId: _SegmentId) -> None:
        """Divides an active segment at its midpoint; returns when the children have taken over."""
        await topics.split(name, segmentId)

    @routes.post(f"{_TOPIC}/merge/{{segmentId1}}/{{segmentId2}}")
    async def merge_segments(
        name: TopicName, segmentId1: _SegmentId, segmentId2: _SegmentId
    ) -> None:
        """Makes one segment of two active neighbours; returns when it has taken over."""
        await topics.merge(name, segmentId1, segmentId2)

    @routes.post(f"{_TOPIC}/rebucket/{{segmentId}}")
    async def rebucket_segment(name: TopicName, segmentId: _SegmentId, buckets: _Buckets) -> None:
        """Replaces an active segment by one of the same range with other entry buckets."""
        await topics.rebucket(name, segmentId, buckets)

    @routes.post(f"{_TOPIC}/relocate/{{segmentId}}")
    async def relocate_segment(name: TopicName, segmentId: _SegmentId, off: _Off = None) -> None:
        """Replaces an active segment by one of the same range on other brokers of Kafka."""
        await topics.relocate(name, segmentId, off or ())


def _filters(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in given:
        key, sep, value = each.partition("=")
        if not sep:
            raise PreconditionError(f"property filter must be in the form key=value, got: {each}")
        yield key, value


def _policies(routes: RouteGroup, policies: AutoScalePolicies) -> None:
    """Adds topics' and namespaces' overrides of the nodes' settings (PIP-483)."""
    of_topic = f"{_TOPIC}/autoScalePolicy"
    of_namespace = "/namespaces/{tenant}/{namespace}/scalableTopicAutoScalePolicy"

    @routes.get(of_topic)
    async def get_auto_scale_policy(name: TopicName) -> AutoScaleOverride | None:
        """The topic's overrides of its namespace's policy, as its controller has changed them; 204
        for none.
        """
        return _given(await policies.of_topic(name))

    @routes.post(of_topic)
    async def set_auto_scale_policy(name: TopicName, override: _Override) -> None:
        """Replaces the topic's overrides, as a whole."""
        await policies.set_topic(name, override)

    @routes.delete(of_topic)
    async def remove_auto_scale_policy(name: TopicName) -> None:
        """Lets the namespace's policy apply to the topic again."""
        await policies.set_topic(name, {})

    @routes.get(of_namespace)
    async def get_namespace_auto_scale_policy(home: Home) -> AutoScaleOverride | None:
        """The namespace's overrides of the nodes' settings; 204 for none."""
        return _given(policies.of_namespace(home))

    @routes.post(of_namespace)
    async def set_namespace_auto_scale_policy(home: Home, override: _Override) -> None:
        """Replaces the namespace's overrides, as a whole."""
        await policies.set_namespace(home, override)

    @routes.delete(of_namespace)
    async def remove_namespace_auto_scale_policy(home: Home) -> None:
        """Lets the nodes' settings apply to the namespace again."""
        await policies.set_namespace(home, {})


def _given(override: Override) -> AutoScaleOverride | None:
    return cast(AutoScaleOverride, dict(override)) if override else None
