"""A topic's statistics as its controller knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.broker.http.models.topics import SegmentDetail
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.subscriptions.open_transactions import HeldBucket
from anabranch.broker.topics.subscriptions.positions import Backlog
from anabranch.broker.topics.transactions import HeldSegments
from anabranch.core.autoscale.decisions import Decision, NoAction, describe
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.schedule import demand_of, evaluate
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.names import full_name
from anabranch.core.placement import copies_on
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic, segment_topic


async def stats_body(topics: TopicOperations, name: str) -> bytes:
    """`TopicStats` as JSON. Raises NotFoundError."""
    topic = topics.topic(name)
    subscriptions = topics.subscriptions(name)
    known = {each: said for each, said, _ in subscriptions}
    backlogs = await topics.backlogs.of(name, topic, known)
    held = await topics.transactions.of(name, topic, backlogs.values())
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
                    topics, name, topic, part, loads.get(part.segment_id), held
                )
                for part in topic.segments
            },
            "subscriptions": {
                each: _subscription(
                    kafka_group(service.prefix, name, each, said.group_offset),
                    said,
                    consumers,
                    backlogs[each],
                )
                for each, said, consumers in subscriptions
            },
            "operation": topic.operation.name,
            "lastFailure": service.failures.why(name),
            "openTransactionsUnknown": held.unknown,
            "autoScale": _auto_scale(topics, name, topic),
        }
    )


def _subscription(
    group: str, known: Subscription, consumers: Mapping[str, bool], backlog: Backlog
) -> dict[str, Any]:
    """Returns `SubscriptionStats` as plain JSON values.

    `consumers`: names, each with True if the consumer is connected.
    """
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
    topics: TopicOperations,
    name: str,
    topic: ScalableTopic,
    part: SegmentInfo,
    load: SegmentLoad | None,
    held: HeldSegments,
) -> dict[str, Any]:
    """`SegmentStats` as plain JSON values."""
    service = topics.access.service
    where = kafka_topic(service.prefix, name, topic.incarnation, part)
    copies = service.placement.copies_of(topic.incarnation, part.segment_id)
    return {
        "hashRange": {"start": part.start, "end": part.end},
        "name": segment_topic(name, part),
        "state": part.state.name,
        "kafkaTopic": where,
        "entryBuckets": part.buckets,
        "kafkaLeaders": [each.leader for each in copies],
        "kafkaReplicas": sorted(copies_on(copies)),
        "findings": topics.looks.of(name, topic.incarnation, part.segment_id),
        "load": None if load is None else _load(load),
        "openTransactions": [_transaction(each) for each in held.by_topic.get(where, ())],
    }


def _transaction(found: HeldBucket) -> dict[str, Any]:
    """`OpenTransaction` as plain JSON values."""
    producer, known = found.producer, found.known
    return {
        "bucket": found.place[1],
        "startOffset": found.start,
        "producerId": None if producer is None else producer.producer_id,
        "producerEpoch": None if producer is None else producer.epoch,
        "lastWriteMs": None if producer is None else producer.last_timestamp_ms,
        "transactionalId": "" if known is None else known.transactional_id,
        "state": "" if known is None else known.state,
        "startedMs": None if known is None else known.started_ms,
        "timeoutMs": None if known is None else known.timeout_ms,
        "unknown": found.unknown,
    }


def _load(load: SegmentLoad) -> dict[str, Any]:
    """`LoadStats` as plain JSON values."""
    estimates = zip(("bytesRateIn", "bytesRateOut"), load.estimated, strict=True)
    return {
        "msgRateIn": load.msg_rate_in,
        "bytesRateIn": load.bytes_rate_in,
        "msgRateOut": load.msg_rate_out,
        "bytesRateOut": load.bytes_rate_out,
        "modifiedMs": load.modified_ms,
        "estimated": [rate for rate, is_one in estimates if is_one],
    }


def _auto_scale(topics: TopicOperations, name: str, topic: ScalableTopic) -> dict[str, Any]:
    """`AutoScaleStats` as plain JSON values. Raises NotFoundError."""
    service = topics.access.service
    effective, at_ms = topics.policies.effective(name), service.runtime.log_ms
    values, demand = effective.values, demand_of(service.runtime.view, name)
    loads = service.load(name, topic.incarnation)
    now = evaluate(effective, topic, topic.layout, loads, demand, at_ms)
    return {
        "policy": {
            field: {"value": values[field], "level": level.value}
            for field, level in effective.origins.items()
        },
        "fault": effective.fault,
        "now": _decision(at_ms, None, now),
        "decisions": [
            _decision(each.at_ms, each.trigger.value, each.decision)
            for each in reversed(service.scaling.decisions(name))
        ],
    }


def _decision(at_ms: int, trigger: str | None, decision: Decision) -> dict[str, Any]:
    """`DecisionStats` as plain JSON values."""
    reason = decision.blocked if isinstance(decision, NoAction) else decision.reason
    return {
        "atMs": at_ms,
        "trigger": trigger,
        "action": describe(decision),
        "reason": reason.value if reason is not None else None,
        "why": decision.why,
    }


async def segment_detail(
    topics: TopicOperations, name: str, topic: ScalableTopic, part: SegmentInfo
) -> SegmentDetail:
    """One segment's statistics by themselves."""
    known = {each: said for each, said, _ in topics.subscriptions(name)}
    backlogs = await topics.backlogs.of(name, topic, known)
    held = await topics.transactions.of(name, topic, backlogs.values(), part.segment_id)
    service = topics.access.service
    load = (service.load(name, topic.incarnation) or {}).get(part.segment_id)
    return SegmentDetail(
        **_segment(topics, name, topic, part, load, held),
        segmentId=part.segment_id,
        parentIds=list(part.parent_ids),
        childIds=list(part.child_ids),
        openTransactionsUnknown=held.unknown,
        subscriptions={
            each: backlog.segments.get(part.segment_id) for each, backlog in backlogs.items()
        },
    )
