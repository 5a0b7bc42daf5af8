"""Single ownership at every offset: no broker gains a unit before its holder has lost it.

This module derives the holder of a unit from the accepted moves alone. A holder gives a unit up by
its own words: HAND_OVER, FREE, SPLIT_COMMIT. Or the leader takes it by RECLAIM or DISCARD once the
holder's session is over, or by OVERRIDE. The module does not consult the fold's table of arrows,
and the fold's holder must be the same at every offset.
"""

from __future__ import annotations

from anabranch.core.entities.session import Session
from anabranch.core.entities.unit import LEADERSHIP, Move, Unit
from anabranch.core.log.records import SessionChange, SessionOp, UnitMove
from anabranch.core.log.state import Change, Entity
from anabranch.core.ring import split_bundle_name
from anabranch.spark_replay.audit.tally import CheckTally

# Before Python 3.12 an enum's member is looked up by a function; every record meets these.
_ASSIGN, _OWN, _RELEASE, _SPLIT = Move.ASSIGN, Move.OWN, Move.RELEASE, Move.SPLIT
_TOMBSTONE, _SPLIT_COMMIT = Move.TOMBSTONE, Move.SPLIT_COMMIT
_OWN_WORDS = (Move.HAND_OVER, Move.FREE, Move.SPLIT_COMMIT)
_TAKEN_AWAY = (Move.RECLAIM, Move.DISCARD)


class Ownership:
    """Follows the holder of every bundle. Leadership has a check of its own."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._holders: dict[str, str] = {}  # unit -> who may act as its owner
        self._open: set[str] = set()  # brokers with an open session

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity."""
        if isinstance(entity, Unit) and entity.holder and key != LEADERSHIP:
            self._holders[key] = entity.holder
        elif isinstance(entity, Session) and entity.open:
            self._open.add(key.partition(":")[2])

    def session(self, record: SessionChange) -> None:
        """Takes an accepted record about a broker's session."""
        if record.op is SessionOp.OPEN:
            self._open.add(record.broker)
        else:
            self._open.discard(record.broker)

    def moved(self, offset: int, record: UnitMove, changes: tuple[Change, ...]) -> None:
        """Checks an accepted move of a bundle."""
        self.tally.examined += 1
        holders = self._holders
        unit, move = record.unit, record.move
        holder = holders.get(unit, "")
        if move is _OWN:
            if holder:
                self._two(offset, unit, holder, record.actor)
            holders[unit] = record.actor
        elif move is _RELEASE or move is _SPLIT:
            if not holder:
                self.tally.violate(offset, f"{unit}: {move.name} accepted while nobody held it")
        elif move is _ASSIGN or move is _TOMBSTONE:
            if holder:
                self._two(offset, unit, holder, record.broker or record.actor)
        else:
            self._lost(offset, record, holder)
            if move is _SPLIT_COMMIT:
                self._children(offset, unit, record.actor, changes)
        for key, entity in changes:
            claimed = _claimed(entity)
            if holders.get(key, "") != claimed:
                self._differs(offset, key, claimed)

    def reshaped(self, offset: int, changes: tuple[Change, ...]) -> None:
        """Takes the creation or deletion of a namespace."""
        for key, entity in changes:
            holder = self._holders.pop(key, None)
            if holder:
                self.tally.violate(offset, f"{key}: deleted or made anew while {holder} held it")
            if _claimed(entity):
                self._differs(offset, key, _claimed(entity))

    def _differs(self, offset: int, key: str, claimed: str) -> None:
        derived = self._holders.get(key)
        self.tally.violate(
            offset,
            f"{key}: by its accepted moves {derived or 'nobody'} holds it, by the fold "
            f"{claimed or 'nobody'}",
        )
        self._holders[key] = claimed  # go on from what the cluster believed

    def used(self, offset: int, key: str, bundle: str, actor: str) -> None:
        """Checks an accepted record that only the owner of this bundle may write."""
        self.tally.examined += 1
        holder = self._holders.get(bundle)
        if actor != holder:
            text = f"{key}: changed by {actor}, but {holder or 'nobody'} held its bundle {bundle}"
            self.tally.violate(offset, text)

    def holder(self, unit: str) -> str:
        """Returns the broker that may act as the unit's owner, "" for none."""
        return self._holders.get(unit, "")

    def _lost(self, offset: int, record: UnitMove, holder: str) -> None:
        unit, move = record.unit, record.move
        if move in _OWN_WORDS:
            if record.actor != holder:
                text = f"{unit}: {record.actor} gave it up, but {holder or 'nobody'} held it"
                self.tally.violate(offset, text)
        elif move in _TAKEN_AWAY and holder in self._open:
            self.tally.violate(
                offset, f"{unit}: taken from {holder}, whose session is open ({move.name})"
            )
        self._holders.pop(unit, None)

    def _children(self, offset: int, parent: str, owner: str, changes: tuple[Change, ...]) -> None:
        home, _ = split_bundle_name(parent)
        for key, entity in changes:
            if key == parent or entity is None or not key.startswith(f"{home}/"):
                continue
            former = self._holders.get(key)
            if former:
                self._two(offset, key, former, owner)
            self._holders[key] = owner

    def _two(self, offset: int, unit: str, holder: str, other: str) -> None:
        self.tally.violate(offset, f"{unit}: given to {other} while {holder} still held it")


def _claimed(entity: Entity | None) -> str:
    """Returns the broker that may act by the fold's state."""
    return entity.holder if type(entity) is Unit else ""
