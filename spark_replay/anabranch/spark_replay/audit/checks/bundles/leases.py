"""Leases: at no instant of the log's time may two brokers have acted as owner of one unit.

A broker that gives a unit up by its own words has stopped before that. A broker whose session was
ended by others may act until its lease has lapsed, and may not know better. Its lease ends at the
latest one lease time after its last sign of life came to the log. That sign is the EXPIRE record's
evidence, or a later heartbeat of that session. This heartbeat must still be in the `brokers` topic,
must have come before the lease had lapsed, and must not itself tell that it had. So, in log time:

* EXPIRE comes no earlier than the liveness time-out after that sign;
* the next owner of that broker's unit owns it no earlier than one lease time after that sign;
* after a mere override, the next owner owns the unit only when the former holder has folded it, by
  the OWN's evidence, or when the holder's session is over or new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.records import ClusterSettings, Record, SessionChange, SessionOp, UnitMove
from anabranch.core.log.state import Entity
from anabranch.spark_replay.audit.tally import CheckTally

# (broker, session) -> log timestamps of its heartbeats, ascending
BeatTimes = Mapping[tuple[str, int], Sequence[int]]


class _Past(msgspec.Struct, frozen=True):
    """A session that is over: the reason, its place in the log, and the latest end of its lease."""

    how: str
    offset: int
    lease_end_ms: int


class _Session(msgspec.Struct, frozen=True):
    number: int
    opened_ms: int
    opened_offset: int


class _Override(msgspec.Struct, frozen=True):
    former: str
    offset: int


class Leases:
    """Follows sessions, and the units that were taken from someone."""

    def __init__(self, beats: BeatTimes, tolerance_ms: int, *, primary: bool) -> None:
        self.tally = CheckTally()
        self._beats = beats
        self._tolerance_ms = tolerance_ms
        self._primary = primary
        self._lease_ms = 0
        self._timeout_ms = 0
        self._open: dict[str, _Session] = {}
        self._past: dict[str, _Past] = {}
        self._taken: dict[str, tuple[str, _Past]] = {}  # unit -> former holder, its end
        self._overridden: dict[str, _Override] = {}
        self._leader = ""

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        match entity:
            case Cluster():
                self._lease_ms = entity.lease_ms
                self._timeout_ms = entity.liveness_timeout_ms
            case Session() if entity.open:
                broker = key.partition(":")[2]
                self._open[broker] = _Session(entity.version, entity.since_ms, entity.since_offset)
            case Unit() if key == LEADERSHIP:
                self._leader = entity.broker if entity.state is UnitState.OWNED else ""
            case Unit() if entity.source and not entity.holder:
                self._overridden[key] = _Override(entity.source, entity.since_offset)

    def shared(self, offset: int, timestamp_ms: int, record: Record) -> None:
        """Takes an accepted record that concerns the whole cluster."""
        if type(record) is SessionChange:
            self._session(offset, timestamp_ms, record)
        elif type(record) is UnitMove:
            self._led(offset, timestamp_ms, record)
        elif type(record) is ClusterSettings:
            self._lease_ms = record.lease_ms
            self._timeout_ms = record.liveness_timeout_ms

    def taken(self, offset: int, record: UnitMove, former: str) -> None:
        """Notes that RECLAIM, DISCARD or OVERRIDE has taken a unit from `former`, if anybody held
        it.
        """
        if record.move is Move.OVERRIDE:
            if former:
                self._overridden[record.unit] = _Override(former, offset)
            return
        past = self._past.get(former)
        if past is not None:
            self._taken[record.unit] = (former, past)

    def owned(self, offset: int, timestamp_ms: int, record: UnitMove) -> None:
        """Checks an accepted OWN."""
        unit = record.unit
        if unit in self._overridden:
            self._after_override(offset, timestamp_ms, record)
        if unit in self._taken:
            former, past = self._taken.pop(unit)
            self._not_before(offset, timestamp_ms, unit, record.actor, former, past)

    # --- sessions -----------------------------------------------------------------------

    def _session(self, offset: int, timestamp_ms: int, record: SessionChange) -> None:
        broker = record.broker
        session = self._open.pop(broker, None)
        if record.op is SessionOp.OPEN:
            self._open[broker] = _Session(record.version, timestamp_ms, offset)
            return
        if record.op is SessionOp.CLOSE or session is None:
            # These are its own words, so it had stopped before.
            self._past[broker] = _Past("closed its session", offset, timestamp_ms)
            return
        sign_ms = self._last_sign(broker, session, record.evidence_ms)
        self._past[broker] = _Past("was expired", offset, sign_ms + self._lease_ms)
        if self._primary:
            self.tally.examined += 1
            due_ms = sign_ms + self._timeout_ms - self._tolerance_ms
            if timestamp_ms < due_ms:
                self.tally.violate(
                    offset,
                    f"{record.key}: expired {timestamp_ms - sign_ms} ms after its last sign of "
                    f"life, before the liveness time-out of {self._timeout_ms} ms was over",
                )

    def _last_sign(self, broker: str, session: _Session, evidence_ms: int) -> int:
        """Returns the time of the session's last sign in the log while its lease could hold."""
        sign_ms = max(session.opened_ms, evidence_ms)
        times = self._beats.get((broker, session.number), ())
        for beat_ms in times[bisect_right(times, sign_ms) :]:
            if beat_ms >= sign_ms + self._lease_ms:
                break
            sign_ms = beat_ms
        return sign_ms

    # --- units --------------------------------------------------------------------------

    def _after_override(self, offset: int, timestamp_ms: int, record: UnitMove) -> None:
        told = self._overridden.pop(record.unit)
        if told.former == record.actor:
            return
        session = self._open.get(told.former)
        if session is None:
            past = self._past.get(told.former)
            if past is not None and record.evidence <= told.offset:
                self._not_before(offset, timestamp_ms, record.unit, record.actor, told.former, past)
            return
        self.tally.examined += 1
        if session.opened_offset <= told.offset and record.evidence <= told.offset:
            self.tally.violate(
                offset,
                f"{record.unit}: {record.actor} owned it before {told.former} had seen the "
                f"override at offset {told.offset} (it had reported {record.evidence})",
            )

    def _led(self, offset: int, timestamp_ms: int, record: UnitMove) -> None:
        former, self._leader = self._leader, record.actor
        if record.move is Move.RESIGN:
            self._leader = ""
        past = self._past.get(former)
        if record.move is Move.SUCCEED and past is not None and self._primary:
            self._not_before(offset, timestamp_ms, LEADERSHIP, record.actor, former, past)

    def _not_before(
        self, offset: int, timestamp_ms: int, unit: str, heir: str, former: str, past: _Past
    ) -> None:
        if heir == former:
            return
        self.tally.examined += 1
        early_ms = past.lease_end_ms - self._tolerance_ms - timestamp_ms
        if early_ms > 0:
            self.tally.violate(
                offset,
                f"{unit}: {heir} owned it {past.lease_end_ms - timestamp_ms} ms before the lease "
                f"of {former} had lapsed (it {past.how} at offset {past.offset})",
            )
