"""The log folded into RocksDB: a replica that outlives its process.

A batch of entries, the index updates, the digest, the counts and the next offset go into one write
batch. So a view is always exactly at some offset. A crash loses at most the last batches, which are
folded again. Within a batch a key is hashed, encoded and put once, in its last state.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

from rocksdict import WriteBatch

from anabranch.channel.codec import Horizon, encode_entity
from anabranch.channel.log.entries import Entry
from anabranch.channel.snapshots.reader import Batch
from anabranch.channel.snapshots.state_sums import StateSums, row_check
from anabranch.core.entities.cluster import Cluster
from anabranch.core.entities.session import Session
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import LEADERSHIP, UNSETTLED, Unit
from anabranch.core.fold import digests
from anabranch.core.fold.digests import Digest
from anabranch.core.fold.evolve import UNREADABLE, evolve
from anabranch.core.log.outcome import Folded
from anabranch.core.log.state import Entity
from anabranch.projections import owners
from anabranch.projections.bulk import bulk_load
from anabranch.projections.errors import ViewError, ViewLogError, ViewOffsetError
from anabranch.projections.examined import verified_meta
from anabranch.projections.folder import ViewFolder
from anabranch.projections.frozen import FrozenView, decode_offset, encode_offset
from anabranch.projections.meta import META_KEY, Meta, encode_meta
from anabranch.projections.reader import SEGMENTS_MAX, StoredState
from anabranch.projections.store import Family, Store, family_of, new_batch

_CHANGES_MAX: Final = 10_000  # keys after which a batch is written: folding must not stop
_FORGET_MAX: Final = 10_000  # keys looked at when a horizon is reached
_FORGET_SOME: Final = 500  # and with each batch after that, until all are forgotten


def _weight(key: str, name: bytes, entity: Entity) -> tuple[int, int]:
    """Returns what a row adds to the digest and to the sums."""
    return digests.entity_hash(key, entity), row_check(name, encode_entity(entity))


class View(StoredState):
    """`core.fold.replica.Replica` on RocksDB, with the fold.

    Call it from one thread, but for `freeze`'s result. After an error of a write it refuses to go
    on, because memory may be ahead of the store.
    """

    def __init__(self, folder: ViewFolder) -> None:
        self._folder = folder
        self.strays: tuple[str, ...] = ()  # the snapshot's rows that are no state, in words
        self._failed = False
        self._loaded: Meta | None = None
        super().__init__(Store(folder.current))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens or creates the view in a folder. Raises ViewError."""
        folder = ViewFolder(path)
        try:
            return cls(folder)
        except BaseException:
            folder.close()
            raise

    @staticmethod
    def put_aside(path: Path) -> Path:
        """Keeps a damaged view, which no process has open, beside its folder; returns its path."""
        folder = ViewFolder(path)
        try:
            return folder.put_aside()
        finally:
            folder.close()

    def _attach(self, store: Store) -> None:
        try:
            meta = verified_meta(store, self._folder.path, self._loaded)
            super()._attach(store)
        except BaseException:
            store.close()
            raise
        self.next_offset = meta.next_offset  # the first WAL offset that is not folded yet
        self.digest = Digest(int(meta.digest, 16))
        self.horizon = meta.horizon  # the next offset of the newest snapshot known; -1 for none
        self.timestamp_ms = meta.timestamp_ms  # the log's, of the last entry folded; 0 for none
        self.log_id = meta.log_id  # Kafka's id of the folded topic; "" if it was not told yet
        self._counts = dict(meta.counts)
        self._sums = meta.sums
        # The place to go on forgetting clean keys: an earlier process may not have reached the end.
        self._forget_from: bytes | None = b"" if meta.horizon >= 0 else None
        self._forget_again = False

    def close(self) -> None:
        """Lets go of the folder. Calling it again does nothing."""
        try:
            self._store.close()
        finally:
            self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- the place in the log -----------------------------------------------------------

    @property
    def path(self) -> Path:
        return self._folder.path

    def belong_to(self, log_id: str, log: str) -> None:
        """The log that is folded from now on: an empty view adopts it, one that holds something
        must be of the same. Raises ViewLogError; `log` is the topic's name for its message.
        """
        self._check()
        if log_id == self.log_id:
            return
        if self.next_offset:
            raise ViewLogError(self.path, self.log_id, log_id, log)
        self.log_id = log_id
        self._write_meta()

    # --- the fold -----------------------------------------------------------------------

    def read_batch(self, entries: Sequence[Entry]) -> list[Folded]:
        """Folds entries in order and returns once they are stored. Gaps are allowed.

        After an entry that changed many keys it leaves the rest. A caller that gives it the entries
        from `next_offset` on, until there are none, can do something else in between. Entries that
        were folded already are left out, so a repeated delivery changes nothing. Raises ViewError
        or NewerSchemaError with nothing of the batch stored, after which the view must be opened
        again.
        """
        self._check()
        folded: list[Folded] = []
        touched: dict[str, int] = {}
        next_offset = self.next_offset
        # Until the write, memory is ahead of the store: any error ends the view.
        self._failed = True
        for entry in entries:
            offset = entry.offset
            if offset < next_offset:
                continue
            record = entry.record()
            if record is None:
                outcome = UNREADABLE
            else:
                outcome = evolve(self, record, offset, entry.timestamp_ms)
                for key, after in outcome.changes:
                    self._change(key, after)
                    touched[key] = offset
            folded.append(Folded(offset, entry.timestamp_ms, record, outcome))
            next_offset = offset + 1
            if len(touched) >= _CHANGES_MAX or self._segments >= 2 * SEGMENTS_MAX:
                break
        if folded:
            self.next_offset = next_offset
            self.timestamp_ms = max(self.timestamp_ms, folded[-1].timestamp_ms)
            self._write(touched)
        self._failed = False
        self._trim()
        self._forget(_FORGET_SOME)
        return folded

    def _check(self) -> None:
        if self._failed:
            raise ViewError(
                f"the view in {self.path} could not store what was folded; start the node again: "
                "it goes on from the last batch that was stored"
            )

    def _change(self, key: str, after: Entity | None) -> None:
        if key not in self._before:
            before = self._before[key] = self.entity(key)
            if before is None and isinstance(after, Unit):
                insort(self._born.setdefault(key.rpartition("/")[0], []), key)
        self._recent[key] = after
        if isinstance(after, Unit):
            if key == LEADERSHIP:
                self._leadership = after
        elif isinstance(after, Session):
            self._sessions[key.partition(":")[2]] = after
        elif isinstance(after, Cluster):
            self._cluster = after
        elif isinstance(after, ScalableTopic):
            self._weigh(key, after)

    def _write(self, touched: dict[str, int]) -> None:
        batch = new_batch()
        families = self._store.families
        hashes = self._hashes
        digest = int(self.digest)
        keys, check = self._sums.keys, self._sums.check
        named: owners.Changes = Counter()
        changed, units = families[Family.CHANGED], families[Family.UNITS]
        unsettled = families[Family.UNSETTLED]
        for key, before in self._before.items():
            after = self._recent[key]
            name = key.encode()
            family = families[family_of(key)]
            if before is not None:
                hashed, summed = hashes.get(key) or _weight(key, name, before)
                hashes.pop(key, None)
                digest -= hashed
                check -= summed
                keys -= 1
            if after is not None:
                value = encode_entity(after)
                hashed, summed = digests.entity_hash(key, after), row_check(name, value)
                hashes[key] = (hashed, summed)
                digest += hashed
                check += summed
                keys += 1
                batch.put(name, value, family)
            elif before is not None:
                batch.delete(name, family)
            if family is units:
                old, new = cast(Unit | None, before), cast(Unit | None, after)
                was = old is not None and old.state in UNSETTLED
                if (new is not None and new.state in UNSETTLED) != was:
                    if was:
                        batch.delete(name, unsettled)
                    else:
                        batch.put(name, b"", unsettled)
                owners.note(named, key, old, new)
            elif ScalableTopic in (type(before), type(after)):
                self._note_restless(batch, key, before, after)
            # Also when it came and went: a snapshot of another node may hold what was in between.
            batch.put(name, encode_offset(touched[key]), changed)
        owners.adjust(self._store, batch, named)
        self._count(named)
        self.digest = Digest(digest % (1 << 128))
        self._sums = StateSums(keys, check)
        batch.put(META_KEY, encode_meta(self._meta()), families[Family.META])
        self._store.write(batch)
        self._before.clear()
        self._born.clear()

    def _note_restless(
        self, batch: WriteBatch, key: str, before: Entity | None, after: Entity | None
    ) -> None:
        family = self._store.families[Family.RESTLESS]
        name = key.partition(":")[2].encode()
        was, now = (isinstance(e, ScalableTopic) and e.is_restless for e in (before, after))
        if now and not was:
            batch.put(name, b"", family)
        elif was and not now:
            batch.delete(name, family)

    def _count(self, named: owners.Changes) -> None:
        counts = self._counts
        for (broker, _, _), change in named.items():
            counts[broker] = counts.get(broker, 0) + change
        counts.pop("", None)
        for broker in [broker for broker, count in counts.items() if not count]:
            del counts[broker]

    def _meta(self) -> Meta:
        return Meta(
            self.next_offset,
            digests.to_hex(self.digest),
            self.horizon,
            self.timestamp_ms,
            self._counts,
            self.log_id,
            self._sums,
        )

    def _write_meta(self) -> None:
        batch = new_batch()
        batch.put(META_KEY, encode_meta(self._meta()), self._store.families[Family.META])
        self._store.write(batch)

    # --- snapshots ----------------------------------------------------------------------

    def load_snapshot(self, batches: Iterable[Batch], horizon: Callable[[], Horizon]) -> None:
        """Replaces everything by a snapshot; a later pair of a key replaces an earlier one.

        `horizon` is asked after the last batch. The stored state must be the one that the horizon's
        writer had. A stranger's rows, which are no state, are left out and named in `strays`. A
        crash in the middle leaves the view as it was. Raises ViewError, also if the snapshot is
        older than the view.
        """
        self._check()
        loaded = bulk_load(self._folder, batches, horizon, self._meta())
        self._store.close()
        self._failed = True
        self._folder.replace()
        self._loaded = loaded.meta  # a state just checked needs no second look
        self._attach(Store(self._folder.current))
        self._loaded = None
        self._failed = False
        self.strays = loaded.strays
        if loaded.meta != self._meta():
            place = loaded.meta.next_offset
            raise ViewError(f"the view in {self.path} did not keep its place {place}")

    def freeze(self) -> FrozenView:
        """The state at this offset: the changes since the horizon. Any thread may read it."""
        return FrozenView(
            self._store,
            self.horizon,
            self.next_offset,
            self.digest,
            self._sums,
            self.timestamp_ms,
        )

    def horizon_reached(self, next_offset: int) -> None:
        """A snapshot that stands for this offset is committed: its keys are clean again.

        An older horizon than the known one changes nothing. Raises ViewOffsetError for a horizon
        that this view has not reached itself.
        """
        self._check()
        if next_offset <= self.horizon:
            return
        if next_offset > self.next_offset:
            raise ViewOffsetError(
                f"the snapshot at offset {next_offset} is ahead of the view in {self.path}, which "
                f"has folded the log up to {self.next_offset}: read the log first"
            )
        self.horizon = next_offset
        self._write_meta()
        self._forget_again = self._forget_from is not None
        self._forget_from = self._forget_from or b""
        self._forget(_FORGET_MAX)

    def _forget(self, limit: int) -> None:
        """Removes keys that are clean, some at a time; no reader is told of them any more."""
        if self._forget_from is None:
            return
        rows = self._store.slice(Family.CHANGED, self._forget_from, limit)
        batch = new_batch()
        for name, offset in rows:
            if decode_offset(offset) < self.horizon:
                batch.delete(name, self._store.families[Family.CHANGED])
        self._store.write(batch)
        if len(rows) == limit:
            self._forget_from = rows[-1][0] + b"\0"
        else:
            self._forget_from = b"" if self._forget_again else None
            self._forget_again = False
