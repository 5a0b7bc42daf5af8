"""A replica: folded state, the offset it stands for, and its digest, kept together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Protocol

from anabranch.core.entities.permission import PERMISSIONS_PREFIX, Permission
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import UNSETTLED, Unit
from anabranch.core.fold import digests
from anabranch.core.fold.digests import Digest
from anabranch.core.fold.evolve import UNREADABLE, evolve
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.log.state import Change, Entity, FoldedState, StateQueries


class Replica(StateQueries, Protocol):
    """The input of a node's decisions: the state and its place in the log."""

    @property
    def next_offset(self) -> int:
        """The first WAL offset that is not folded yet."""
        ...

    @property
    def digest(self) -> Digest: ...
    @property
    def horizon(self) -> int:
        """The next offset of the newest snapshot known; -1 for none."""
        ...


class MemoryReplica(FoldedState, StateQueries):
    """A replica in memory: the same interface as the RocksDB view, for simulation and tests."""

    def __init__(self) -> None:
        super().__init__()
        self.next_offset = 0
        self.digest = digests.EMPTY
        self.horizon = -1
        self._by_broker: defaultdict[str, dict[str, Unit]] = defaultdict(dict)
        self._unsettled: dict[str, Unit] = {}
        self._restless: set[str] = set()  # names, without the head of their keys

    def read(self, record: Record | None, offset: int, timestamp_ms: int) -> Folded:
        """Folds one entry (None: unreadable). Entries must come in order; gaps are allowed.

        Raises ValueError for an offset that was folded already.
        """
        if offset < self.next_offset:
            raise ValueError(f"offset {offset} was folded already; next is {self.next_offset}")
        outcome = UNREADABLE if record is None else evolve(self, record, offset, timestamp_ms)
        self.apply(outcome.changes)
        self.next_offset = offset + 1
        return Folded(offset, timestamp_ms, record, outcome)

    def load(self, entities: Iterable[tuple[str, Entity]], horizon: int) -> None:
        """Starts from a snapshot instead of from nothing."""
        self.apply(list(entities))
        self.next_offset = self.horizon = horizon

    def apply(self, changes: Iterable[Change]) -> None:
        changes = tuple(changes)
        for key, entity in changes:
            before = self.entities.get(key)
            self.digest = digests.replaced(self.digest, key, before, entity)
            if isinstance(before, Unit):
                for broker in (before.broker, before.source):
                    self._by_broker[broker].pop(key, None)
                self._unsettled.pop(key, None)
            if isinstance(entity, Unit):
                for broker in (entity.broker, entity.source):
                    self._by_broker[broker][key] = entity
                if entity.state in UNSETTLED:
                    self._unsettled[key] = entity
            if isinstance(entity, ScalableTopic) and entity.is_restless:
                self._restless.add(key.partition(":")[2])
            elif isinstance(before, ScalableTopic):
                self._restless.discard(key.partition(":")[2])
        super().apply(changes)

    def units_of(self, broker: str) -> list[tuple[str, Unit]]:
        return sorted(self._by_broker[broker].items())

    def unit_count(self, broker: str) -> int:
        return sum(unit.broker == broker for unit in self._by_broker[broker].values())

    def unsettled(self) -> list[tuple[str, Unit]]:
        return sorted(self._unsettled.items())

    def grants(self) -> Iterator[tuple[str, str, Permission]]:
        for head in [head for head in self._families if head.startswith(PERMISSIONS_PREFIX)]:
            scope = head.removeprefix(PERMISSIONS_PREFIX).removesuffix(":")
            for role, found in self.permissions(scope):
                yield scope, role, found

    def restless_topics(self) -> Iterator[str]:
        yield from sorted(self._restless)
