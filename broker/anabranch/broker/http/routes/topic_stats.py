"""A topic's statistics as its controller knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.broker.http.models.autoscale import auto_scale_stats, load_stats
from anabranch.broker.http.models.topics import SegmentDetail
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.positions import Backlog
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.names import full_name
from anabranch.core.subscriptions.subscription import Subscription
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic, segment_topic
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.topic import ScalableTopic


async def stats_body(topics: TopicOperations, name: str) -> bytes:
    """`TopicStats` as JSON. Raises NotFoundError."""
    topic = topics.topic(name)
    subscriptions = topics.subscriptions(name)
    known = {each: said for each, said, _ in subscriptions}
    backlogs = await topics.backlogs.of(name, topic, known)
    service = topics.access.service
    loads = service.load(name, topic.incarnation) or {}
    active = len(topic.layout.active)
    return msgspec.json.encode(
        {
            "epoch": topic.epoch,
            "totalSegments": len(topic.segments),
            "activeSegments": active,
            "sealedSegments": len(topic.segments) - active,
            "segments": {
                str(part.segment_id): _segment(
                    service.prefix, name, topic, part, loads.get(part.segment_id)
                )
                for part in topic.segments
            },
            "subscriptions": {
                each: _subscription(
                    kafka_group(service.prefix, name, each, said.created_offset),
                    said,
                    consumers,
                    backlogs[each],
                )
                for each, said, consumers in subscriptions
            },
            "operation": topic.operation.name,
            "lastFailure": service.failures.why(name),
            "autoScale": auto_scale_stats(topics, name, topic).model_dump(),
        }
    )


def _subscription(
    group: str, known: Subscription, consumers: Mapping[str, bool], backlog: Backlog
) -> dict[str, Any]:
    """`SubscriptionStats` as plain JSON values; `consumers`: whether each is connected."""
    return {
        "type": known.kind.name,
        "consumerCount": len(consumers),
        "consumers": [
            {"consumerName": one, "connected": connected} for one, connected in consumers.items()
        ],
        "msgBacklog": backlog.messages,
        "segments": {str(each): count for each, count in backlog.segments.items()},
        "backlogUnknown": backlog.unknown,
        "drainedSegments": known.drained,
        "groupId": group,
        "deadLetterTopic": full_name(known.dead_letter) if known.dead_letter else "",
        "maxDeliveries": known.deliveries_max,
    }


def _segment(
    prefix: str, name: str, topic: ScalableTopic, part: SegmentInfo, load: SegmentLoad | None
) -> dict[str, Any]:
    """`SegmentStats` as plain JSON values."""
    stats = load_stats(load)
    return {
        "hashRange": {"start": part.start, "end": part.end},
        "name": segment_topic(name, part),
        "state": part.state.name,
        "kafkaTopic": kafka_topic(prefix, name, topic.incarnation, part),
        "entryBuckets": part.buckets,
        "load": None if stats is None else stats.model_dump(),
    }


async def segment_detail(
    topics: TopicOperations, name: str, topic: ScalableTopic, part: SegmentInfo
) -> SegmentDetail:
    """One segment's statistics by themselves."""
    known = {each: said for each, said, _ in topics.subscriptions(name)}
    backlogs = await topics.backlogs.of(name, topic, known)
    service = topics.access.service
    load = (service.load(name, topic.incarnation) or {}).get(part.segment_id)
    return SegmentDetail(
        **_segment(service.prefix, name, topic, part, load),
        segmentId=part.segment_id,
        parentIds=list(part.parent_ids),
        childIds=list(part.child_ids),
        subscriptions={
            each: backlog.segments.get(part.segment_id) for each, backlog in backlogs.items()
        },
    )
