"""A view at one offset, for the compactor to read while the view goes on."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.channel.snapshots.state_sums import StateSums
from anabranch.core.fold.digests import Digest
from anabranch.projections.examined import ENTITIES
from anabranch.projections.store import Family, Store, family_of


def encode_offset(offset: int) -> bytes:
    """A fixed-size form that sorts."""
    return offset.to_bytes(8, "big")


def decode_offset(value: bytes) -> int:
    """The inverse of `encode_offset`."""
    return int.from_bytes(value, "big")


class FrozenView:
    """A view as of `next_offset`. Read either iterator once, from one thread.

    The cursors are made together, between two batches, and RocksDB keeps what each of them sees.
    """

    def __init__(
        self,
        store: Store,
        horizon: int,
        next_offset: int,
        digest: Digest,
        sums: StateSums,
        timestamp_ms: int,
    ) -> None:
        self.sums = sums
        self._horizon = horizon
        self.next_offset = next_offset
        self.digest = digest
        self.timestamp_ms = timestamp_ms
        self._check = store.check
        self._changed = store.cursor(Family.CHANGED)
        self._entities = {family: store.cursor(family) for family in ENTITIES}

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys in order with their encoded values; None: gone."""
        changed = self._changed
        changed.seek_to_first()
        while changed.valid():
            key: bytes = changed.key()
            if decode_offset(changed.value()) >= self._horizon:  # else clean, and soon forgotten
                rows = self._entities[family_of(key.decode())]
                rows.seek(key)
                if not rows.valid():
                    self._check(rows)
                yield key, rows.value() if rows.valid() and rows.key() == key else None
            changed.next()
        self._check(changed)

    def everything(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yields all rows, values encoded, for a snapshot topic that holds none of them."""
        for rows in self._entities.values():
            rows.seek_to_first()
            while rows.valid():
                yield rows.key(), rows.value()
                rows.next()
            self._check(rows)
