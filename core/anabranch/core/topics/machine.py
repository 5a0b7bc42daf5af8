"""The machine of a scalable topic's layout: its table, and the changes by its records.

The table is defined once (PIP-468; docs/topics.md), of the same kind as the service units'
(`bundles.machine`). A record names a *move*. An arrow says the states that the move may start from,
the state that it leads to, and the guards that must hold, in which order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from anabranch.core import names
from anabranch.core.autoscale.policy import is_override_form
from anabranch.core.bundles.guards import CONTROLLER
from anabranch.core.entities.layout import SegmentLayout, entered, without
from anabranch.core.entities.segment import SegmentInfo
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
from anabranch.core.log.state_machine import Arrow, Case, StateMachine
from anabranch.core.log.verdicts import Verdict
from anabranch.core.topics.guards import (
    ADOPTABLE,
    ADOPTED_ONCE,
    CHILDREN_FIT,
    CUTS_OVER,
    ENDS_COMPLETE,
    GARBAGE_NAMED,
    GIVES_BACK,
    LOST_AS_IT_WAS,
    PRUNABLE,
    READ_BEFORE,
    SEGMENTS_TILE,
    TOPIC_ROOM,
)

_S, _M = TopicState, TopicMove
_OPEN: Final = (_S.STABLE, _S.PREPARING, _S.SEALING)

LAYOUTS: Final = StateMachine(
    (
        Arrow(
            _M.CREATE,
            (_S.INIT,),
            _S.CREATING,
            (CONTROLLER, SEGMENTS_TILE, TOPIC_ROOM, ADOPTABLE, ADOPTED_ONCE),
        ),
        Arrow(_M.OPEN, (_S.CREATING,), _S.STABLE, (CONTROLLER,)),
        Arrow(
            _M.BEGIN,
            (_S.STABLE,),
            _S.PREPARING,
            (CONTROLLER, CHILDREN_FIT, CUTS_OVER, GIVES_BACK, READ_BEFORE),
        ),
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
    removes = case.end is TopicState.INIT
    after = None if removes else _moved(topic, case.end, record, offset, timestamp_ms)
    changes: list[Change] = [(record.key, after)]
    if after is None:
        changes += [
            (subscription_key(record.topic, name), None)
            for name, _ in state.subscriptions(record.topic)
        ]
        changes += revoked_with(state, record.topic)
    elif record.move is TopicMove.PRUNE:
        changes += _pruned(state, topic, record.topic, record.segment_ids)
    elif record.move is TopicMove.COMMIT and (sealed := topic.continued) is not None:
        begun = tuple(
            SegmentPositions(child.segment_id, child.start_offsets)
            for child in topic.children
            if any(child.start_offsets)
        )
        changes += _pruned(state, topic, record.topic, (sealed.segment_id,), begun)
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
) -> ScalableTopic:
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
                adopted_from=record.segments[0].legacy_topic,
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
                next_segment_id=topic.next_segment_id + len(record.segments),
                keeps_adopted=record.keeps if topic.adopted is not None else topic.keeps_adopted,
            )
        case TopicMove.COMMIT:
            after = replace(after, children=_identified(topic.children, record.topic_ids))
            return _committed(after, record.end_offsets, timestamp_ms)
        case TopicMove.ABORT:
            return _at_rest(after, garbage=topic.garbage + _ours(topic.children))
        case TopicMove.PRUNE:
            named = (part for part in topic.segments if part.segment_id in record.segment_ids)
            left = without(topic.layout.segments, record.segment_ids)
            return replace(after, segments=tuple(left), garbage=topic.garbage + _ours(named))
        case TopicMove.CLEAR:
            kept = (part for part in topic.garbage if part.segment_id not in record.segment_ids)
            return replace(after, garbage=tuple(kept))
        case TopicMove.LOST:
            return replace(after, segments=tuple(_lost(topic, record.segment_ids)))
        case TopicMove.SEALING if topic.adopted is not None:
            return replace(after, own_settings=record.properties)
        case _:
            return after


def _ours(parts: Iterable[SegmentInfo]) -> tuple[SegmentInfo, ...]:
    """Returns the segments without adopted ones, which stay in Kafka."""
    return tuple(part for part in parts if not part.is_legacy)


def _identified(
    parts: tuple[SegmentInfo, ...], topic_ids: tuple[str, ...]
) -> tuple[SegmentInfo, ...]:
    """Returns the segments with the ids of their Kafka topics; an id that is not told stays."""
    if len(topic_ids) != len(parts):
        return parts
    return tuple(
        replace(part, topic_id=each or part.topic_id)
        for part, each in zip(parts, topic_ids, strict=True)
    )


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
    # The Kafka topic that it opens again is one segment at a time, so that a position is one's.
    continued = topic.continued
    gone = () if continued is None else (continued.segment_id,)
    segments = tuple(sorted(without(after.segments, gone), key=lambda part: part.segment_id))
    match topic.operation:
        case Operation.SPLIT:
            topic = replace(topic, split_ms=timestamp_ms)
        case Operation.MERGE:
            topic = replace(topic, merge_ms=timestamp_ms)
        case Operation.REBUCKET:
            topic = replace(topic, rebucket_ms=timestamp_ms)
        case Operation.PREPARE | Operation.GIVE_BACK:
            topic = replace(topic, split_ms=timestamp_ms, merge_ms=timestamp_ms)
    return _at_rest(topic, segments=segments)


def _at_rest(topic: ScalableTopic, **changes: Any) -> ScalableTopic:
    """Returns the topic with these changes, and no operation under way."""
    return replace(topic, operation=Operation.NONE, parents=(), children=(), **changes)


def _pruned(
    state: StateReader,
    topic: ScalableTopic,
    name: str,
    segment_ids: Collection[int],
    begun: tuple[SegmentPositions, ...] = (),
) -> list[Change]:
    """Removes segments that are gone from the drained ones of all subscriptions, which go on at
    `begun`.
    """
    ids, anew = set(segment_ids), {each.segment_id for each in begun}
    gone = [
        SegmentPositions(part.segment_id, part.end_offsets)
        for part in topic.segments
        if part.segment_id in ids
    ]
    left = {part.segment_id for part in topic.segments} - ids
    changes: list[Change] = []
    for subscription, known in state.subscriptions(name):
        after = known.without_segments(gone, left)
        if begun:
            kept = (each for each in after.positions if each.segment_id not in anew)
            after = replace(after, positions=(*kept, *begun))
        changes.append((subscription_key(name, subscription), after))
    return changes
