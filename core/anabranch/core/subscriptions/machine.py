"""The machine of a subscription, as a table; docs/state-machine.md explains it.

If there is a topic, its incarnation is the record's: `evolve` has checked that before.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from anabranch.core import names
from anabranch.core.bundles.guards import CONTROLLER
from anabranch.core.entities.subscription import (
    DELIVERIES_MAX,
    NOBODY,
    Subscription,
    SubscriptionKind,
    SubscriptionOp,
)
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.log.conflicts import IN_SESSION, first_version, unfit_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import SubscriptionChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import (
    Arrow,
    Existence,
    Guard,
    StateMachine,
    keeps_nothing,
)
from anabranch.core.log.verdicts import Verdict
from anabranch.core.tenants.limits import TenantLimit, has_room, limit_in_force

SubscriptionGuard = Guard[Subscription | None, SubscriptionChange]
_Before = Subscription | None


def _topic(state: StateReader, record: SubscriptionChange) -> ScalableTopic:
    topic = state.topic(record.topic)
    if topic is None:
        raise LookupError(f"no topic {record.topic}: evolve looks before it asks a guard")
    return topic


def _puts_aside_well(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    if not record.dead_letter and not record.deliveries_max:
        return True
    kind = (record if before is None else before).kind
    tries = {SubscriptionKind.QUEUE: range(1, DELIVERIES_MAX + 1), SubscriptionKind.STREAM: (0,)}
    return (
        record.deliveries_max in tries.get(kind, ())
        and record.dead_letter != record.topic
        and "://" not in record.dead_letter
        and names.is_valid(names.parse_scalable_topic, record.dead_letter)
    )


def _serves(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    instance = before.instance_of(record.consumer) if before is not None else None
    return instance not in (None, NOBODY) and instance == record.instance


def _positions_fit(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    """Tells whether they are of segments that the topic has, children that take messages
    included; and none is missing that cannot begin at 0.
    """
    topic = _topic(state, record)
    parts = {part.segment_id: part for part in topic.segments}
    if topic.state is TopicState.SEALING:
        parts |= {part.segment_id: part for part in topic.children}
    ids = [each.segment_id for each in record.positions]
    if len(set(ids)) < len(ids):
        return False
    known = before.positions if before is not None else ()
    for each in record.positions:
        if each in known and each.segment_id not in parts:
            continue  # a checkpoint's, of a segment that was pruned
        part = parts.get(each.segment_id)
        if part is None or len(each.offsets) != part.buckets or min(each.offsets) < 0:
            return False
        if any(at > end for at, end in zip(each.offsets, part.end_offsets, strict=False)):
            return False
        begun = zip(each.offsets, part.start_offsets, strict=False)
        if part.begins_late and any(at < first for at, first in begun):
            return False
    late = {part.segment_id for part in parts.values() if part.begins_late}
    return late <= {*ids, *record.segment_ids, *_drained(before, record)}


def _is_settled(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    return _topic(state, record).continued is None


def _drained(before: _Before, record: SubscriptionChange) -> set[int]:
    """Returns the drained segments before the record; none if the subscription begins (anew)."""
    begins = record.op in (SubscriptionOp.CREATE, SubscriptionOp.RESET)
    return set() if before is None or begins else set(before.drained)


def _sealed(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    segments, drained = _topic(state, record).layout.segments, _drained(before, record)
    parts = [segments.get(each) for each in record.segment_ids]
    return len(set(record.segment_ids)) == len(parts) and all(
        part is not None and not part.is_active and part.segment_id not in drained for part in parts
    )


def _roots_first(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    layout = _topic(state, record).layout
    known = _drained(before, record) | set(record.segment_ids)
    return all(layout.ancestors(each) <= known for each in record.segment_ids)


def _has_room(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    what = TenantLimit.MAX_SUBSCRIPTIONS_PER_TOPIC
    limit = limit_in_force(state, names.namespace_of(record.topic), what, record.limit)
    return has_room(limit, state.subscriptions(record.topic))


def _seats_one_more(state: StateReader, before: _Before, record: SubscriptionChange) -> bool:
    if before is None or record.consumer in before.consumers:
        return True
    what = TenantLimit.MAX_CONSUMERS_PER_SUBSCRIPTION
    limit = limit_in_force(state, names.namespace_of(record.topic), what, record.limit)
    return has_room(limit, before.consumers)


_NAME_FITS: Final = SubscriptionGuard(
    "the subscription's name is one",
    lambda s, e, r: names.is_valid(names.subscription, r.subscription),
    Verdict.INVALID_VALUE,
)
_CONSUMER_FITS: Final = SubscriptionGuard(
    "the consumer's name is one",
    lambda s, e, r: names.is_valid(names.consumer, r.consumer),
    Verdict.INVALID_VALUE,
)
_PUTS_ASIDE_WELL: Final = SubscriptionGuard(
    "a queue or a stream can keep its dead letters where the record says, and nobody else",
    _puts_aside_well,
    Verdict.INVALID_VALUE,
)
_TOPIC_OPEN: Final = SubscriptionGuard(
    "the topic is open", lambda s, e, r: _topic(s, r).is_open, Verdict.TOPIC_BUSY
)
_OTHER_PROCESS: Final = SubscriptionGuard(
    "the name is not registered for this process already",
    lambda s, e, r: e is not None and e.instance_of(r.consumer) != r.instance,
    Verdict.CONSUMER_EXISTS,
)
_REGISTERED: Final = SubscriptionGuard(
    "the consumer is registered",
    lambda s, e, r: e is not None and e.instance_of(r.consumer) is not None,
    Verdict.UNKNOWN_CONSUMER,
)
_SERVES: Final = SubscriptionGuard(
    "the process is the one that serves under the name", _serves, Verdict.UNKNOWN_CONSUMER
)
_POSITIONS_FIT: Final = SubscriptionGuard(
    "the positions are of buckets that the topic has, and not beyond their ends",
    _positions_fit,
    Verdict.SEGMENTS_INVALID,
)
_SEGMENTS_NAMED: Final = SubscriptionGuard(
    "the record names a segment", lambda s, e, r: bool(r.segment_ids), Verdict.SEGMENTS_INVALID
)
_SEALED: Final = SubscriptionGuard(
    "the record's segments are sealed, and not drained yet", _sealed, Verdict.SEGMENTS_INVALID
)
_ROOTS_FIRST: Final = SubscriptionGuard(
    "everything above the record's segments is drained", _roots_first, Verdict.NOT_DRAINED
)

_ROOM: Final = SubscriptionGuard(
    "the topic has fewer subscriptions than the namespace's limit, or else the record's",
    _has_room,
    Verdict.LIMIT_REACHED,
)
_SEAT: Final = SubscriptionGuard(
    "the name is registered, or fewer are than the namespace's limit, or else the record's",
    _seats_one_more,
    Verdict.LIMIT_REACHED,
)

_SETTLED: Final = SubscriptionGuard(
    "the topic's Kafka topic is not being given back, which all have to have read",
    _is_settled,
    Verdict.TOPIC_BUSY,
)

_E, _O = Existence, SubscriptionOp
_FITS: Final = (_PUTS_ASIDE_WELL, CONTROLLER, _TOPIC_OPEN)
_ANY: Final = (IN_SESSION, *_FITS)
_BEGINS: Final = (_SETTLED, _POSITIONS_FIT, _SEALED, _ROOTS_FIRST)
_HERE: Final = (_E.PRESENT,)

SUBSCRIPTIONS: Final = StateMachine(
    (
        Arrow(
            _O.CREATE,
            (_E.ABSENT,),
            _E.PRESENT,
            (IN_SESSION, _NAME_FITS, *_FITS, *_BEGINS, _ROOM),
        ),
        Arrow(_O.DELETE, _HERE, _E.ABSENT, _ANY),
        Arrow(_O.JOIN, _HERE, None, (IN_SESSION, _CONSUMER_FITS, *_FITS, _OTHER_PROCESS, _SEAT)),
        Arrow(_O.LEAVE, _HERE, None, (*_ANY, _REGISTERED)),
        Arrow(_O.DRAINED, _HERE, None, (*_ANY, _SEGMENTS_NAMED, _SEALED, _ROOTS_FIRST)),
        Arrow(_O.RESET, _HERE, None, (*_ANY, *_BEGINS)),
        Arrow(_O.POSITIONS, _HERE, None, (*_ANY, _POSITIONS_FIT)),
        Arrow(_O.DEAD_LETTER, _HERE, None, _ANY),
        Arrow(_O.LAPSED, _HERE, None, (*_ANY, _SERVES)),
    ),
    Existence,
    keeps_nothing(_O.DELETE),
)


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
