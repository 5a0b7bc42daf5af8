"""Bulk load of a snapshot: raw values in, and the indexes from one pass over the sorted result.

A snapshot may hold a key several times, and only RocksDB can tell without keeping every key in
memory. Once the rows are sorted, each key is there once. The pass reads the first three fields of a
unit and leaves the rest alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from rocksdict import ColumnFamily, WriteBatch

from anabranch.channel.codec import Horizon, decode_entity, encode_entity, peek_unit
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.snapshots.reader import Batch
from anabranch.channel.snapshots.state_sums import FORM, StateSums
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.entities.unit import UNSETTLED, Move, Unit, UnitState
from anabranch.core.fold import digests
from anabranch.core.log.records import CLUSTER_KEY, topic_key
from anabranch.projections import owners
from anabranch.projections.errors import SnapshotDamagedError, ViewOffsetError
from anabranch.projections.examined import CHUNK, Examined, examine, told
from anabranch.projections.folder import ViewFolder
from anabranch.projections.meta import META_KEY, Meta, encode_meta
from anabranch.projections.store import Family, Row, Store, family_of, new_batch

_CLUSTER: Final = CLUSTER_KEY.encode()
_TOPICS: Final = topic_key("").encode()
_RANGE: Final = len("0x00000000_0xffffffff")
_PREFIX: Final = encode_entity(Unit(UnitState.FREE, "", "", 1, Move.CREATE, 0, 0, ""))[:10]


class Loaded(msgspec.Struct, frozen=True):
    """A loaded generation; `strays`: the snapshot's rows that are no state, in words."""

    meta: Meta
    strays: tuple[str, ...] = ()


def bulk_load(
    folder: ViewFolder, batches: Iterable[Batch], horizon: Callable[[], Horizon], before: Meta
) -> Loaded:
    """Writes the folder's next generation, complete and closed. Raises ViewError.

    The snapshot must have reached the offset of the generation `before`, is of the same log, and
    must be what its writer had.
    """
    folder.discard_unfinished()
    store = Store(folder.unfinished, bulk=True)
    try:
        for pairs in batches:
            _store(store, pairs)
        place = horizon()
        if place.next_offset < before.next_offset:
            raise ViewOffsetError(
                f"the snapshot stands for offset {place.next_offset} of the log, but the view in "
                f"{folder.path} is at {before.next_offset} already: check bootstrap "
                "servers and topic prefix; if the log was made anew, delete the folder"
            )
        store.flush()
        counts, sums, digest, strays = _checked(store, place)
        meta = Meta(
            place.next_offset,
            digest,
            place.next_offset,
            place.timestamp_ms,
            counts,
            before.log_id,
            sums,
        )
        batch = new_batch()
        batch.put(META_KEY, encode_meta(meta), store.families[Family.META])
        store.write(batch)
        store.flush()
    finally:
        store.close()
    return Loaded(meta, strays)


def _checked(
    store: Store, place: Horizon
) -> tuple[dict[str, int], StateSums, str, tuple[str, ...]]:
    """Fills the indexes: units by broker, the sums, the digest, and the strays.

    Raises SnapshotDamagedError unless the stored state is the one that the snapshot's writer had.
    """
    expected = StateSums(place.keys, place.check, place.form)
    try:
        counts, sums = _derive(store)
    except (UnreadableError, NewerSchemaError, UnicodeDecodeError):
        pass  # a stranger's row, or damage: the closer look tells
    else:
        if sums == expected:
            return counts, sums, place.digest, ()
    found = examine(store, drop_strays=True)
    _judge(found, place)
    for family in (Family.UNITS_BY_BROKER, Family.UNSETTLED, Family.RESTLESS):
        _clear(store, family)
    counts, sums = _derive(store)
    strays = tuple(told(found.strays, found.stray_count))
    return counts, sums, digests.to_hex(found.digest), strays


def _judge(found: Examined, place: Horizon) -> None:
    unreadable = [stray for stray in found.strays if stray.unreadable]
    said = f"; {unreadable[0].key!r} cannot be read: {unreadable[0].why}" if unreadable else ""
    if found.sums.keys != place.keys:
        damage = f"it has {found.sums.keys} keys of {place.keys}{said}"
    elif place.form == FORM and found.sums.check != place.check:
        damage = f"the {place.keys} keys do not hold what they held{said}"
    elif unreadable and place.form != FORM:
        damage = said.removeprefix("; ")
    else:
        return
    raise SnapshotDamagedError(
        f"the snapshot for offset {place.next_offset} of the log is not what {place.writer or '?'} "
        f"had when it wrote it: {damage}"
    )


