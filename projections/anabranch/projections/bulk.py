"""Bulk load of a snapshot: raw values in, and the indexes from one pass over the sorted result.

A snapshot may hold a key several times, and nobody but RocksDB could tell without keeping every
key in memory; once the rows are sorted, each key is there once. The pass reads the first three
fields of a unit and leaves the rest alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

from rocksdict import ColumnFamily, WriteBatch

from anabranch.channel.bootstrap import Batch
from anabranch.channel.codec import Horizon, decode_entity, encode_entity, peek_unit
from anabranch.channel.errors import UnreadableError
from anabranch.core.records import CLUSTER_KEY, topic_key
from anabranch.core.topics import ScalableTopic
from anabranch.core.units import UNSETTLED, Move, Unit, UnitState
from anabranch.projections import owners
from anabranch.projections.errors import ViewOffsetError
from anabranch.projections.folder import ViewFolder
from anabranch.projections.meta import META_KEY, Meta, encode_meta
from anabranch.projections.store import Family, Row, Store, family_of, new_batch

_CLUSTER: Final = CLUSTER_KEY.encode()
_TOPICS: Final = topic_key("").encode()
_RANGE: Final = len("0x00000000_0xffffffff")
_CHUNK: Final = 20_000
_PREFIX: Final = encode_entity(Unit(UnitState.FREE, "", "", 1, Move.CREATE, 0, 0, ""))[:10]


def bulk_load(
    folder: ViewFolder, batches: Iterable[Batch], horizon: Callable[[], Horizon], before: Meta
) -> Meta:
    """Writes the folder's next generation, complete and closed. Raises ViewError.

    The snapshot must have reached the offset of the generation `before`, and is of the same log.
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
        counts = _derive(store)
        meta = Meta(
            place.next_offset,
            place.digest,
            place.next_offset,
            place.timestamp_ms,
            counts,
            before.log_id,
        )
        batch = new_batch()
        batch.put(META_KEY, encode_meta(meta), store.families[Family.META])
        store.write(batch)
        store.flush()
    finally:
        store.close()
    return meta


def _store(store: Store, pairs: Batch) -> None:
    batch = new_batch()
    rest = dict(pairs)  # a key's last value
    # This is where a start-up spends its time: whole batches are looked at by loops in C.
    if None in rest.values() or _CLUSTER in rest or b":" in b"".join(rest):
        for key in [key for key, value in rest.items() if value is None or not _is_unit(key)]:
            _put(batch, key, rest.pop(key), store.families[family_of(key.decode())])
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


def _derive(store: Store) -> dict[str, int]:
    """Fills the indexes; how many units each broker has."""
    counts: Counter[str] = Counter()
    named: owners.Counts = Counter()
    for chunk in store.chunks(Family.UNITS, _CHUNK):
        batch = new_batch()
        _index(store, batch, chunk, counts, named)
        if len(named) > _CHUNK:
            # Rows are sorted, so every group but the last one is complete.
            last = owners.group_of(chunk[-1][0].decode())
            done = Counter({row: count for row, count in named.items() if row[1] != last})
            owners.add(store, batch, done)
            for row in done:
                del named[row]
        store.write(batch)
    batch = new_batch()
    owners.add(store, batch, named)
    for key, value in store.rows(Family.TOPICS, _TOPICS):
        topic = decode_entity(value)
        if isinstance(topic, ScalableTopic) and topic.is_restless:
            batch.put(key.removeprefix(_TOPICS), b"", store.families[Family.RESTLESS])
    store.write(batch)
    return dict(counts)


def _index(
    store: Store,
    batch: WriteBatch,
    chunk: list[Row],
    counts: Counter[str],
    named: owners.Counts,
) -> None:
    """Most units of a namespace name one of a few brokers and nobody else: rows that agree in
    group and in the value's bytes up to the length of `source` are counted before they are read.
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
