"""Finds the fault of a snapshot that is not as its writer had it, and the wrong key if it can.

A sum says only that something differs. The log tells the key, as long as it holds its beginning;
else the bundles of a namespace do, which must tile its ring. `anabranch audit` with the archive
names all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from anabranch.channel.codec import Horizon, read_state
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import read_until
from anabranch.channel.log.kafka_log import KafkaLogReader
from anabranch.channel.snapshots.reader import SnapshotReader
from anabranch.core.entities.tenant import NamespaceInfo
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import namespace_key
from anabranch.core.log.state import Entity, FoldedState, live_bundles
from anabranch.core.ring import FULL_RING, split_bundle_name, tiles


def fault_of_snapshot(
    connection: KafkaConnection, topics: Topics, passed_over: frozenset[int] = frozenset()
) -> str:
    """The first key that differs, in words, or why none can be named. Raises AnabranchError."""
    found, horizon = snapshot_state(connection, topics)
    next_offset = horizon.next_offset if horizon else 0
    reader = KafkaLogReader(
        connection, topics.wal, next_offset, passed_over=passed_over, to_end=True
    )
    try:
        first, _ = reader.offsets(KAFKA_S_MAX)
    finally:
        reader.close()
    if first > 0:
        return gap_in_rings(found) or (
            "the log's beginning is gone, so the keys that differ cannot be named here: "
            "`anabranch audit` names them with the archive"
        )
    expected = MemoryReplica()
    reader = KafkaLogReader(connection, topics.wal, 0, passed_over=passed_over, to_end=True)
    try:
        doing = f"to read {topics.wal}"
        for entries in read_until(reader, next_offset, partial(connection.unreachable, doing)):
            for entry in entries:
                if entry.offset < next_offset:
                    expected.read(entry.record(), entry.offset, entry.timestamp_ms)
    finally:
        reader.close()
    return first_difference(found, expected.entities)


def snapshot_state(
    connection: KafkaConnection, topics: Topics
) -> tuple[dict[str, Entity], Horizon | None]:
    """Returns the readable part of the snapshot, by key, and its horizon; None if there is none
    yet.
    """
    snapshot = SnapshotReader(connection, topics)
    found: dict[str, Entity] = {}
    for batch in snapshot.batches():
        for key, value in batch:
            try:
                if value is None:
                    found.pop(key.decode(errors="replace"), None)
                else:
                    name, entity = read_state(key, value)
                    found[name] = entity
            except (UnreadableError, NewerSchemaError):
                continue  # a stranger's, or one that will be missing
    return found, snapshot.horizon


def first_difference(found: Mapping[str, Entity], expected: Mapping[str, Entity]) -> str:
    """The first key, in order, that a snapshot holds otherwise than the log says; "" for none."""
    for key in sorted({*found, *expected}):
        if key not in found:
            return f"{key} is missing in it, by the log"
        if key not in expected:
            return f"{key} does not exist, by the log"
        if found[key] != expected[key]:
            return f"{key} is {expected[key]}, not {found[key]}, by the log"
    return ""


def gap_in_rings(found: Mapping[str, Entity]) -> str:
    """Describes the first namespace whose bundles do not tile its ring; returns "" if all do."""
    state = FoldedState()
    state.apply(found.items())
    start = namespace_key("")
    for key in sorted(found):
        if not key.startswith(start) or not isinstance(found[key], NamespaceInfo):
            continue
        namespace = key.removeprefix(start)
        parts = [split_bundle_name(name)[1] for name, _ in live_bundles(state, namespace)]
        if not tiles(parts, FULL_RING):
            there = ", ".join(map(str, parts)) or "none"
            return f"the bundles of {namespace} do not tile its ring; there are {there}"
    return ""