def _clear(store: Store, family: Family) -> None:
    for chunk in store.chunks(family, CHUNK):
        batch = new_batch()
        for key, _ in chunk:
            batch.delete(key, store.families[family])
        store.write(batch)


def _store(store: Store, pairs: Batch) -> None:
    batch = new_batch()
    rest = dict(pairs)  # a key's last value
    # This is where a start-up spends its time: whole batches are looked at by loops in C.
    if None in rest.values() or _CLUSTER in rest or b":" in b"".join(rest):
        for key in [key for key, value in rest.items() if value is None or not _is_unit(key)]:
            # A key that is no text lands among the units, and the closer look finds it there.
            family = store.families[family_of(key.decode(errors="replace"))]
            _put(batch, key, rest.pop(key), family)
    batch.set_default_column_family(store.families[Family.UNITS])
    deque(map(batch.put, rest.keys(), rest.values()), maxlen=0)
    store.write(batch)


def _is_unit(key: bytes) -> bool:
    return b":" not in key and key != _CLUSTER


def _put(batch: WriteBatch, key: bytes, value: bytes | None, family: ColumnFamily) -> None:
    if value is None:
        batch.delete(key, family)
    else:
        batch.put(key, value, family)


def _derive(store: Store) -> tuple[dict[str, int], StateSums]:
    """Fills the indexes; returns the number of each broker's units, and the sums of all rows."""
    counts: Counter[str] = Counter()
    named: owners.Counts = Counter()
    sums = StateSums()
    for chunk in store.chunks(Family.UNITS, CHUNK):
        sums = sums.plus(chunk)
        batch = new_batch()
        _index(store, batch, chunk, counts, named)
        if len(named) > CHUNK:
            # Rows are sorted, so every group but the last one is complete.
            last = owners.group_of(chunk[-1][0].decode())
            done = Counter({row: count for row, count in named.items() if row[1] != last})
            owners.add(store, batch, done)
            for row in done:
                del named[row]
        store.write(batch)
    batch = new_batch()
    owners.add(store, batch, named)
    for family in (Family.POLICIES, Family.TOPICS):
        for key, value in store.rows(family):
            sums = sums.plus(((key, value),))
            topic = decode_entity(value) if key.startswith(_TOPICS) else None
            if isinstance(topic, ScalableTopic) and topic.is_restless:
                batch.put(key.removeprefix(_TOPICS), b"", store.families[Family.RESTLESS])
    store.write(batch)
    return dict(counts), sums


def _index(
    store: Store,
    batch: WriteBatch,
    chunk: list[Row],
    counts: Counter[str],
    named: owners.Counts,
) -> None:
    """Indexes and counts a chunk of units. Most units of a namespace name one of a few brokers and
    no other. So rows that agree in group and in the value's bytes up to the length of `source` are
    counted before they are read.
    """
    try:
        alike = Counter([(key[:-_RANGE], value[: 13 + (value[11] >> 1)]) for key, value in chunk])
    except IndexError:
        raise UnreadableError("a unit in the snapshot is too short") from None
    for (group, head), count in alike.items():
        plain = head[:10] == _PREFIX and head[11] < 128 and head[-1:] == b"\0"
        state, broker, _ = peek_unit(head) if plain else (UnitState.DELETED, "", "")
        if plain and state not in UNSETTLED and group.endswith(b"/"):
            if broker:
                counts[broker] += count
                named[broker, group.decode()] += count
            continue
        for key, value in chunk:
            if value.startswith(head) and key[:-_RANGE] == group:
                _index_one(store, batch, key, value, counts, named)


def _index_one(
    store: Store,
    batch: WriteBatch,
    key: bytes,
    value: bytes,
    counts: Counter[str],
    named: owners.Counts,
) -> None:
    state, broker, source = peek_unit(value)
    if state in UNSETTLED:
        batch.put(key, b"", store.families[Family.UNSETTLED])
    if broker:
        counts[broker] += 1
    for name in owners.names(broker, source):
        named[name, owners.group_of(key.decode())] += 1
