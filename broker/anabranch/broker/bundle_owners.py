"""The owners of the parts of a namespace's ring, in a form that answers a look-up in a microsecond.

This is a cache of the view. It reads a namespace from the view at the first request, and then
follows it change by change. Its size is bounded: it drops the namespaces that it read first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from anabranch.core.entities.unit import Unit, UnitState
from anabranch.core.log.state import Change, StateReader
from anabranch.core.ring import split_bundle_name, topic_hash

SLOTS_MAX: Final = 500_000  # of all namespaces together; 16 bytes each


class _Ring:
    """One namespace's live bundles by lower bound; an owner that is not to be named is ""."""

    __slots__ = ("lowers", "owners", "uppers")

    def __init__(self) -> None:
        self.lowers = array("I")
        self.uppers = array("I")
        self.owners: list[str] = []

    def put(self, lower: int, upper: int, owner: str) -> None:
        at = bisect_left(self.lowers, lower)
        if at < len(self.lowers) and self.lowers[at] == lower and self.uppers[at] == upper:
            self.owners[at] = owner
            return
        self.lowers.insert(at, lower)
        self.uppers.insert(at, upper)
        self.owners.insert(at, owner)

    def remove(self, lower: int, upper: int) -> None:
        at = bisect_left(self.lowers, lower)
        if at < len(self.lowers) and self.lowers[at] == lower and self.uppers[at] == upper:
            del self.lowers[at], self.uppers[at], self.owners[at]


def owner_to_name(unit: Unit) -> str:
    """The owner that a look-up may name: one that serves and is not about to stop."""
    return unit.broker if unit.state in (UnitState.OWNED, UnitState.SPLITTING) else ""


class Routes:
    """The cache over one view. Used from the task that owns the view only."""

    def __init__(self, state: StateReader, slots_max: int = SLOTS_MAX) -> None:
        self._state = state
        self._rings: dict[str, _Ring] = {}
        self._slots = 0
        self._slots_max = slots_max

    def owner(self, topic: str, namespace: str) -> str:
        """Broker id of the topic's owner; "" for none, also when there is no such namespace."""
        ring = self._rings.get(namespace) or self._load(namespace)
        if ring is None:
            return ""
        return ring.owners[bisect_right(ring.lowers, topic_hash(topic)) - 1]

    def changed(self, changes: Iterable[Change]) -> None:
        """The view has changed; call it after every batch, before anything is looked up."""
        born: list[tuple[_Ring, int, int, str]] = []
        for key, entity in dict(changes).items():  # the last word on each key
            if key.startswith("namespace:"):
                self._drop(key.partition(":")[2])
            home = key.rpartition("/")[0]
            ring = self._rings.get(home) if "/" in home else None
            if ring is None:
                continue
            _, part = split_bundle_name(key)
            if isinstance(entity, Unit) and entity.state is not UnitState.DELETED:
                born.append((ring, part.lower, part.upper, owner_to_name(entity)))
            else:
                self._slots -= len(ring.lowers)
                ring.remove(part.lower, part.upper)
                self._slots += len(ring.lowers)
        for ring, lower, upper, owner in born:  # after what they may take the place of
            self._slots -= len(ring.lowers)
            ring.put(lower, upper, owner)
            self._slots += len(ring.lowers)

    def _load(self, namespace: str) -> _Ring | None:
        if self._state.namespace(namespace) is None:
            return None
        ring = _Ring()
        for name, unit in self._state.bundles(namespace):
            if unit.state is not UnitState.DELETED:
                _, part = split_bundle_name(name)
                ring.put(part.lower, part.upper, owner_to_name(unit))
        self._rings[namespace] = ring
        self._slots += len(ring.lowers)
        while self._slots > self._slots_max and len(self._rings) > 1:
            self._drop(next(iter(self._rings)))
        return ring

    def _drop(self, namespace: str) -> None:
        ring = self._rings.pop(namespace, None)
        if ring is not None:
            self._slots -= len(ring.lowers)
