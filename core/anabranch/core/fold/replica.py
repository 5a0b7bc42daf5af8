"""A replica: folded state, the offset it stands for, and its digest, kept together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from anabranch.core.fold import digests
from anabranch.core.fold.digests import Digest
from anabranch.core.fold.evolve import UNREADABLE, evolve
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import Record
from anabranch.core.log.state import Change, Entity, IndexedState, StateQueries


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


class MemoryReplica(IndexedState):
    """A replica in memory: the same interface as the RocksDB view, for simulation and tests."""

    def __init__(self) -> None:
        super().__init__()
        self.next_offset = 0
        self.digest = digests.EMPTY
        self.horizon = -1

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

    def apply(self, changes: Iterable[Change]) -> None:
        changes = tuple(changes)
        for key, entity in changes:
            self.digest = digests.replaced(self.digest, key, self.entities.get(key), entity)
        super().apply(changes)

    def load(self, entities: Iterable[tuple[str, Entity]], horizon: int) -> None:
        """Starts from a snapshot instead of from nothing."""
        self.apply(list(entities))
        self.next_offset = self.horizon = horizon
