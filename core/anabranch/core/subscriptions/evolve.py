"""The changes of subscriptions by records."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.core.entities.subscription import (
    NOBODY,
    Subscription,
    SubscriptionKind,
    SubscriptionOp,
)
from anabranch.core.log.conflicts import first_version, unfit_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import SubscriptionChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Existence
from anabranch.core.log.verdicts import Verdict
from anabranch.core.subscriptions.machine import SUBSCRIPTIONS


def evolve_subscription(
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
    start = Existence.ABSENT if before is None else Existence.PRESENT
    case = SUBSCRIPTIONS.table.get((start, record.op))
    if case is None:
        return REJECTED[Verdict.ILLEGAL_MOVE]
    wrong = case.refusal(state, before, record)
    if wrong is not None:
        return REJECTED[wrong]
    if case.end is Existence.ABSENT:
        return Outcome(Verdict.ACCEPTED, ((record.key, None),))
    after = replace(
        _changed(before or _new(record, offset), record, offset),
        version=first_version(offset) if creating else record.version,
        since_ms=timestamp_ms,
        since_offset=offset,
        proposal_id=record.proposal_id,
    )
    return Outcome(Verdict.ACCEPTED, ((record.key, after),))


def _new(record: SubscriptionChange, offset: int) -> Subscription:
    """Returns a subscription that begins at the first message."""
    new = Subscription(0, record.kind, offset, (), (), (), 0, offset, record.proposal_id)
    return replace(new, dead_letter=record.dead_letter, deliveries_max=record.deliveries_max)


def _changed(before: Subscription, record: SubscriptionChange, offset: int) -> Subscription:
    """Returns what the record makes of it; the guards of its row hold."""
    match record.op:
        case SubscriptionOp.CREATE | SubscriptionOp.RESET:
            begun = replace(before, created_offset=offset, positions=record.positions, drained=())
            # Kafka keeps no mark with a share group's position: late ones go to the former.
            if record.op is SubscriptionOp.RESET and before.kind is not SubscriptionKind.QUEUE:
                begun = replace(begun, first_offset=before.group_offset)
            return begun.with_drained(record.segment_ids)
        case SubscriptionOp.DRAINED:
            return before.with_drained(record.segment_ids)
        case SubscriptionOp.POSITIONS:
            return replace(before, positions=record.positions)
        case SubscriptionOp.JOIN:
            return before.with_consumer(record.consumer, record.instance)
        case SubscriptionOp.LEAVE:
            return before.without_consumer(record.consumer)
        case SubscriptionOp.LAPSED:
            return before.with_consumer(record.consumer, NOBODY)
        case SubscriptionOp.DEAD_LETTER:
            where, tries = record.dead_letter, record.deliveries_max
            return replace(before, dead_letter=where, deliveries_max=tries)
        case SubscriptionOp.DELETE:
            raise ValueError("what is deleted is not changed")
