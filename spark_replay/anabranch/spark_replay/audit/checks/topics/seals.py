"""Seals: a segment is sealed once, for children that were announced before, with a final end.

This module derives the allowed changes of a topic's segments from the accepted records alone. BEGIN
names parents and children, and SEALING is the point of no return. COMMIT replaces the parents by
the children, with the end offset of each partition. A child descends from the parents whose hashes
it takes, because its consumers wait for no others. PRUNE takes sealed segments away, and so does a
COMMIT whose child continues one in the same Kafka topic. LOST lets one end where it began. All else
of a segment stays unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import TopicChange
from anabranch.spark_replay.audit.tally import CheckTally

_Parts = dict[int, SegmentInfo]
_FIXED = (
    *("start", "end", "buckets", "created_at_epoch", "created_at_ms"),
    *("legacy_topic", "partitioner", "start_offsets"),
)
_FINAL = ("state", "end_offsets", "sealed_at_epoch", "sealed_at_ms")


class _Operation(msgspec.Struct):
    """The parents and children of a BEGIN."""

    parents: tuple[int, ...]
    children: tuple[int, ...]
    sealing: bool = False


class Seals:
    """Follows the operation under way in every topic."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._under_way: dict[str, _Operation] = {}

    def start(self, name: str, topic: ScalableTopic) -> None:
        """Begins a replay from a snapshot with this topic."""
        if topic.state in (TopicState.PREPARING, TopicState.SEALING):
            children = tuple(part.segment_id for part in topic.children)
            sealing = topic.state is TopicState.SEALING
            self._under_way[name] = _Operation(topic.parents, children, sealing)

    def changed(
        self,
        offset: int,
        record: TopicChange,
        before: ScalableTopic | None,
        after: ScalableTopic | None,
    ) -> None:
        """Checks an accepted record that has turned `before` into `after`."""
        self.tally.examined += 1
        operation = self._under_way.get(record.topic)
        was = _by_id(before)
        now = _by_id(after)
        for fault in self._faults(record, operation, was, now):
            self.tally.violate(offset, f"{record.topic}: {fault}")
        match record.move:
            case TopicMove.BEGIN:
                children = tuple(part.segment_id for part in record.segments)
                self._under_way[record.topic] = _Operation(record.parents, children)
            case TopicMove.SEALING if operation is not None:
                operation.sealing = True
            case TopicMove.CREATE | TopicMove.COMMIT | TopicMove.ABORT | TopicMove.DELETE:
                self._under_way.pop(record.topic, None)

    def _faults(
        self, record: TopicChange, operation: _Operation | None, was: _Parts, now: _Parts
    ) -> Iterator[str]:
        move = record.move
        if move is TopicMove.CREATE:
            yield from _first(now)
            return
        if move is TopicMove.REMOVE:
            return
        if move in (TopicMove.SEALING, TopicMove.COMMIT) and operation is None:
            yield f"{move.name}, but no BEGIN had named any children"
        if move is TopicMove.ABORT and operation is not None and operation.sealing:
            yield "ABORT after SEALING: its parents may be sealed in Kafka"
        if move is TopicMove.DELETE and operation is not None and operation.sealing:
            yield "DELETE after SEALING, before what was begun was committed"
        if move is TopicMove.COMMIT and operation is not None:
            if not operation.sealing:
                yield "COMMIT without SEALING"
            yield from _committed(record, operation, was, now)
        else:
            yield from _unmoved(move, was, now)
        yield from _gone(record, was, now)
        lost = record.segment_ids if move is TopicMove.LOST else ()
        yield from _kept(was, now, lost)


def _by_id(topic: ScalableTopic | None) -> _Parts:
    return {part.segment_id: part for part in topic.segments} if topic is not None else {}


def _first(now: _Parts) -> Iterator[str]:
    for each, part in now.items():
        if not part.is_active or part.parent_ids:
            yield f"segment {each} of a new topic is not active, or has parents"


def _committed(
    record: TopicChange, operation: _Operation, was: _Parts, now: _Parts
) -> Iterator[str]:
    """Checks that the announced children, and nothing else, have taken the parents' place."""
    for each in sorted(now.keys() - was.keys() - set(operation.children)):
        yield f"segment {each} became active, but no BEGIN had named it"
    parents = [was[each] for each in operation.parents if each in was]
    for each in operation.children:
        if each not in now or not now[each].is_active:
            yield f"segment {each} was begun, but its COMMIT did not make it active"
            continue
        child = now[each]
        above = {p.segment_id for p in parents if p.start <= child.end and child.start <= p.end}
        if set(child.parent_ids) != above:
            yield (
                f"segment {each} takes hashes of {sorted(above)}, but descends from "
                f"{sorted(child.parent_ids)}"
            )
    at = 0
    for each in operation.parents:
        part = now.get(each)
        if part is None or part.is_active:
            yield f"segment {each} was to be sealed, and is not"
            continue
        wanted = record.end_offsets[at : at + part.buckets]
        at += part.buckets
        if part.end_offsets != wanted or len(wanted) != part.buckets:
            yield (
                f"segment {each} has {part.buckets} partitions and ends {part.end_offsets}; its "
                f"COMMIT says {wanted}"
            )
    for each in sorted(was.keys() & now.keys() - set(operation.parents)):
        if was[each].is_active and not now[each].is_active:
            yield f"segment {each} was sealed, but it was not a parent of what was begun"


def _unmoved(move: TopicMove, was: _Parts, now: _Parts) -> Iterator[str]:
    """Checks that nothing became active and nothing was sealed."""
    for each in sorted(now.keys() - was.keys()):
        yield f"{move.name} made segment {each}"
    for each in sorted(was.keys() & now.keys()):
        if was[each].is_active and not now[each].is_active:
            yield f"{move.name} sealed segment {each}"


def _gone(record: TopicChange, was: _Parts, now: _Parts) -> Iterator[str]:
    gone = was.keys() - now.keys()
    if record.move is TopicMove.COMMIT:
        born = [now[each] for each in now.keys() - was.keys()]
        gone = {each for each in gone if not any(part.continues(was[each]) for part in born)}
    if record.move is not TopicMove.PRUNE:
        for each in sorted(gone):
            yield f"{record.move.name} lost segment {each}"
        return
    for each in sorted(gone ^ set(record.segment_ids)):
        yield f"PRUNE names {record.segment_ids}, but of segment {each} the layout says otherwise"
    for each in sorted(gone):
        if was[each].is_active:
            yield f"PRUNE took segment {each} away, which was active"
        elif any(parent not in gone for parent in was[each].parent_ids):
            yield f"PRUNE took segment {each} away before what it descends from"


def _kept(was: _Parts, now: _Parts, lost: Collection[int]) -> Iterator[str]:
    for each in sorted(was.keys() & now.keys()):
        old, new = was[each], now[each]
        if old is new:
            continue
        for name in _FIXED if old.is_active else (*_FIXED, *_FINAL):
            before, after = getattr(old, name), getattr(new, name)
            if name == "end_offsets" and each in lost:
                before = (0,) * old.buckets
            if before != after:
                state = "active" if old.is_active else "sealed"
                yield f"the {name} of {state} segment {each} was {before} and became {after}"
