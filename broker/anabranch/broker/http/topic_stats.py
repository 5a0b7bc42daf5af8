"""A topic's statistics as its controller knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.broker.http.autoscale_models import (
    AutoScaleFacts,
    auto_scale_facts,
    auto_scale_stats,
    load_stats,
)
from anabranch.broker.http.scalable_models import SegmentDetail
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.positions import Backlog
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.names import full_name
from anabranch.core.subscriptions.subscription import Subscription
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic, segment_topic
from anabranch.core.topics.segment import SegmentInfo
from anabranch.core.topics.topic import ScalableTopic

Subscribed = tuple[str, Subscription, dict[str, bool]]  # a name, and who is connected


class _Facts(msgspec.Struct, frozen=True):
    """All that the statistics tell; nothing in it changes."""

    name: str
    prefix: str  # of Kafka topics and groups
    topic: ScalableTopic
    subscriptions: list[Subscribed]
    backlogs: Mapping[str, Backlog]
    last_failure: str
    auto_scale: AutoScaleFacts


async def stats_body(topics: TopicOperations, name: str) -> bytes:
    """`TopicStats` as JSON. Raises NotFoundError."""
    topic = topics.topic(name)
    subscriptions = topics.subscriptions(name)
    known = {each: said for each, said, _ in subscriptions}
    service = topics.access.service
    facts = _Facts(
        name,
        service.prefix,
        topic,
        subscriptions,
        await topics.backlogs.of(name, topic, known),
        service.failures.why(name),
        auto_scale_facts(topics, name, topic),
    )
    return msgspec.json.encode(_stats(facts))


def _stats(facts: _Facts) -> dict[str, Any]:
    """`TopicStats` as plain JSON values."""
    topic = facts.topic
    active = sum(part.is_active for part in topic.segments)
    loads = facts.auto_scale.loads or {}
    return {
        "epoch": topic.epoch,
        "totalSegments": len(topic.segments),
        "activeSegments": active,
        "sealedSegments": len(topic.segments) - active,
        "segments": {
            str(part.segment_id): _segment(
                facts.prefix, facts.name, topic, part, loads.get(part.segment_id)
            )
            for part in topic.segments
        },
        "subscriptions": {each[0]: _subscription(facts, *each) for each in facts.subscriptions},
        "operation": topic.operation.name,
        "lastFailure": facts.last_failure,
        "autoScale": auto_scale_stats(topic, facts.auto_scale).model_dump(),
    }


def _subscription(
    facts: _Facts, name: str, known: Subscription, consumers: Mapping[str, bool]
) -> dict[str, Any]:
    backlog = facts.backlogs[name]
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
        "groupId": kafka_group(facts.prefix, facts.name, name, known.created_offset),
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
