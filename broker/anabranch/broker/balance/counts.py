"""`BalanceCounts`: the results of unloads, splits and assignments, as the log tells them.

The node that proposed an unload or a split counts it once it is through. The leader counts a round
that decided nothing at once. Times are those of the log's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Histogram

from anabranch.core.balance.counters import BalanceResult, SplitReason, UnloadReason
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Cause, SessionChange, SessionOp, UnitMove
from anabranch.core.log.verdicts import Verdict

_UNLOADS: Final[Mapping[Cause, UnloadReason]] = {
    Cause.OVERLOADED: UnloadReason.OVERLOADED,
    Cause.UNDERLOADED: UnloadReason.UNDERLOADED,
    Cause.OPERATOR: UnloadReason.ADMIN,
}
_SPLITS: Final[Mapping[Cause, SplitReason]] = {
    Cause.TOPICS: SplitReason.TOPICS,
    Cause.SESSIONS: SplitReason.SESSIONS,
    Cause.MSG_RATE: SplitReason.MSG_RATE,
    Cause.BANDWIDTH: SplitReason.BANDWIDTH,
    Cause.OPERATOR: SplitReason.ADMIN,
}
_EVENTS: Final[Mapping[Move, str]] = {
    Move.ASSIGN: "Assign",
    Move.SPLIT: "Split",
    Move.RELEASE: "Unload",
    Move.OVERRIDE: "Override",
}
EVENTS: Final = tuple(_EVENTS.values())
_STATES: Final[Mapping[UnitState, str]] = {
    state: state.name.capitalize() for state in UnitState if state is not UnitState.INIT
}
STATES: Final = tuple(_STATES.values())
_REPAIRS: Final = (Move.RECLAIM, Move.DISCARD, Move.OVERRIDE)
_CLEAN_UPS: Final = (Move.RECLAIM, Move.DISCARD, Move.TOMBSTONE)
_ROUNDS_KEPT: Final = 60  # an unload of an older one is stuck, and will be overridden
_BUCKETS_MS: Final = (1, 10, 100, 200, 1000)


class _Unloading(msgspec.Struct):
    """A bundle that its owner is to give up; `reason`: None where another node asked for it."""

    source: str
    began_ms: int
    reason: UnloadReason | None
    round_number: int


class BalanceCounts:
    """One node's. `folded` is called with all that is read, in order."""

    def __init__(self, broker: str, registry: CollectorRegistry) -> None:
        self.unloads: Counter[tuple[BalanceResult, UnloadReason]] = Counter()
        self.splits: Counter[tuple[BalanceResult, SplitReason]] = Counter()
        self.brokers_unloaded = 0
        self.assigned = 0
        self.deviation: tuple[float, float] | None = None  # average and deviation of the last round
        self.published: Counter[tuple[str, str]] = Counter()  # event, Total or Failure
        self.read: Counter[tuple[str, str]] = Counter()  # state, Total or Failure
        self.expiries: Counter[str] = Counter()
        self.orphans = 0
        self.tombstones = 0
        self.failed_clean_ups = 0
        self.session_event: tuple[bool, int] = (False, 0)  # whether it is open, and since when
        self._me = broker
        self._round = 0
        self._sources: set[tuple[int, str]] = set()  # counted, with their rounds
        self._unloading: dict[str, _Unloading] = {}
        self._assigning: dict[str, int] = {}
        self._splitting: dict[str, SplitReason] = {}
        labels = {"broker": broker.rpartition(":")[0], "metric": "bundleUnloading"}

        def latency(name: str, text: str) -> Histogram:
            made = Histogram(name, text, list(labels), buckets=_BUCKETS_MS, registry=registry)
            return made.labels(**labels)

        self.unload_ms = latency(
            "brk_lb_unload_latency", "Milliseconds until a bundle of this node had its next owner."
        )
        self.release_ms = latency(
            "brk_lb_release_latency", "Milliseconds until this node had given a bundle up."
        )
        self.disconnect_ms = latency(
            "brk_lb_disconnect_latency", "Milliseconds until this node served nothing of a bundle."
        )
        self.assign_ms = latency(
            "brk_lb_assign_latency", "Milliseconds until this node owned an assigned bundle."
        )

    def shed(
        self,
        counted: tuple[BalanceResult, UnloadReason] | None,
        average: float | None,
        deviation: float | None,
    ) -> None:
        """Ends the leader's round: counts its result, and keeps the average and deviation of the
        loads.
        """
        self._round += 1
        oldest = self._round - _ROUNDS_KEPT
        self._sources = {each for each in self._sources if each[0] > oldest}
        if counted is not None:
            self.unloads[counted] += 1
        if average is not None and deviation is not None:
            self.deviation = (average, deviation)

    def split_failed(self) -> None:
        """A bundle over a limit could not be split."""
        self.splits[BalanceResult.FAILURE, SplitReason.UNKNOWN] += 1

    def disconnected(self, seconds: float) -> None:
        """A bundle that this node was to close is closed."""
        self.disconnect_ms.observe(seconds * 1000)

    def folded(self, entries: Sequence[Folded]) -> None:
        """Entries of the log were read."""
        for entry in entries:
            record = entry.record
            accepted = entry.outcome.verdict is Verdict.ACCEPTED
            if isinstance(record, SessionChange):
                self._session(record, entry, accepted=accepted)
            elif isinstance(record, UnitMove) and record.unit != LEADERSHIP:
                if record.actor == self._me:
                    self._own(record, accepted=accepted)
                if accepted:
                    self._accepted(record, entry)
                else:
                    self.read[_EVENT_STATE[record.move], "Failure"] += 1

    def _session(self, record: SessionChange, entry: Folded, *, accepted: bool) -> None:
        if record.broker == self._me and accepted:
            self.session_event = (record.op is SessionOp.OPEN, entry.timestamp_ms)
        if record.op is SessionOp.EXPIRE and record.actor == self._me:
            self.expiries["Schedule"] += 1
            late = entry.outcome.verdict is Verdict.STALE_VERSION
            self.expiries["Success" if accepted else "Skip" if late else "Cancel"] += 1

    def _own(self, record: UnitMove, *, accepted: bool) -> None:
        event = _EVENTS.get(record.move)
        if event is not None:
            self.published[event, "Total"] += 1
            self.published[event, "Failure"] += not accepted
        if record.move is Move.ASSIGN and accepted:
            self.assigned += 1
        if record.move is Move.RELEASE and record.cause in _UNLOADS and not accepted:
            self.unloads[BalanceResult.FAILURE, UnloadReason.UNKNOWN] += 1
        if record.move is Move.SPLIT and record.cause in _SPLITS and not accepted:
            self.split_failed()
        if record.move in _CLEAN_UPS and not accepted:
            self.failed_clean_ups += 1
        self.orphans += accepted and record.move in (Move.RECLAIM, Move.DISCARD)
        self.tombstones += accepted and record.move is Move.TOMBSTONE

    def _accepted(self, record: UnitMove, entry: Folded) -> None:
        mine = record.actor == self._me
        at_ms = entry.timestamp_ms
        for name, unit in entry.outcome.changes:
            if not isinstance(unit, Unit):
                continue
            self.read[_STATES[unit.state], "Total"] += 1
            if record.move is Move.RELEASE:
                reason = _UNLOADS.get(record.cause) if mine else None
                self._unloading[name] = _Unloading(unit.source, at_ms, reason, self._round)
            if unit.state is UnitState.ASSIGNING:
                self._assigning[name] = at_ms
            if unit.state is UnitState.OWNED and unit.broker == self._me:
                began_ms = self._assigning.pop(name, None)
                if began_ms is not None and record.move is Move.OWN:
                    self.assign_ms.observe(max(0, at_ms - began_ms))
            elif unit.state is not UnitState.ASSIGNING:
                self._assigning.pop(name, None)
        if record.move is Move.SPLIT and mine and record.cause in _SPLITS:
            self._splitting[record.unit] = _SPLITS[record.cause]
        elif record.unit in self._splitting:
            why = self._splitting.pop(record.unit)
            if record.move is Move.SPLIT_COMMIT:
                self.splits[BalanceResult.SUCCESS, why] += 1
            else:
                self.split_failed()
        self._unloaded(record, at_ms)

    def _unloaded(self, record: UnitMove, at_ms: int) -> None:
        """A step of a bundle that is given up, if it is one."""
        under_way = self._unloading.get(record.unit)
        if under_way is None or record.move is Move.RELEASE:
            return
        took_ms = max(0, at_ms - under_way.began_ms)
        from_here = under_way.source == self._me
        if record.move in (Move.HAND_OVER, Move.FREE) and from_here:
            self.release_ms.observe(took_ms)
        if record.move is Move.HAND_OVER:
            return
        del self._unloading[record.unit]
        if record.move in _REPAIRS:
            if under_way.reason is not None:
                self.unloads[BalanceResult.FAILURE, UnloadReason.UNKNOWN] += 1
            return
        if from_here:
            self.unload_ms.observe(took_ms)
        if under_way.reason is not None:
            self.unloads[BalanceResult.SUCCESS, under_way.reason] += 1
            self._count_source(under_way)

    def _count_source(self, done: _Unloading) -> None:
        """Each broker of a round is counted once, and each request of an operator."""
        source = (done.round_number, done.source)
        if done.reason is UnloadReason.ADMIN:
            self.brokers_unloaded += 1
        elif source not in self._sources:
            self._sources.add(source)
            self.brokers_unloaded += 1


_EVENT_STATE: Final[Mapping[Move, str]] = {
    **dict.fromkeys((Move.CREATE, Move.FREE, Move.DISCARD, Move.RESIGN), "Free"),
    **dict.fromkeys((Move.ASSIGN, Move.HAND_OVER, Move.RECLAIM, Move.OVERRIDE), "Assigning"),
    **dict.fromkeys((Move.OWN, Move.ELECT, Move.SUCCEED), "Owned"),
    **dict.fromkeys((Move.SPLIT_COMMIT, Move.TOMBSTONE), "Deleted"),
    Move.RELEASE: "Releasing",
    Move.SPLIT: "Splitting",
}
"""The state that a rejected move would have led to."""
