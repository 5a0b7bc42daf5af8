"""How records change scalable topics and their subscriptions: `fold`'s rules for both.

First valid wins, as everywhere: the next version, an arrow of the machine, guards that hold.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from anabranch.core import names
from anabranch.core.autoscale_policy import is_override_form
from anabranch.core.layout import SegmentLayout, entered, without
from anabranch.core.outcome import REJECTED, Outcome, first_version, may_propose, unfit_version
from anabranch.core.records import SubscriptionChange, TopicChange, subscription_key
from anabranch.core.state import Change, StateReader
from anabranch.core.subscriptions import Subscription, SubscriptionOp
from anabranch.core.topic_guards import TOPIC_GUARDS, controller_of
from anabranch.core.topics import (
    TOPIC_TABLE,
    Operation,
    ScalableTopic,
    TopicArrow,
    TopicMove,
    TopicState,
)
from anabranch.core.verdicts import Verdict

_ABSENT: Final = ScalableTopic(
    TopicState.INIT, 0, 0, -1, 0, (), Operation.NONE, (), (), (), (), TopicMove.REMOVE, 0, -1, 0, ""
)
_GUARDS_OF: Final = {
    id(arrow): tuple(TOPIC_GUARDS[guard] for guard in arrow.guards)
    for arrow in TOPIC_TABLE.values()
}


# --- topics ---------------------------------------------------------------------------------


def fold_topic(state: StateReader, record: TopicChange, offset: int, timestamp_ms: int) -> Outcome:
    """Judges one move of one topic's layout."""
    creating = record.move is TopicMove.CREATE
    if state.namespace(names.namespace_of(record.topic)) is None:
        return REJECTED[Verdict.UNKNOWN_NAMESPACE]
    topic = state.topic(record.topic)
    if topic is None:
        if not creating:
            return REJECTED[Verdict.UNKNOWN_TOPIC]
        topic = _ABSENT
    if record.version != topic.version + 1:
        repeated = record.proposal_id == topic.proposal_id
        return REJECTED[unfit_version(topic.version, record.version, repeated)]
    arrow = TOPIC_TABLE.get((topic.state, record.move))
    if arrow is None:
        return REJECTED[Verdict.ILLEGAL_MOVE]
    wrong = _refused(state, topic, arrow, record)
    if wrong is not None:
        return REJECTED[wrong]
    after = _moved(topic, arrow, record, offset, timestamp_ms)
    changes: list[Change] = [(record.key, after)]
    if record.move is TopicMove.PRUNE:
        changes += _undrained(state, record)
    elif after is None:
        changes += [
            (subscription_key(record.topic, name), None)
            for name, _ in state.subscriptions(record.topic)
        ]
    return Outcome(Verdict.ACCEPTED, tuple(changes))


def _refused(
    state: StateReader, topic: ScalableTopic, arrow: TopicArrow, record: TopicChange
) -> Verdict | None:
    if not may_propose(state, record.actor, record.session):
        return Verdict.SESSION_OVER
    creating = record.move is TopicMove.CREATE
    named = not creating or names.is_valid(names.parse_scalable_topic, record.topic)
    formed = len(record.properties) % 2 == 0 and is_override_form(record.auto_scale)
    if not (named and formed):
        return Verdict.INVALID_VALUE
    for holds, reason in _GUARDS_OF[id(arrow)]:
        if not holds(state, topic, record):
            return reason
    return None


def _moved(
    topic: ScalableTopic, arrow: TopicArrow, record: TopicChange, offset: int, timestamp_ms: int
) -> ScalableTopic | None:
    if arrow.end is TopicState.INIT:
        return None
    creating = record.move is TopicMove.CREATE
    after = replace(
        topic,
        state=topic.state if arrow.end is None else arrow.end,
        version=first_version(offset) if creating else record.version,
        move=record.move,
        since_ms=timestamp_ms,
        since_offset=offset,
        proposal_id=record.proposal_id,
    )
    match record.move:
        case TopicMove.CREATE:
            return replace(
                after,
                incarnation=offset,
                created_ms=timestamp_ms,
                next_segment_id=len(record.segments),
                segments=tuple(entered(part, 0, timestamp_ms) for part in record.segments),
                properties=record.properties,
            )
        case TopicMove.OPEN:
            return replace(after, opened=record.version)
        case TopicMove.UPDATE:
            return replace(after, properties=record.properties)
        case TopicMove.POLICY:
            return replace(after, auto_scale=record.auto_scale)
        case TopicMove.BEGIN:
            return replace(
                after,
                operation=record.operation,
                parents=record.parents,
                children=record.segments,
                next_segment_id=topic.next_segment_id + len(record.segments),
            )
        case TopicMove.COMMIT:
            return _committed(after, record.end_offsets, timestamp_ms)
        case TopicMove.ABORT:
            return _at_rest(after, garbage=topic.garbage + topic.children)
        case TopicMove.PRUNE:
            gone = tuple(part for part in topic.segments if part.segment_id in record.segment_ids)
            left = without(topic.layout.segments, record.segment_ids)
            return replace(after, segments=tuple(left), garbage=topic.garbage + gone)
        case TopicMove.CLEAR:
            kept = (part for part in topic.garbage if part.segment_id not in record.segment_ids)
            return replace(after, garbage=tuple(kept))
        case _:
            return after


