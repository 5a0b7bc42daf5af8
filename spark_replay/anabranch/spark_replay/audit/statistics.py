"""Figures of the log. Nothing here is a violation, and all of it helps to see the cause of one.

They are counts and histograms of milliseconds only, so that the parts of a divided replay add up
exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from anabranch.core.entities.archive import ArchiveOp
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import ScalableTopic, TopicMove
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit
from anabranch.core.log.grounds import BUILT_IN, strategy_of
from anabranch.core.log.records import (
    ArchiveChange,
    ClusterSettings,
    NamespaceChange,
    PermissionChange,
    PlacementPolicyChange,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    SettingChange,
    SubscriptionChange,
    TenantChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.state import Change, Entity
from anabranch.core.log.verdicts import Verdict

UNITS_DRAWN_MAX: Final = 2_000  # a part keeps the holders over time of so many units,
SPANS_MAX: Final = 400  # and of each so many spans; the report shows the busiest few
TOPICS_DRAWN_MAX: Final = 200  # likewise of topics, and so many segments of each
SEGMENTS_MAX: Final = 2_000

_KINDS: Final[tuple[str, ...]] = (
    *(f"unit {move.name}" for move in Move),
    *(f"session {op.name}" for op in SessionOp),
    *(f"tenant {op.name}" for op in PolicyOp),
    *(f"namespace {op.name}" for op in PolicyOp),
    *(f"topic {move.name}" for move in TopicMove),
    *(f"subscription {op.name}" for op in SubscriptionOp),
    *(f"archive {op.name}" for op in ArchiveOp),
    *(f"placement {op.name}" for op in PolicyOp),
    *(f"setting {op.name}" for op in PolicyOp),
    *(f"permission {op.name}" for op in PolicyOp),
    "cluster settings",
    "unreadable",
)
_SESSION: Final = len(Move)
_TENANT: Final = _SESSION + len(SessionOp)
_NAMESPACE: Final = _TENANT + len(PolicyOp)
_TOPIC: Final = _NAMESPACE + len(PolicyOp)
_SUBSCRIPTION: Final = _TOPIC + len(TopicMove)
_ARCHIVE: Final = _SUBSCRIPTION + len(SubscriptionOp)
_PLACEMENT: Final = _ARCHIVE + len(ArchiveOp)
_SETTING: Final = _PLACEMENT + len(PolicyOp)
_PERMISSION: Final = _SETTING + len(PolicyOp)
_CLUSTER: Final = _PERMISSION + len(PolicyOp)
_UNREADABLE: Final = _CLUSTER + 1
# Before Python 3.12 an enum's member is looked up by a function; every record meets these.
_OWN, _RELEASE, _HAND_OVER = Move.OWN, Move.RELEASE, Move.HAND_OVER
_RECLAIM, _DISCARD, _SPLIT_COMMIT = Move.RECLAIM, Move.DISCARD, Move.SPLIT_COMMIT
KIND_PLACE: Final = 100  # counts are kept by one number: bin, kind and verdict
NOT_COUNTED: Final = -1  # instead of a code, which is kind and verdict


class OwnershipSpan(msgspec.Struct, frozen=True, array_like=True):
    """A broker held a unit. `until_ms` -1 means the end of the log."""

    broker: str
    since_ms: int
    until_ms: int


class SegmentSpan(msgspec.Struct, frozen=True, array_like=True):
    """A segment took messages of the hashes `start` to `end`, inclusive.
    `OwnershipSpan` explains the times.
    """

    segment_id: int
    start: int
    end: int
    since_ms: int
    until_ms: int


class Flap(msgspec.Struct, frozen=True):
    """A unit that changed hands more often than it should within the window."""

    unit: str
    moves: int  # in its busiest window
    until_ms: int


class Figures(msgspec.Struct):
    """The statistics of one part, or of all."""

    counts: dict[int, int] = {}
    hand_overs: dict[int, int] = {}  # milliseconds -> how many
    fail_overs: dict[int, int] = {}
    last_signs: dict[int, int] = {}  # fail-overs, measured from the last heartbeat
    reshapes: dict[int, int] = {}  # from a topic's BEGIN to its COMMIT
    held: dict[str, dict[int, int]] = {}  # broker -> bin -> units gained less units lost
    spans: dict[str, list[OwnershipSpan]] = {}
    moves: dict[str, int] = {}  # the number of moves of each unit in `spans`
    flaps: list[Flap] = []
    flapping: int = 0
    units: int = 0
    expired: list[tuple[int, str]] = []  # time and broker of sessions that another broker ended
    decided_by: dict[str, int] = {}  # decisions of the load balancer by strategy
    segments: dict[str, list[SegmentSpan]] = {}  # topic -> its segments, in the order of their ids


def split_count_key(key: int) -> tuple[int, str, Verdict]:
    """Returns the bin number, the kind in words and the verdict of a key of `Figures.counts`."""
    rest, verdict = divmod(key, KIND_PLACE)
    bin_number, kind = divmod(rest, KIND_PLACE)
    return bin_number, _KINDS[kind], Verdict(verdict)


def kind_in_words(record: Record) -> str:
    """Returns the record's type and its operation, in words."""
    return _KINDS[kind_of(record)]


