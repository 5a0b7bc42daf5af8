"""Leadership: every epoch has one leader, epochs rise, and only the leader of the hour repairs.

The leader's moves (RECLAIM, DISCARD, OVERRIDE, TOMBSTONE) and the end of another broker's session
are the cluster's only powers beyond an owner's. Each must name the epoch that was current at its
place in the log, and must come from the leader of that epoch.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit, UnitState
from anabranch.core.log.records import Record, SessionChange, SessionOp, UnitMove
from anabranch.core.log.state import Entity
from anabranch.spark_replay.audit.tally import CheckTally

LEADERS_MOVES: Final = (Move.RECLAIM, Move.DISCARD, Move.OVERRIDE, Move.TOMBSTONE)


class Leadership:
    """Follows the leader. It counts records of the whole cluster only in the primary part."""

    def __init__(self, *, primary: bool) -> None:
        self.tally = CheckTally()
        self._primary = primary
        self._leader = ""
        self._epoch = 0  # that of the leader, or of the last one
        self._open: set[str] = set()

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        if key == LEADERSHIP and isinstance(entity, Unit):
            self._epoch = entity.version
            self._leader = entity.broker if entity.state is UnitState.OWNED else ""
        elif isinstance(entity, Session) and entity.open:
            self._open.add(key.partition(":")[2])

    def shared(self, offset: int, record: Record) -> None:
        """Checks an accepted record that concerns the whole cluster."""
        if type(record) is UnitMove:
            self._elected(offset, record)
        elif type(record) is SessionChange:
            self._session(offset, record)

    def used(self, offset: int, record: UnitMove) -> None:
        """Checks an accepted move of a tenant's unit that is the leader's alone."""
        self.tally.examined += 1
        if (record.actor, record.epoch) != (self._leader, self._epoch):
            self.tally.violate(offset, self._powerless(record.unit, record.move.name, record))

    def _elected(self, offset: int, record: UnitMove) -> None:
        faults = []
        if record.version <= self._epoch:
            faults.append(
                f"epoch {record.version} of {record.actor} follows epoch {self._epoch} of "
                f"{self._leader or 'no leader'}"
            )
        if record.move is Move.RESIGN:
            if record.actor != self._leader:
                faults.append(f"{record.actor} resigned, but {self._leader or 'nobody'} led")
        elif self._leader and (record.move is Move.ELECT or self._leader in self._open):
            faults.append(f"{record.actor} became leader while {self._leader} led")
        self._leader = "" if record.move is Move.RESIGN else record.actor
        self._epoch = record.version
        if self._primary:
            self.tally.examined += 1
            for fault in faults:
                self.tally.violate(offset, f"leadership: {fault}")

    def _session(self, offset: int, record: SessionChange) -> None:
        if record.op is SessionOp.OPEN:
            self._open.add(record.broker)
            return
        self._open.discard(record.broker)
        if record.op is not SessionOp.EXPIRE or not self._primary:
            return
        self.tally.examined += 1
        leads = (record.actor, record.epoch) == (self._leader, self._epoch)
        if not leads and record.broker != self._leader:
            self.tally.violate(offset, self._powerless(record.key, "EXPIRE", record))

    def _powerless(self, key: str, what: str, record: UnitMove | SessionChange) -> str:
        leader = f"{self._leader} in epoch {self._epoch}" if self._leader else "nobody"
        return f"{key}: {what} by {record.actor} in epoch {record.epoch}, but {leader} led"
