"""Ring coverage: at every offset the live bundles of every namespace tile its hash ring."""

from __future__ import annotations

from anabranch.core.entities.unit import LEADERSHIP, Unit, UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import NamespaceChange, PolicyOp, Record, namespace_key
from anabranch.core.log.state import Change, Entity
from anabranch.core.ring import FULL_RING, HashRange, split_bundle_name, tiles
from anabranch.spark_replay.audit.tally import CheckTally

# Before Python 3.12 an enum's member is looked up by a function; every record meets this one.
_DELETED = UnitState.DELETED


class Coverage:
    """Follows the live ranges of every namespace.

    A change that replaces ranges by others which tile them keeps a tiled ring tiled. So the check
    looks only at the touched ranges, not at the whole ring.
    """

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._live: dict[str, dict[str, HashRange]] = {}  # namespace -> unit -> range
        self._units: set[str] = set()  # every live bundle
        self._broken: set[str] = set()  # namespaces that were reported already

    def start(self, key: str, entity: Entity) -> None:
        """Begins a replay from a snapshot with this entity. `started` follows."""
        if isinstance(entity, Unit) and entity.state is not _DELETED:
            self._change(key, present=True)

    def started(self, offset: int) -> None:
        """Checks the whole snapshot."""
        for namespace in self._live:
            self._whole(offset, namespace)

    def accepted(self, offset: int, record: Record, changes: tuple[Change, ...]) -> None:
        """Checks an accepted record of a tenant."""
        self.tally.examined += 1
        if len(changes) == 1:
            key, entity = changes[0]
            if type(entity) is Unit and entity.state is not _DELETED and key in self._units:
                return
        self._reshaped(offset, record, changes)

    def _reshaped(self, offset: int, record: Record, changes: tuple[Change, ...]) -> None:
        gone: dict[str, list[HashRange]] = {}
        come: dict[str, list[HashRange]] = {}
        for key, entity in changes:
            live = isinstance(entity, Unit) and entity.state is not _DELETED
            if key == LEADERSHIP or (key in self._units) == live:
                continue
            moved = self._change(key, present=live)
            if moved is None:
                self.tally.violate(offset, f"{key}: not the name of a bundle, yet accepted")
                continue
            group = come if live else gone
            group.setdefault(key.rpartition("/")[0], []).append(moved)
        for namespace in gone | come:
            if not self._live.get(namespace) and _deletes(record, namespace):
                continue
            before, after = sorted(gone.get(namespace, [])), come.get(namespace, [])
            if not before or not _replaces(before, after):
                self._whole(offset, namespace)

    def _whole(self, offset: int, namespace: str) -> None:
        live = self._live.get(namespace, {})
        if tiles(live.values(), FULL_RING):
            self._broken.discard(namespace)
        elif namespace not in self._broken:
            self._broken.add(namespace)
            self.tally.violate(offset, f"{namespace}: {_fault(list(live.values()))}")

    def _change(self, key: str, *, present: bool) -> HashRange | None:
        try:
            namespace, part = split_bundle_name(key)
        except InvalidInputError:
            return None
        group = self._live.setdefault(namespace, {})
        if present:
            group[key] = part
            self._units.add(key)
        else:
            del group[key]
            self._units.remove(key)
        return part


def _deletes(record: Record, namespace: str) -> bool:
    is_deletion = isinstance(record, NamespaceChange) and record.op is PolicyOp.DELETE
    return is_deletion and record.key == namespace_key(namespace)


def _replaces(before: list[HashRange], after: list[HashRange]) -> bool:
    whole = HashRange(before[0].lower, before[-1].upper)
    return tiles(before, whole) and tiles(after, whole)


def _fault(live: list[HashRange]) -> str:
    """Returns the first place where the ranges do not tile the ring, in words."""
    edge = FULL_RING.lower
    for part in sorted(live):
        if part.lower > edge:
            return f"no bundle covers 0x{edge:08x}_0x{part.lower:08x}"
        if part.lower < edge:
            return f"more than one bundle covers 0x{part.lower:08x}_0x{min(edge, part.upper):08x}"
        edge = part.upper
    if edge != FULL_RING.upper:
        return f"no bundle covers 0x{edge:08x}_0x{FULL_RING.upper:08x}"
    return "its bundles tile the ring"
