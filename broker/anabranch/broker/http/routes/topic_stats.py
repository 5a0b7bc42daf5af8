"""A topic's layout and its statistics, as its controller knows them."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import msgspec

from anabranch import admin
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.subscriptions.backlogs import Backlog, HeldSegments
from anabranch.core.autoscale.decisions import Decision, NoAction, describe
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import override_of
from anabranch.core.autoscale.schedule import demand_of, evaluate
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.topic import ScalableTopic, properties_dict
from anabranch.core.hashing import bucket_starts
from anabranch.core.names import full_name
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic, segment_topic


def layout_of(topic: ScalableTopic) -> admin.Layout:
    """The DAG of the topic's segments."""
    override = cast(admin.AutoScaleOverride, dict(override_of(topic.auto_scale)))
    return admin.Layout(
        epoch=topic.epoch,
        next_segment_id=topic.next_segment_id,
        segments={part.segment_id: segment_of(part) for part in topic.segments},
        properties=properties_dict(topic.properties),
        auto_scale_policy=override or None,
    )


def segment_of(part: SegmentInfo) -> admin.Segment:
    """One segment of a layout."""
    return admin.Segment(
        segment_id=part.segment_id,
        hash_range=admin.HashRange(part.start, part.end),
        state=part.state.name,
        parent_ids=list(part.parent_ids),
        child_ids=list(part.child_ids),
        created_at_epoch=part.created_at_epoch,
        sealed_at_epoch=part.sealed_at_epoch,
        created_at_ms=part.created_at_ms,
        sealed_at_ms=-1 if part.is_active else part.sealed_at_ms,
        entry_bucket_splits=list(bucket_starts(part.buckets)),
        end_offsets=list(part.end_offsets),
        sealed=not part.is_active,
        active=part.is_active,
        root=not part.parent_ids,
        leaf=not part.child_ids,
        legacy=part.is_legacy,
    )


async def topic_stats(topics: TopicOperations, name: str) -> admin.TopicStats:
    """The topic's statistics. Raises NotFoundError."""
    topic = topics.topic(name)
    service = topics.access.service
    known = dict(service.runtime.view.subscriptions(name))
    controller = service.known_controller(name)
    coordinators = controller.coordinators if controller is not None else {}
    connected = {each: set(found.connected) for each, found in coordinators.items()}
    backlogs = await topics.backlogs.of(name, topic, known)
    held = await topics.backlogs.held(name, topic, backlogs.values())
    loads = service.load(name, topic.incarnation) or {}
    active = len(topic.layout.active)
    return admin.TopicStats(
        epoch=topic.epoch,
        total_segments=len(topic.segments),
        active_segments=active,
        sealed_segments=len(topic.segments) - active,
        segments={
            part.segment_id: _segment(topics, name, topic, part, loads.get(part.segment_id), held)
            for part in topic.segments
        },
        subscriptions={
            each: _subscription(
                kafka_group(service.prefix, name, each, said.group_offset),
                said,
                connected.get(each, set()),
                backlogs[each],
            )
            for each, said in known.items()
        },
        operation=topic.operation.name,
        last_failure=service.failures.get(name, ""),
        open_transactions_unknown=held.unknown,
        auto_scale=_auto_scale(topics, name, topic),
        own_settings=properties_dict(topic.own_settings),
    )


def _subscription(
    group: str, known: Subscription, connected: Collection[str], backlog: Backlog
) -> admin.SubscriptionStats:
    """`connected`: names of consumers."""
    consumers = sorted({*connected, *known.consumers})
    return admin.SubscriptionStats(
        type=cast(admin.SubscriptionType, known.kind.name),
        consumer_count=len(consumers),
        consumers=[admin.ConsumerStats(each, each in connected) for each in consumers],
        msg_backlog=backlog.messages,
        segments=dict(backlog.segments),
        backlog_unknown=backlog.unknown,
        drained_segments=list(known.drained),
        positions={each: list(at) for each, at in backlog.positions.items()},
        group_id=group,
        dead_letter_topic=full_name(known.dead_letter) if known.dead_letter else "",
        max_deliveries=known.deliveries_max,
    )


def _segment(
    topics: TopicOperations,
    name: str,
    topic: ScalableTopic,
    part: SegmentInfo,
    load: SegmentLoad | None,
    held: HeldSegments,
) -> admin.SegmentStats:
    return admin.SegmentStats(
        hash_range=admin.HashRange(part.start, part.end),
        name=segment_topic(name, part),
        state=part.state.name,
        kafka_topic=kafka_topic(topics.access.service.prefix, name, topic.incarnation, part),
        entry_buckets=part.buckets,
        findings=topics.looks.of(name, topic.incarnation, part.segment_id),
        load=None if load is None else _load(load),
        open_transactions=[
            admin.OpenTransaction(bucket, start)
            for (number, bucket), start in sorted(held.starts.items())
            if number == part.segment_id
        ],
    )


def _load(load: SegmentLoad) -> admin.LoadStats:
    return admin.LoadStats(
        msg_rate_in=load.msg_rate_in,
        bytes_rate_in=load.bytes_rate_in,
        msg_rate_out=load.msg_rate_out,
        bytes_rate_out=load.bytes_rate_out,
        modified_ms=load.modified_ms,
    )


def _auto_scale(topics: TopicOperations, name: str, topic: ScalableTopic) -> admin.AutoScaleStats:
    """Raises NotFoundError."""
    service = topics.access.service
    effective, at_ms = topics.policies.effective(name), service.runtime.core.log_ms
    values, demand = effective.values, demand_of(service.runtime.view, name)
    loads = service.load(name, topic.incarnation)
    now = evaluate(effective, topic, topic.layout, loads, demand, at_ms)
    return admin.AutoScaleStats(
        policy={
            field: admin.PolicyField(values[field], level.value)
            for field, level in effective.origins.items()
        },
        fault=effective.fault,
        now=_decision(at_ms, None, now),
        decisions=[
            _decision(each.at_ms, each.trigger.value, each.decision)
            for each in reversed(service.scaling.decisions(name))
        ],
    )


def _decision(at_ms: int, trigger: str | None, decision: Decision) -> admin.Decision:
    reason = decision.blocked if isinstance(decision, NoAction) else decision.reason
    return admin.Decision(
        at_ms=at_ms,
        trigger=trigger,
        action=describe(decision),
        reason=reason.value if reason is not None else None,
        why=decision.why,
    )


async def segment_detail(
    topics: TopicOperations, name: str, part: SegmentInfo
) -> admin.SegmentDetail:
    """One segment's statistics by themselves. Raises NotFoundError."""
    told = await topic_stats(topics, name)
    return admin.SegmentDetail(
        **msgspec.structs.asdict(told.segments[part.segment_id]),
        segment_id=part.segment_id,
        parent_ids=list(part.parent_ids),
        child_ids=list(part.child_ids),
        open_transactions_unknown=told.open_transactions_unknown,
        subscriptions={
            each: found.segments.get(part.segment_id) for each, found in told.subscriptions.items()
        },
    )