def _committed(
    topic: ScalableTopic, end_offsets: tuple[int, ...], timestamp_ms: int
) -> ScalableTopic:
    ends: dict[int, tuple[int, ...]] = {}
    at = 0
    layout = SegmentLayout(topic.epoch, topic.next_segment_id, topic.segments)
    for parent in topic.parents:
        buckets = layout.segments[parent].buckets
        ends[parent] = end_offsets[at : at + buckets]
        at += buckets
    after = layout.replaced(topic.parents, topic.children, ends, timestamp_ms, topic.epoch)
    segments = tuple(sorted(after.segments.values(), key=lambda part: part.segment_id))
    match topic.operation:
        case Operation.SPLIT:
            topic = replace(topic, split_ms=timestamp_ms)
        case Operation.MERGE:
            topic = replace(topic, merge_ms=timestamp_ms)
        case Operation.REBUCKET:
            topic = replace(topic, rebucket_ms=timestamp_ms)
    return _at_rest(topic, segments=segments)


def _at_rest(topic: ScalableTopic, **changes: Any) -> ScalableTopic:
    """With these changes, and no operation under way."""
    return replace(topic, operation=Operation.NONE, parents=(), children=(), **changes)


def _undrained(state: StateReader, record: TopicChange) -> list[Change]:
    """What is pruned needs no mark any more."""
    gone = set(record.segment_ids)
    changes: list[Change] = []
    for name, subscription in state.subscriptions(record.topic):
        if gone & set(subscription.drained):
            left = tuple(each for each in subscription.drained if each not in gone)
            after = replace(subscription, drained=left)
            changes.append((subscription_key(record.topic, name), after))
    return changes


# --- subscriptions --------------------------------------------------------------------------


def fold_subscription(
    state: StateReader, record: SubscriptionChange, offset: int, timestamp_ms: int
) -> Outcome:
    """Judges one change of one subscription."""
    topic = state.topic(record.topic)
    if topic is None:
        return REJECTED[Verdict.UNKNOWN_TOPIC]
    if topic.incarnation != record.incarnation:
        return REJECTED[Verdict.OTHER_INCARNATION]
    before = state.subscription(record.topic, record.subscription)
    creating = record.op is SubscriptionOp.CREATE
    if before is None and not creating:
        return REJECTED[Verdict.UNKNOWN_SUBSCRIPTION]
    version = before.version if before else 0
    if record.version != version + 1:
        repeated = before is not None and record.proposal_id == before.proposal_id
        return REJECTED[unfit_version(version, record.version, repeated)]
    if not may_propose(state, record.actor, record.session):
        return REJECTED[Verdict.SESSION_OVER]
    if not _named(record):
        return REJECTED[Verdict.INVALID_VALUE]
    if controller_of(state, record.topic)[1] != record.actor:
        return REJECTED[Verdict.NOT_CONTROLLER]
    if not topic.is_open:
        return REJECTED[Verdict.TOPIC_BUSY]
    if before is None:
        return _subscribed(record, offset, timestamp_ms)
    if record.op is SubscriptionOp.DELETE:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after, wrong = _changed(topic, before, record, offset)
    if after is None:
        return REJECTED[wrong]
    after = replace(
        after,
        version=record.version,
        since_ms=timestamp_ms,
        since_offset=offset,
        proposal_id=record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def _named(record: SubscriptionChange) -> bool:
    """Whether the name that a change brings into the log is a good one."""
    if record.op is SubscriptionOp.CREATE:
        return names.is_valid(names.subscription, record.subscription)
    return record.op is not SubscriptionOp.JOIN or names.is_valid(names.consumer, record.consumer)


def _subscribed(record: SubscriptionChange, offset: int, timestamp_ms: int) -> Outcome:
    after = Subscription(
        first_version(offset),
        record.kind,
        offset,
        (),
        (),
        (),
        timestamp_ms,
        offset,
        record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def _changed(
    topic: ScalableTopic, before: Subscription, record: SubscriptionChange, offset: int
) -> tuple[Subscription | None, Verdict]:
    instance = before.instance_of(record.consumer)
    match record.op:
        case SubscriptionOp.JOIN:
            if instance == record.instance:
                return None, Verdict.CONSUMER_EXISTS
            return before.with_consumer(record.consumer, record.instance), Verdict.ACCEPTED
        case SubscriptionOp.LEAVE:
            if instance is None:
                return None, Verdict.UNKNOWN_CONSUMER
            return before.without_consumer(record.consumer), Verdict.ACCEPTED
        case SubscriptionOp.DRAINED:
            return _drained(topic, before, record)
        case SubscriptionOp.RESET:
            after = replace(before, created_offset=offset, drained=())
            return after, Verdict.ACCEPTED
        case _:
            return None, Verdict.ILLEGAL_MOVE


def _drained(
    topic: ScalableTopic, before: Subscription, record: SubscriptionChange
) -> tuple[Subscription | None, Verdict]:
    layout = topic.layout
    drained = set(before.drained)
    if not record.segment_ids:
        return None, Verdict.SEGMENTS_INVALID
    for each in sorted(record.segment_ids):
        part = layout.segments.get(each)
        if part is None or part.is_active or each in drained:
            return None, Verdict.SEGMENTS_INVALID
        if not layout.ancestors(each) <= drained:
            return None, Verdict.NOT_DRAINED
        drained.add(each)
    after = replace(before, drained=tuple(sorted(drained)))
    return after, Verdict.ACCEPTED