def kind_of(record: Record | None) -> int:
    """Returns the number of a record's kind: its type and its operation."""
    match record:
        case UnitMove():
            return int(record.move)
        case SessionChange():
            return _SESSION + record.op
        case TenantChange():
            return _TENANT + record.op
        case NamespaceChange():
            return _NAMESPACE + record.op
        case TopicChange():
            return _TOPIC + record.move
        case SubscriptionChange():
            return _SUBSCRIPTION + record.op
        case ArchiveChange():
            return _ARCHIVE + record.op
        case PlacementPolicyChange():
            return _PLACEMENT + record.op
        case SettingChange():
            return _SETTING + record.op
        case PermissionChange():
            return _PERMISSION + record.op
        case ClusterSettings():
            return _CLUSTER
        case _:
            return _UNREADABLE


class Statistics:
    """Gathers the figures of one part from its log."""

    def __init__(self, bin_ms: int, flap_moves: int, flap_window_ms: int) -> None:
        self.records = 0
        self.last_ms = 0
        self._bin_ms = bin_ms
        self._flap_moves = flap_moves
        self._flap_window_ms = flap_window_ms
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._hand_overs: defaultdict[int, int] = defaultdict(int)
        self._fail_overs: Counter[int] = Counter()
        self._last_signs: Counter[int] = Counter()
        self._reshapes: Counter[int] = Counter()
        self._begun: dict[str, int] = {}  # topic with an operation under way -> since when
        self._held: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._spans: dict[str, list[OwnershipSpan]] = {}
        self._holding: dict[str, tuple[str, int]] = {}
        self._released: dict[str, int] = {}
        self._lost: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, tuple[int, int]] = {}  # broker -> last sign, end of its session
        self._owners: dict[str, str] = {}
        self._gains: dict[str, deque[int]] = {}
        self._moves: defaultdict[str, int] = defaultdict(int)
        self._flaps: dict[str, Flap] = {}
        self._expired: list[tuple[int, str]] = []
        self._decided_by: Counter[str] = Counter()
        self._segments: dict[str, dict[int, SegmentSpan]] = {}

    def count(self, timestamps_ms: Sequence[int], codes: Sequence[int]) -> None:
        """Counts the records of a batch: their codes, or NOT_COUNTED for a row of another kind."""
        code = np.asarray(codes, dtype=np.int64)
        ours = code != NOT_COUNTED
        times = np.asarray(timestamps_ms, dtype=np.int64)[ours]
        if not len(times):
            return
        self.records += len(times)
        self.last_ms = max(self.last_ms, int(times.max()))
        keys, counts = np.unique(
            times // self._bin_ms * (KIND_PLACE * KIND_PLACE) + code[ours], return_counts=True
        )
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            self._counts[key] += count

    def start(self, key: str, entity: Entity, timestamp_ms: int) -> None:
        """Begins a replay from a snapshot with this entity."""
        if isinstance(entity, Unit) and entity.holder and key != LEADERSHIP:
            self._gain(key, entity.holder, timestamp_ms)
        elif isinstance(entity, ScalableTopic):
            self._reshaped(key, entity.segments, timestamp_ms)

    def session(self, timestamp_ms: int, record: SessionChange) -> None:
        """Counts an accepted record about a session."""
        if record.op is not SessionOp.OPEN:
            self._ended[record.broker] = (record.evidence_ms or timestamp_ms, timestamp_ms)
        if record.op is SessionOp.EXPIRE:
            self._expired.append((timestamp_ms, record.broker))

    def decided(self, record: UnitMove) -> None:
        """Counts an accepted move that the load balancer decided on, or chose the broker of."""
        rule = record.choice[0].rule if record.choice else ""
        self._decided_by[strategy_of(rule) or BUILT_IN] += 1

    def topic(self, timestamp_ms: int, record: TopicChange, changes: tuple[Change, ...]) -> None:
        """Counts an accepted move of a scalable topic."""
        for key, entity in changes:
            if key == record.key:
                parts = entity.segments if isinstance(entity, ScalableTopic) else ()
                self._reshaped(key, parts, timestamp_ms)
        if record.move is TopicMove.BEGIN:
            self._begun[record.topic] = timestamp_ms
        elif record.move is TopicMove.COMMIT and record.topic in self._begun:
            self._reshapes[max(0, timestamp_ms - self._begun.pop(record.topic))] += 1

    def moved(self, timestamp_ms: int, record: UnitMove, changes: tuple[Change, ...]) -> None:
        """Counts an accepted move of a bundle, except ASSIGN and SPLIT, which change no holder."""
        unit, move = record.unit, record.move
        if move is _OWN:
            self._gain(unit, record.actor, timestamp_ms)
            since_ms = self._released.pop(unit, None)
            if since_ms is not None:
                self._hand_overs[max(0, timestamp_ms - since_ms)] += 1
            if unit in self._lost:
                lost = self._lost.pop(unit)
                self._last_signs[max(0, timestamp_ms - lost[0])] += 1
                self._fail_overs[max(0, timestamp_ms - lost[1])] += 1
            return
        if move is _RELEASE:
            if record.broker:
                self._released[unit] = timestamp_ms
        else:
            self._gave_up(timestamp_ms, record, changes)

    def _gave_up(self, timestamp_ms: int, record: UnitMove, changes: tuple[Change, ...]) -> None:
        unit, move = record.unit, record.move
        if move is _RECLAIM or move is _DISCARD:
            holding = self._holding.get(unit)
            if holding is not None and holding[0] in self._ended:
                self._lost[unit] = self._ended[holding[0]]
        if move is not _HAND_OVER:
            self._released.pop(unit, None)
        self._lose(unit, timestamp_ms)
        if move is _SPLIT_COMMIT:
            for child, entity in changes[1:]:
                if isinstance(entity, Unit) and entity.holder:
                    self._gain(child, entity.holder, timestamp_ms)

    def _gain(self, unit: str, broker: str, timestamp_ms: int) -> None:
        if unit in self._holding:
            self._lose(unit, timestamp_ms)
        self._holding[unit] = (broker, timestamp_ms)
        self._held[broker][timestamp_ms // self._bin_ms] += 1
        before = self._owners.get(unit)
        self._owners[unit] = broker
        if before is None or before == broker:
            return
        self._moves[unit] += 1
        gains = self._gains.get(unit)
        if gains is None:
            gains = self._gains[unit] = deque(maxlen=self._flap_moves + 1)
        gains.append(timestamp_ms)
        if len(gains) > self._flap_moves and timestamp_ms - gains[0] <= self._flap_window_ms:
            known = self._flaps.get(unit)
            moves = known.moves + 1 if known else len(gains)
            self._flaps[unit] = Flap(unit, moves, timestamp_ms)

    def _lose(self, unit: str, timestamp_ms: int) -> None:
        holding = self._holding.pop(unit, None)
        if holding is None:
            return
        broker, since_ms = holding
        self._held[broker][timestamp_ms // self._bin_ms] -= 1
        self._span(unit, OwnershipSpan(broker, since_ms, timestamp_ms))

    def _reshaped(self, key: str, parts: Iterable[SegmentInfo], timestamp_ms: int) -> None:
        """Notes that a topic has these segments now, some of them sealed."""
        drawn = self._segments.get(key)
        if drawn is None:
            if len(self._segments) >= TOPICS_DRAWN_MAX:
                return
            drawn = self._segments[key] = {}
        active = {part.segment_id: part for part in parts if part.is_active}
        for number, span in drawn.items():
            if span.until_ms < 0 and number not in active:
                drawn[number] = msgspec.structs.replace(span, until_ms=timestamp_ms)
        for number, part in active.items():
            if number not in drawn and len(drawn) < SEGMENTS_MAX:
                drawn[number] = SegmentSpan(number, part.start, part.end, timestamp_ms, -1)

    def _span(self, unit: str, span: OwnershipSpan) -> None:
        spans = self._spans.get(unit)
        if spans is None:
            if len(self._spans) >= UNITS_DRAWN_MAX:
                return
            spans = self._spans[unit] = []
        if len(spans) < SPANS_MAX:
            spans.append(span)

    def figures(self) -> Figures:
        """Returns all figures, at the end of the log."""
        for unit, (broker, since_ms) in self._holding.items():
            self._span(unit, OwnershipSpan(broker, since_ms, -1))
        flaps = sorted(self._flaps.values(), key=lambda flap: (-flap.moves, flap.unit))
        return Figures(
            dict(self._counts),
            dict(self._hand_overs),
            dict(self._fail_overs),
            dict(self._last_signs),
            dict(self._reshapes),
            {broker: dict(bins) for broker, bins in self._held.items()},
            self._spans,
            {unit: self._moves[unit] for unit in self._spans},
            flaps[:100],
            len(flaps),
            len(self._owners),
            self._expired,
            dict(self._decided_by),
            {key: list(spans.values()) for key, spans in self._segments.items()},
        )


def summed(parts: list[Figures]) -> Figures:
    """Returns the figures of the whole log."""
    counts: Counter[int] = Counter()
    decided: Counter[str] = Counter()
    histograms: tuple[Counter[int], ...] = (Counter(), Counter(), Counter(), Counter())
    held: dict[str, Counter[int]] = {}
    whole = Figures()
    for part in parts:
        counts.update(part.counts)
        for histogram, more in zip(
            histograms,
            (part.hand_overs, part.fail_overs, part.last_signs, part.reshapes),
            strict=True,
        ):
            histogram.update(more)
        for broker, bins in part.held.items():
            held.setdefault(broker, Counter()).update(bins)
        whole.spans = whole.spans | part.spans
        whole.moves = whole.moves | part.moves
        whole.flaps = whole.flaps + part.flaps
        whole.flapping += part.flapping
        whole.units += part.units
        whole.expired = whole.expired or part.expired  # every part sees them all
        whole.segments = whole.segments | part.segments
        decided.update(part.decided_by)
    whole.counts = dict(counts)
    whole.decided_by = dict(sorted(decided.items()))
    whole.hand_overs, whole.fail_overs, whole.last_signs, whole.reshapes = map(dict, histograms)
    whole.held = {broker: dict(bins) for broker, bins in held.items()}
    whole.flaps = sorted(whole.flaps, key=lambda flap: (-flap.moves, flap.unit))[:100]
    return whole


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
