"""Figures of the log. Nothing here is a violation, and all of it helps to see the cause of one.

They are counts and histograms of milliseconds only, so that the parts of a divided replay add up
exactly.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np

from anabranch.core.entities.topic import TopicMove
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit
from anabranch.core.log.records import (
    SessionChange,
    SessionOp,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.state import Change, Entity
from anabranch.core.log.verdicts import Verdict

_FLAP_MOVES: Final = 5  # a unit that changes hands more often within the window flaps
_FLAP_WINDOW_MS: Final = 60_000

# Before Python 3.12 an enum's member is looked up by a function; every record meets these.
_K = TypeVar("_K", int, str)
_OWN, _RELEASE, _HAND_OVER = Move.OWN, Move.RELEASE, Move.HAND_OVER
_RECLAIM, _DISCARD, _SPLIT_COMMIT = Move.RECLAIM, Move.DISCARD, Move.SPLIT_COMMIT
_VERDICTS: Final = 100  # more than there are: counts are kept by one number, bin and verdict
NOT_COUNTED: Final = -1  # in place of a verdict


class Figures(msgspec.Struct):
    """The statistics of one part, or of all."""

    counts: dict[int, int] = {}
    hand_overs: dict[int, int] = {}  # milliseconds -> how many
    fail_overs: dict[int, int] = {}  # from the former owner's last heartbeat
    reshapes: dict[int, int] = {}  # from a topic's BEGIN to its COMMIT
    held: dict[str, dict[int, int]] = {}  # broker -> bin -> units gained less units lost
    flapping: dict[str, int] = {}  # unit -> moves beyond those that it should make
    units: int = 0
    expired: list[tuple[int, str]] = []  # time and broker of sessions that another broker ended


def split_count_key(key: int) -> tuple[int, Verdict]:
    """Returns the bin number and the verdict of a key of `Figures.counts`."""
    bin_number, verdict = divmod(key, _VERDICTS)
    return bin_number, Verdict(verdict)


class Statistics:
    """Gathers the figures of one part from its log."""

    def __init__(self, bin_ms: int) -> None:
        self.records = 0
        self.last_ms = 0
        self._bin_ms = bin_ms
        self._found = Figures()
        self._begun: dict[str, int] = {}  # topic with an operation under way -> since when
        self._holding: dict[str, str] = {}
        self._released: dict[str, int] = {}
        self._lost: dict[str, int] = {}  # unit -> last sign of its owner that is gone
        self._ended: dict[str, int] = {}  # broker -> last sign before the end of its session
        self._owners: dict[str, str] = {}
        self._gains: dict[str, deque[int]] = {}

    def count(self, timestamps_ms: Sequence[int], verdicts: Sequence[int]) -> None:
        """Counts the records of a batch: their verdicts, or NOT_COUNTED for another row."""
        found = np.asarray(verdicts, dtype=np.int64)
        ours = found != NOT_COUNTED
        times = np.asarray(timestamps_ms, dtype=np.int64)[ours]
        if not len(times):
            return
        self.records += len(times)
        self.last_ms = max(self.last_ms, int(times.max()))
        keys, counts = np.unique(
            times // self._bin_ms * _VERDICTS + found[ours], return_counts=True
        )
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            _add(self._found.counts, key, count)

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        if isinstance(entity, Unit) and entity.holder and key != LEADERSHIP:
            self._gain(key, entity.holder, entity.since_ms)

    def session(self, timestamp_ms: int, record: SessionChange) -> None:
        """Counts an accepted record about a session."""
        if record.op is not SessionOp.OPEN:
            self._ended[record.broker] = record.evidence_ms or timestamp_ms
        if record.op is SessionOp.EXPIRE:
            self._found.expired.append((timestamp_ms, record.broker))

    def topic(self, timestamp_ms: int, record: TopicChange) -> None:
        """Counts an accepted move of a scalable topic."""
        if record.move is TopicMove.BEGIN:
            self._begun[record.topic] = timestamp_ms
        elif record.move is TopicMove.COMMIT and record.topic in self._begun:
            _add(self._found.reshapes, max(0, timestamp_ms - self._begun.pop(record.topic)))

    def moved(self, timestamp_ms: int, record: UnitMove, changes: tuple[Change, ...]) -> None:
        """Counts an accepted move of a bundle, except ASSIGN and SPLIT, which change no holder."""
        unit, move = record.unit, record.move
        if move is _OWN:
            self._gain(unit, record.actor, timestamp_ms)
            since_ms = self._released.pop(unit, None)
            if since_ms is not None:
                _add(self._found.hand_overs, max(0, timestamp_ms - since_ms))
            if unit in self._lost:
                _add(self._found.fail_overs, max(0, timestamp_ms - self._lost.pop(unit)))
            return
        if move is _RELEASE:
            if record.broker:
                self._released[unit] = timestamp_ms
        else:
            self._gave_up(timestamp_ms, record, changes)

    def _gave_up(self, timestamp_ms: int, record: UnitMove, changes: tuple[Change, ...]) -> None:
        unit, move = record.unit, record.move
        if move is _RECLAIM or move is _DISCARD:
            holder = self._holding.get(unit)
            if holder in self._ended:
                self._lost[unit] = self._ended[holder]
        if move is not _HAND_OVER:
            self._released.pop(unit, None)
        self._lose(unit, timestamp_ms)
        if move is _SPLIT_COMMIT:
            for child, entity in changes[1:]:
                if isinstance(entity, Unit) and entity.holder:
                    self._gain(child, entity.holder, timestamp_ms)

    def _gain(self, unit: str, broker: str, timestamp_ms: int) -> None:
        self._lose(unit, timestamp_ms)
        self._holding[unit] = broker
        self._hold(broker, timestamp_ms, 1)
        before = self._owners.get(unit)
        self._owners[unit] = broker
        if before is None or before == broker:
            return
        gains = self._gains.setdefault(unit, deque(maxlen=_FLAP_MOVES + 1))
        gains.append(timestamp_ms)
        if len(gains) > _FLAP_MOVES and timestamp_ms - gains[0] <= _FLAP_WINDOW_MS:
            _add(self._found.flapping, unit)

    def _lose(self, unit: str, timestamp_ms: int) -> None:
        broker = self._holding.pop(unit, None)
        if broker is not None:
            self._hold(broker, timestamp_ms, -1)

    def _hold(self, broker: str, timestamp_ms: int, more: int) -> None:
        _add(self._found.held.setdefault(broker, {}), timestamp_ms // self._bin_ms, more)

    def figures(self) -> Figures:
        """Returns all figures, at the end of the log."""
        self._found.units = len(self._owners)
        return self._found


def summed(parts: list[Figures]) -> Figures:
    """Returns the figures of the whole log."""
    whole = Figures()
    for part in parts:
        whole.counts = _sum(whole.counts, part.counts)
        whole.hand_overs = _sum(whole.hand_overs, part.hand_overs)
        whole.fail_overs = _sum(whole.fail_overs, part.fail_overs)
        whole.reshapes = _sum(whole.reshapes, part.reshapes)
        for broker, bins in part.held.items():
            whole.held[broker] = _sum(whole.held.get(broker, {}), bins)
        whole.flapping = whole.flapping | part.flapping
        whole.units += part.units
        whole.expired = whole.expired or part.expired  # every part sees them all
    return whole


def _add(counts: dict[_K, int], key: _K, more: int = 1) -> None:
    counts[key] = counts.get(key, 0) + more


def _sum(one: dict[_K, int], other: dict[_K, int]) -> dict[_K, int]:
    found = Counter(one)
    found.update(other)
    return dict(sorted(found.items()))


def percentile(histogram: dict[int, int], share: float) -> int:
    """Returns the smallest value that at least `share` of the observations do not exceed, 0 for
    none.
    """
    wanted = share * sum(histogram.values())
    seen = 0
    for value in sorted(histogram):
        seen += histogram[value]
        if seen >= wanted:
            return value
    return 0
