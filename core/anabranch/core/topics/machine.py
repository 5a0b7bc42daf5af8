"""The machine of a scalable topic's layout: its guards, its table, and the changes by its records.

The table is defined once (PIP-468; docs/topics.md), of the same kind as the service units'
(`bundles.machine`). A record names a *move*. An arrow says the states that the move may start from,
the state that it leads to, and the guards that must hold, in which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from anabranch.core import names
from anabranch.core.autoscale.policy import is_override_form
from anabranch.core.bundles.guards import CONTROLLER
from anabranch.core.entities.layout import SegmentLayout, entered, without
from anabranch.core.entities.segment import (
    BUCKETS_MAX,
    SEGMENTS_MAX,
    SegmentInfo,
    SegmentState,
    tile,
)
from anabranch.core.entities.subscription import SegmentPositions
from anabranch.core.entities.topic import (
    LAYOUT_MOVES,
    Operation,
    ScalableTopic,
    TopicMove,
    TopicState,
)
from anabranch.core.log.conflicts import first_version, may_propose, unfit_version
from anabranch.core.log.outcome import REJECTED, Outcome
from anabranch.core.log.records import TopicChange, subscription_key
from anabranch.core.log.state import Change, StateReader, revoked_with
from anabranch.core.log.state_machine import Arrow, Case, Guard, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import namespace_of
from anabranch.core.tenants.limits import TenantLimit, has_room, limit_in_force

TopicGuard = Guard[ScalableTopic, TopicChange]


def _sound(parts: Iterable[SegmentInfo], first_id: int) -> bool:
    """Tells whether these are new segments with the ids from `first_id` on, in order."""
    return all(
        part.segment_id == first_id + place
        and 1 <= part.buckets <= BUCKETS_MAX
        and part.state is SegmentState.ACTIVE
        and not part.child_ids
        and not part.end_offsets
        for place, part in enumerate(parts)
    )


def _tile(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parts = record.segments
    return (
        1 <= len(parts) <= SEGMENTS_MAX
        and _sound(parts, 0)
        and not any(part.parent_ids for part in parts)
        and tile(parts)
    )


def _fit(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = [topic.segment(each) for each in record.parents]
    active = [part for part in parents if part is not None and part.is_active]
    children = record.segments
    if not children or not active or len(active) != len(parents):
        return False
    if not _sound(children, topic.next_segment_id):
        return False
    if any(child.parent_ids != record.parents for child in children):
        return False
    if len(set(record.parents)) != len(parents):
        return False
    start = min(part.start for part in active)
    end = max(part.end for part in active)
    # The parents must be neighbours, and the children must cover exactly what they covered.
    if not tile(active, start, end) or not tile(children, start, end):
        return False
    if len(record.end_offsets) not in (0, active[0].buckets):
        return False
    match record.operation:
        case Operation.SPLIT:
            return len(active) == 1 and len(children) >= 2
        case Operation.MERGE:
            return len(active) >= 2 and len(children) == 1
        case Operation.REBUCKET:
            alone = len(active) == len(children) == 1
            return alone and active[0].buckets != children[0].buckets
        case Operation.RELOCATE | Operation.RESTORE:
            alone = len(active) == len(children) == 1
            return alone and active[0].buckets == children[0].buckets
        case _:
            return False


def _ends(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = (topic.segment(each) for each in topic.parents)
    wanted = sum(part.buckets for part in parents if part is not None)
    return len(record.end_offsets) == wanted and all(end >= 0 for end in record.end_offsets)


def _prunable(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    ids = record.segment_ids
    if not ids or len(set(ids)) != len(ids):
        return False
    for each in ids:
        part = topic.segment(each)
        if part is None or part.is_active or any(up not in ids for up in part.parent_ids):
            return False
    subscriptions = state.subscriptions(record.topic)
    return all(set(ids) <= set(subscription.drained) for _, subscription in subscriptions)


def _has_room(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    home, what = namespace_of(record.topic), TenantLimit.MAX_TOPICS_PER_NAMESPACE
    return has_room(limit_in_force(state, home, what, record.limit), state.topics(home))


def _as_it_was(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parts = [topic.segment(each) for each in record.segment_ids]
    ends = [part.end_offsets for part in parts if part is not None and not part.is_active]
    return len(parts) == 1 and ends == [record.end_offsets] and any(record.end_offsets)


SEGMENTS_TILE: Final = TopicGuard(
    "the record's segments are a first layout", _tile, Verdict.SEGMENTS_INVALID
)
TOPIC_ROOM: Final = TopicGuard(
    "the namespace has fewer topics than its limit, or else the record's",
    _has_room,
    Verdict.LIMIT_REACHED,
)
CHILDREN_FIT: Final = TopicGuard(
    "the record's children can take the place of its parents", _fit, Verdict.SEGMENTS_INVALID
)
ENDS_COMPLETE: Final = TopicGuard(
    "there is one end offset for each partition of each parent", _ends, Verdict.ENDS_INCOMPLETE
)
PRUNABLE: Final = TopicGuard(
    "the segments are sealed roots that every subscription has drained",
    _prunable,
    Verdict.NOT_DRAINED,
)
LOST_AS_IT_WAS: Final = TopicGuard(
    "the record names one sealed segment, and where it ended, which was not where it began",
    _as_it_was,
    Verdict.SEGMENTS_INVALID,
)
GARBAGE_NAMED: Final = TopicGuard(
    "the segments are what waits to be deleted",
    lambda s, t, r: (
        bool(r.segment_ids) and set(r.segment_ids) <= {part.segment_id for part in t.garbage}
    ),
    Verdict.SEGMENTS_INVALID,
)


_S, _M = TopicState, TopicMove
_OPEN: Final = (_S.STABLE, _S.PREPARING, _S.SEALING)

LAYOUTS: Final = StateMachine(
    (
        Arrow(_M.CREATE, (_S.INIT,), _S.CREATING, (CONTROLLER, SEGMENTS_TILE, TOPIC_ROOM)),
        Arrow(_M.OPEN, (_S.CREATING,), _S.STABLE, (CONTROLLER,)),
        Arrow(_M.BEGIN, (_S.STABLE,), _S.PREPARING, (CONTROLLER, CHILDREN_FIT)),
        Arrow(_M.SEALING, (_S.PREPARING,), _S.SEALING, (CONTROLLER,)),
        Arrow(_M.COMMIT, (_S.SEALING,), _S.STABLE, (CONTROLLER, ENDS_COMPLETE)),
        Arrow(_M.ABORT, (_S.PREPARING,), _S.STABLE, (CONTROLLER,)),
        Arrow(_M.PRUNE, (_S.STABLE,), _S.STABLE, (CONTROLLER, PRUNABLE)),
        Arrow(_M.CLEAR, _OPEN, None, (CONTROLLER, GARBAGE_NAMED)),
        Arrow(_M.UPDATE, _OPEN, None, (CONTROLLER,)),
        Arrow(_M.POLICY, _OPEN, None, (CONTROLLER,)),
        Arrow(_M.LOST, _OPEN, None, (CONTROLLER, LOST_AS_IT_WAS)),
        # Not while SEALING: a seal that has begun is always committed first.
        Arrow(_M.DELETE, (_S.CREATING, _S.STABLE, _S.PREPARING), _S.DELETING, (CONTROLLER,)),
        Arrow(_M.REMOVE, (_S.DELETING,), _S.INIT, (CONTROLLER,)),
    ),
    TopicState,
)


_ABSENT: Final = ScalableTopic(
    TopicState.INIT, 0, 0, -1, 0, (), Operation.NONE, (), (), (), (), TopicMove.REMOVE, 0, -1, 0, ""
)
_CASES: Final = LAYOUTS.table


def evolve_topic(
    state: StateReader, record: TopicChange, offset: int, timestamp_ms: int
) -> Outcome:
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
    case = _CASES.get((topic.state, record.move))
    if case is None:
        return REJECTED[Verdict.ILLEGAL_MOVE]
    wrong = _refused(state, topic, case, record)
    if wrong is not None:
        return REJECTED[wrong]
    after = _moved(topic, case.end, record, offset, timestamp_ms)
    changes: list[Change] = [(record.key, after)]
    if after is None:
        changes += [
            (subscription_key(record.topic, name), None)
            for name, _ in state.subscriptions(record.topic)
        ]
        changes += revoked_with(state, record.topic)
    elif record.move is TopicMove.PRUNE:
        changes += _pruned(state, topic, record)
    return Outcome(Verdict.ACCEPTED, tuple(changes))


def _refused(
    state: StateReader, topic: ScalableTopic, case: Case[Arrow, TopicState], record: TopicChange
) -> Verdict | None:
    if not may_propose(state, record.actor, record.session):
        return Verdict.SESSION_OVER
    creating = record.move is TopicMove.CREATE
    named = not creating or names.is_valid(names.parse_scalable_topic, record.topic)
    formed = len(record.properties) % 2 == 0 and is_override_form(record.auto_scale)
    if not (named and formed):
        return Verdict.INVALID_VALUE
    return case.refusal(state, topic, record)


def _moved(
    topic: ScalableTopic, end: TopicState, record: TopicChange, offset: int, timestamp_ms: int
) -> ScalableTopic | None:
    if end is TopicState.INIT:
        return None
    creating = record.move is TopicMove.CREATE
    counts = record.move in LAYOUT_MOVES
    after = replace(
        topic,
        state=end,
        version=first_version(offset) if creating else record.version,
        opened=topic.opened + 1 if topic.opened and not counts else topic.opened,
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
            segments = _identified(topic.segments, record.topic_ids)
            return replace(after, opened=record.version, segments=segments)
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
                off=record.off,
                next_segment_id=topic.next_segment_id + len(record.segments),
            )
        case TopicMove.COMMIT:
            after = replace(after, children=_identified(topic.children, record.topic_ids))
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
        case TopicMove.LOST:
            return replace(after, segments=tuple(_lost(topic, record.segment_ids)))
        case _:
            return after


def _identified(
    parts: tuple[SegmentInfo, ...], topic_ids: tuple[str, ...]
) -> tuple[SegmentInfo, ...]:
    """Returns the segments with the ids of their Kafka topics; returns them unchanged if the ids
    are not told.
    """
    if len(topic_ids) != len(parts):
        return parts
    return tuple(replace(part, topic_id=each) for part, each in zip(parts, topic_ids, strict=True))


def _lost(topic: ScalableTopic, gone: tuple[int, ...]) -> Iterator[SegmentInfo]:
    """Returns the topic's segments; the lost ones end at their begin."""
    for part in topic.segments:
        lost = part.segment_id in gone
        yield replace(part, end_offsets=(0,) * part.buckets) if lost else part


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
    """Returns the topic with these changes, and no operation under way."""
    return replace(topic, operation=Operation.NONE, parents=(), children=(), off=(), **changes)


def _pruned(state: StateReader, topic: ScalableTopic, record: TopicChange) -> list[Change]:
    """Removes pruned segments from the drained ones of all subscriptions."""
    ids = set(record.segment_ids)
    gone = [
        SegmentPositions(part.segment_id, part.end_offsets)
        for part in topic.segments
        if part.segment_id in ids
    ]
    left = {part.segment_id for part in topic.segments} - ids
    return [
        (subscription_key(record.topic, name), known.without_segments(gone, left))
        for name, known in state.subscriptions(record.topic)
    ]
