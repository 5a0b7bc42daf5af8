"""Single ownership at every offset: no broker gains a unit before its holder has lost it.

Who holds a unit is derived here from the accepted moves alone, by what each of them says happened:
a holder gives up by its own words (HAND_OVER, FREE, SPLIT_COMMIT), or is given up by the leader's
(RECLAIM, DISCARD once its session is over; OVERRIDE). The fold's table of arrows is not consulted,
and its answer must be the same at every offset.
"""

from __future__ import annotations

from anabranch.core.records import NamespaceChange, Record, SessionChange, SessionOp, UnitMove
from anabranch.core.ring import split_bundle_name
from anabranch.core.state import Change, Entity, Session
from anabranch.core.units import LEADERSHIP, Move, Unit
from anabranch.spark_replay.tally import Tally

_OWN_WORDS = (Move.HAND_OVER, Move.FREE, Move.SPLIT_COMMIT)
_UNHELD = (Move.ASSIGN, Move.TOMBSTONE)
_HELD = (Move.RELEASE, Move.SPLIT)
_TAKEN_AWAY = (Move.RECLAIM, Move.DISCARD)


class Ownership:
    """Follows the holder of every bundle. Leadership has a check of its own."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._holders: dict[str, str] = {}  # unit -> who may act as its owner
        self._open: set[str] = set()  # brokers with an open session

    def start(self, key: str, entity: Entity) -> None:
        """A replay from a snapshot starts with this."""
        if isinstance(entity, Unit) and entity.holder and key != LEADERSHIP:
            self._holders[key] = entity.holder
        elif isinstance(entity, Session) and entity.open:
            self._open.add(key.partition(":")[2])

    def session(self, record: SessionChange) -> None:
        """An accepted record about a broker's session."""
        if record.op is SessionOp.OPEN:
            self._open.add(record.broker)
        else:
            self._open.discard(record.broker)

    def accepted(self, offset: int, record: Record, changes: tuple[Change, ...]) -> None:
        """An accepted record of a tenant."""
        if type(record) is UnitMove:
            self.tally.examined += 1
            self._move(offset, record, changes)
        elif type(record) is NamespaceChange:
            self._namespace(offset, changes)
        holders = self._holders
        for key, entity in changes:
            claimed = entity.holder if type(entity) is Unit else ""
            if holders.get(key, "") != claimed:
                self.tally.violate(
                    offset,
                    f"{key}: by its accepted moves {holders.get(key) or 'nobody'} holds it, by "
                    f"the fold {claimed or 'nobody'}",
                )
                holders[key] = claimed  # go on from what the cluster believed

    def _move(self, offset: int, record: UnitMove, changes: tuple[Change, ...]) -> None:
        unit, move, actor = record.unit, record.move, record.actor
        holder = self._holders.get(unit, "")
        if move is Move.OWN:
            if holder:
                self._two(offset, unit, holder, actor)
            self._holders[unit] = actor
        elif move in _OWN_WORDS:
            if actor != holder:
                text = f"{unit}: {actor} gave it up, but {holder or 'nobody'} held it"
                self.tally.violate(offset, text)
            self._holders.pop(unit, None)
            if move is Move.SPLIT_COMMIT:
                self._children(offset, unit, actor, changes)
        elif move in _TAKEN_AWAY:
            if holder in self._open:
                self.tally.violate(
                    offset, f"{unit}: taken from {holder}, whose session is open ({move.name})"
                )
            self._holders.pop(unit, None)
        elif move is Move.OVERRIDE:
            self._holders.pop(unit, None)
        elif holder and move in _UNHELD:
            self._two(offset, unit, holder, record.broker or actor)
        elif not holder and move in _HELD:
            self.tally.violate(offset, f"{unit}: {move.name} accepted while nobody held it")

    def _children(self, offset: int, parent: str, owner: str, changes: tuple[Change, ...]) -> None:
        home, _ = split_bundle_name(parent)
        for key, entity in changes:
            if key == parent or entity is None or not key.startswith(f"{home}/"):
                continue
            former = self._holders.get(key, "")
            if former:
                self._two(offset, key, former, owner)
            self._holders[key] = owner

    def _namespace(self, offset: int, changes: tuple[Change, ...]) -> None:
        for key, _ in changes:
            holder = self._holders.pop(key, "")
            if holder:
                self.tally.violate(offset, f"{key}: deleted or made anew while {holder} held it")

    def _two(self, offset: int, unit: str, holder: str, other: str) -> None:
        self.tally.violate(offset, f"{unit}: given to {other} while {holder} still held it")
