"""The start of a node: from the snapshot and the log behind it, while both move.

The snapshot is a compacted topic. While one reads it, the compactor may commit a newer one. Kafka
may then drop an unread record, because a newer one of its key stands behind the end known at the
start. So the topic is read to its end, and again to its new end, until it has not moved. Only then
do all records read belong to the last horizon read. Records of a transaction that is not committed
lie behind the end as a committed reader sees it.

Meanwhile the log may be trimmed up to a newer horizon than that one. Trimming follows the commit of
a newer snapshot, so reading on in the snapshot topic always mends it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from anabranch.channel.codec import HORIZON_KEY, Horizon, decode_horizon
from anabranch.channel.errors import KafkaRefusedError, LogTrimmedError, SnapshotLostError
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer, is_passing
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.kafka_log import check_holds, offsets

Pair = tuple[bytes, bytes | None]  # key and encoded entity; None: it is gone
Batch = list[Pair]
_End = tuple[int, Horizon | None]

_BATCH_MAX: Final = 5_000
_ROUNDS_MAX: Final = 1_000  # rounds of further reading because the topic has moved
_PATIENCE_S: Final = 30.0  # without any news from Kafka
_GATHER_S: Final = 0.02  # the longest wait of a batch to fill up
_TAIL: Final = 16  # records in which to look for the horizon first
# A message without a key is an event or a stranger's; only then is it looked at more closely.
_HORIZON_KEY: Final = HORIZON_KEY.encode()
_NOT_STATE: Final = frozenset({None, _HORIZON_KEY})


def snapshot_consumer(connection: KafkaConnection) -> Consumer:
    """A consumer of committed snapshots that reports the topic's end and reads far ahead."""
    return connection.consumer(
        isolation_level="read_committed",
        enable_partition_eof=True,
        fetch_wait_max_ms=5,  # the end is reported when a fetch has found nothing
        check_crcs=False,  # TCP and Kafka's own log checks stand between us and a flipped bit
        queued_min_messages=50_000,
        queued_max_messages_kbytes=16_384,
        fetch_message_max_bytes=2_097_152,
    )


class SnapshotReader:
    """One pass over the snapshot. Iterate `batches()` to the end, then ask for the `horizon`.

    A batch holds raw pairs in log order: a later pair of a key replaces an earlier one.
    """

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._horizon: Horizon | None = None
        self._finished = False

    @property
    def horizon(self) -> Horizon | None:
        """Returns what all batches together stand for; None when there is no snapshot yet.

        Raises RuntimeError before the batches were read to the end.
        """
        if not self._finished:
            raise RuntimeError("the snapshot's horizon is known only after its last batch")
        return self._horizon

    def batches(self) -> Iterator[Batch]:
        """Yields all pairs, up to a moment at which snapshot and log fit together.

        Raises KafkaUnreachableError, KafkaRefusedError, NewerSchemaError, LogLostError or
        SnapshotLostError.
        """
        topic = self._topics.snapshot
        consumer = snapshot_consumer(self._connection)
        try:
            first, _ = self._offsets(consumer, topic)
            consumer.assign([TopicPartition(topic, 0, first)])
            for _ in range(_ROUNDS_MAX):
                end, horizon = yield from _to_end(self._connection, consumer, topic)
                self._horizon = horizon or self._horizon
                if self._is_whole(consumer, end):
                    self._finished = True
                    return
            raise SnapshotLostError(
                f"{topic} had moved on each of the {_ROUNDS_MAX} times that it was read to its "
                "end: more than one cluster may be writing to this topicPrefix"
            )
        finally:
            close_consumer(consumer)

    def _is_whole(self, consumer: Consumer, end: int) -> bool:
        """Tells whether the records read up to `end` are all there are, and the log goes on from
        them.
        """
        topics = self._topics
        if self._offsets(consumer, topics.snapshot)[1] > end:
            return False
        next_offset = self._horizon.next_offset if self._horizon else 0
        try:
            check_holds(topics.wal, next_offset, *self._offsets(consumer, topics.wal))
        except LogTrimmedError as error:
            # The trimmed records are in a snapshot from before the trimming: was there a newer one?
            if self._offsets(consumer, topics.snapshot)[1] > end:
                return False
            raise SnapshotLostError(
                f"{topics.wal} begins at offset {error.first_offset}, but {topics.snapshot} stands "
                f"for offset {next_offset}: records were deleted by hand, or the snapshot topic "
                "was made anew; restore them, or start a cluster on another topicPrefix"
            ) from None
        return True

    def _offsets(self, consumer: Consumer, topic: str) -> tuple[int, int]:
        return offsets(self._connection, consumer, topic, _PATIENCE_S)


def last_horizon(connection: KafkaConnection, topics: Topics) -> Horizon | None:
    """The newest committed horizon, found from the snapshot topic's end.

    Raises KafkaUnreachableError, KafkaRefusedError or NewerSchemaError.
    """
    topic = topics.snapshot
    consumer = snapshot_consumer(connection)
    try:
        first, end = offsets(connection, consumer, topic, _PATIENCE_S)
        tail = _TAIL
        while True:
            start = max(first, end - tail)
            consumer.assign([TopicPartition(topic, 0, start)])
            horizon = _drained(_to_end(connection, consumer, topic))
            if horizon is not None or start == first:
                return horizon
            tail *= 8
    finally:
        close_consumer(consumer)


def _drained(batches: Generator[Batch, None, _End]) -> Horizon | None:
    while True:
        try:
            next(batches)
        except StopIteration as stop:
            found: _End = stop.value
            return found[1]


def _to_end(
    connection: KafkaConnection, consumer: Consumer, topic: str
) -> Generator[Batch, None, _End]:
    """Yields what there is; its value is the end that was met and the last horizon before it."""
    horizon: Horizon | None = None
    heard = time.monotonic()
    while True:
        messages = consumer.consume(_BATCH_MAX, _GATHER_S)
        if not messages:
            if time.monotonic() - heard > _PATIENCE_S:
                raise connection.unreachable(f"to read {topic}")
            continue
        heard = time.monotonic()
        batch = cast(
            Batch,
            [
                (key, message.value())
                for message in messages
                if (key := message.key()) not in _NOT_STATE
            ],
        )
        if batch:
            yield batch
        if len(batch) == len(messages):
            continue
        for message in messages:
            value = message.value()
            if message.key() == _HORIZON_KEY and value is not None:
                horizon = decode_horizon(value)
        end = _end_of(messages, topic)
        if end is not None:
            return end, horizon


def _end_of(messages: list[Message], topic: str) -> int | None:
    """The topic's end if these say that it is reached, with nothing but errors behind that.

    Kafka's client says so once, and an error that passes may come with it.
    """
    end: int | None = None
    for message in messages:
        error = message.error()
        if error is None:
            end = None
        elif error.code() == KafkaError._PARTITION_EOF:
            end = message.offset()
        elif not is_passing(error):
            raise KafkaRefusedError(f"{topic} cannot be read: {error.str()}")
    return end
