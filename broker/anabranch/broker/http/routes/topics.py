"""Scalable topics: `/admin/v2/scalable`, as PIP-468 and Pulsar's admin REST have it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, cast
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch import admin
from anabranch.broker.errors import NotFoundError, OverloadedError, PreconditionError
from anabranch.broker.http.errors import answer
from anabranch.broker.http.routes.topic_stats import layout_of, segment_detail, topic_stats
from anabranch.broker.http.routing import BODY, Home, Named, RouteGroup, TopicName
from anabranch.broker.topics.adopting import AUTO, Adoptions
from anabranch.broker.topics.controllers.access import active_segments
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.policies import AutoScalePolicies
from anabranch.broker.topics.restoring import restore
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, Override
from anabranch.core.entities.topic import properties_dict
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType

_ID_MAX: Final = 2**63 - 1
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
_Count = Annotated[int, Named("segmentCount")]
_EachBuckets = Annotated[
    int | None,
    Named("bucketCount"),
    Meta(description="Of each segment; if left out, new ones share out those that they replace."),
]
_Keep = Annotated[
    bool, Meta(description="An adopted Kafka topic that is cut over stays in the layout.")
]
_Leave = Annotated[
    Annotated[bool, Meta(description="Also if messages lie in segments.")], Named("leaveMiddle")
]
_KafkaTopic = Annotated[Annotated[str, Meta(min_length=1)], Named("kafkaTopic")]
_Override = Annotated[
    dict[str, Any],
    BODY,
    Meta(description="Fields to override; all may be left out: " + ", ".join(OVERRIDE_FIELDS)),
]


def routes(
    topics: TopicOperations, adoptions: Adoptions, limiter: AsyncDualMemoryLimiter
) -> RouteGroup:
    """All routes of topics, their layouts, adoption, statistics, properties and policies."""
    found = RouteGroup("scalable topics", "/admin/v2")
    _topics(found, topics, limiter)
    _stats(found, topics)
    _properties(found, topics)
    _layouts(found, topics, adoptions)
    _adoption(found, adoptions)
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
        names = await topics.names(home, _filters(wanted or ()), limiter)
        return names_response(names, limiter, request, limit, after)

    @routes.put(_TOPIC)
    async def create_topic(
        name: TopicName, properties: _Properties | None = None, segments: _Segments = 1
    ) -> None:
        """Creates a topic whose segments have equal parts of the ring; returns when it is ready."""
        await topics.create(name, segments, properties or {})

    @routes.get(_TOPIC)
    async def get_layout(name: TopicName) -> admin.Layout:
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
    async def get_stats(name: TopicName) -> admin.TopicStats:
        """Segments, and subscriptions with their consumers and backlogs."""
        await topics.controlled(name, reading=True)
        return await topic_stats(topics, name)

    @routes.get(f"{segment}/stats")
    async def get_segment_stats(name: TopicName, segmentId: _SegmentId) -> admin.SegmentDetail:
        """The same of one segment."""
        found = await topics.controlled(name, reading=True)
        part = found.segment(segmentId)
        if part is None:
            raise NotFoundError(f"Segment not found: {segmentId}; {active_segments(found)}")
        return await segment_detail(topics, name, part)

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


def _adoption(routes: RouteGroup, adoptions: Adoptions) -> None:
    @routes.get(f"{_TOPIC}/adopt")
    async def survey_kafka_topic(name: TopicName, kafka_topic: _KafkaTopic) -> admin.AdoptionSurvey:
        """Looks at a Kafka topic that is to be adopted as this topic, and changes nothing."""
        return await adoptions.survey(name, kafka_topic)

    @routes.post(f"{_TOPIC}/adopt")
    async def adopt_kafka_topic(
        name: TopicName, kafka_topic: _KafkaTopic, partitioner: str = AUTO
    ) -> None:
        """Lets a Kafka topic become this topic where it lies; returns when it is ready."""
        await adoptions.adopt(name, kafka_topic, partitioner)

    @routes.post(f"{_TOPIC}/release")
    async def release_kafka_topic(name: TopicName) -> None:
        """Forgets a topic that was adopted and not cut over, or was given back."""
        await adoptions.release(name)

    @routes.post(f"{_TOPIC}/give-back")
    async def give_back_kafka_topic(
        name: TopicName, leave_middle: _Leave = False
    ) -> admin.GivenBack:
        """Opens the Kafka topic of a topic that was cut over, in place of all its segments."""
        return await adoptions.give_back(name, leave=leave_middle)


def _layouts(routes: RouteGroup, topics: TopicOperations, adoptions: Adoptions) -> None:
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

    @routes.post(f"{_TOPIC}/prepare")
    async def prepare_segments(
        name: TopicName, segments: _Count, buckets: _EachBuckets = None, keep: _Keep = False
    ) -> None:
        """Makes so many active segments of equal size at once; returns when they have taken over.

        Nothing if they are there.
        """
        await adoptions.must_fit_cut_over(name, keeps=keep)
        await topics.prepare(name, segments, buckets, keeps=keep)


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
    async def get_auto_scale_policy(name: TopicName) -> admin.AutoScaleOverride | None:
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
    async def get_namespace_auto_scale_policy(home: Home) -> admin.AutoScaleOverride | None:
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


def _given(override: Override) -> admin.AutoScaleOverride | None:
    return cast(admin.AutoScaleOverride, dict(override)) if override else None


PAGE_BYTES: Final = 256 << 10
_AROUND_NAME: Final = 3  # its quotes and comma


class NamesResponse(Response):
    """Names, which are encoded once there is memory for them.

    It holds memory of both kinds until the client has taken them.
    """

    def __init__(
        self, names: list[str], limiter: AsyncDualMemoryLimiter, headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._names = names
        self._limiter = limiter
        self._told = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it, or, where there is no memory, a refusal."""
        size = _size(self._names)
        heap = self._limiter.held(size, LimitType.HEAP_MEMORY)
        direct = self._limiter.held(size, LimitType.DIRECT_MEMORY)
        try:
            async with heap, direct:
                body = msgspec.json.encode(self._names)
                told = Response(body, headers=dict(self._told), media_type="application/json")
                await told(scope, receive, send)
        except PermitAcquireError as error:
            await answer(OverloadedError(str(error)))(scope, receive, send)


def names_response(
    names: list[str],
    limiter: AsyncDualMemoryLimiter,
    request: Request,
    limit: int | None,
    after: str,
) -> NamesResponse:
    """All names, or those behind `after`: at most `limit`, and of `PAGE_BYTES`, if that is given.

    Then the header `Link` names the next ones.
    """
    at = bisect_right(names, after)
    if limit is None:
        return NamesResponse(names[at:], limiter, {})
    page = names[at : at + limit]
    while len(page) > 1 and _size(page) > PAGE_BYTES:
        del page[len(page) // 2 :]
    told = {}
    if page and page[-1] != names[-1]:
        given = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
        query = urlencode([*given, ("after", page[-1])])
        told["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    return NamesResponse(page, limiter, told)


def _size(names: list[str]) -> int:
    return sum(map(len, names)) + _AROUND_NAME * len(names)
