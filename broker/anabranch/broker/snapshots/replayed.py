"""The state before the log's first record, or at its end, for code without a view."""

from __future__ import annotations

from anabranch.channel.codec import Horizon, read_state
from anabranch.channel.errors import NewerSchemaError, SnapshotLostError, UnreadableError
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection, close_consumer
from anabranch.channel.kafka.topics import Topics, check_kafka, exists
from anabranch.channel.log.entries import read_until
from anabranch.channel.log.kafka_log import KafkaLogReader, offsets
from anabranch.channel.snapshots.reader import SnapshotReader
from anabranch.core.errors import InvalidInputError
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.state import Entity


def state_before(connection: KafkaConnection, topics: Topics, first_offset: int) -> MemoryReplica:
    """The state from which the verdicts of the rest follow, of a log that begins there."""
    replica = MemoryReplica()
    if first_offset == 0:
        return replica
    entities, horizon = _snapshot(connection, topics)
    if horizon is None:
        raise SnapshotLostError(
            f"{topics.wal} begins at {first_offset} and {topics.snapshot} holds no snapshot: "
            "the effect of earlier records is not known, and so no verdict is"
        )
    replica.load(entities.items(), horizon.next_offset)
    return replica


def log_bounds(connection: KafkaConnection, topics: Topics) -> tuple[int, int]:
    """The log's first offset and its end. Raises as the channel, and InvalidInputError."""
    check_kafka(connection, KAFKA_S_MAX)  # a consumer does not hear that it is not let in
    if not exists(connection, topics.wal, KAFKA_S_MAX):  # it would wait for one
        raise InvalidInputError(
            f"Kafka at {connection.bootstrap_servers} shows no topic {topics.wal}: start a node, "
            f"name its topicPrefix, or let this principal describe what begins with {topics.prefix}"
        )
    probe = connection.consumer()
    try:
        return offsets(connection, probe, topics.wal, KAFKA_S_MAX)
    finally:
        close_consumer(probe)


def state_now(
    connection: KafkaConnection, topics: Topics, passed_over: frozenset[int]
) -> MemoryReplica:
    """The state at the log's end. Raises as the channel."""
    first, end = log_bounds(connection, topics)
    replica = state_before(connection, topics, first)
    begin = max(first, replica.next_offset)
    reader = KafkaLogReader(connection, topics.wal, begin, passed_over=passed_over, to_end=True)
    missing = connection.unreachable(f"to read {topics.wal}")
    try:
        for entries in read_until(reader, end, lambda: missing):
            for each in entries:
                replica.read(each.record(), each.offset, each.timestamp_ms)
    finally:
        reader.close()
    return replica


def _snapshot(
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
