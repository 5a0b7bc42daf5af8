"""The state before the log's first record, from its snapshot, for code without a view."""

from __future__ import annotations

from anabranch.channel.codec import Horizon, read_state
from anabranch.channel.errors import NewerSchemaError, SnapshotLostError, UnreadableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.snapshots.reader import SnapshotReader
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
