"""The plain Kafka topic that `topics flatten` fills, by transactions.

A transaction holds copies, and how far they go: offsets of the segments' Kafka topics in a group of
its own. So a run that ends anywhere leaves neither a gap nor a repeat for the next one. Each copy
tells its origin in a header.

All calls block. One thread makes them, one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.offsets import EARLIEST, LATEST, PartitionOffset, PartitionOffsets
from anabranch.channel.kafka.topics import partition_count, topic_id
from anabranch.client import Message
from anabranch.core.partitioners import Partitioner, partition_of

Place = tuple[str, int]  # Kafka topic and partition
Positions = Mapping[int, Sequence[int]]  # the next offset of each bucket, by segment

ORIGIN: Final = "anabranch.origin"
_KAFKA_S: Final = 30.0
_POLL_S: Final = 0.1
_ANYWHERE: Final = -1  # librdkafka chooses
_MESSAGE_BYTES_MAX: Final = 1_000_000_000  # Kafka's topic says what is too much


class Origin(NamedTuple):
    """The place of a message in a scalable topic."""

    segment_id: int
    bucket: int
    offset: int

    def header(self) -> bytes:
        """Encodes it.

        >>> Origin(3, 1, 1742).header()
        b'3/1@1742'
        """
        return b"%d/%d@%d" % self

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes | None]]) -> Self | None:
        """Returns the origin that a copy tells, None for a message of somebody else.

        >>> Origin.of([("a", b"b"), ("anabranch.origin", b"3/1@1742")])
        Origin(segment_id=3, bucket=1, offset=1742)
        """
        told = next((value for name, value in headers if name == ORIGIN), None) or b""
        place, _, offset = told.partition(b"@")
        parts = (*place.split(b"/"), offset)
        if len(parts) != len(cls._fields) or not all(part.isdigit() for part in parts):
            return None
        return cls(*map(int, parts))

    def is_unread(self, positions: Positions) -> bool:
        """Tells whether a reader at these positions has the message yet to read.

        Ids ascend: a segment that is not named is newer than all, or was read and is gone.
        """
        at = positions.get(self.segment_id)
        if at is None or self.bucket >= len(at):
            return self.segment_id > max(positions, default=-1)
        return self.offset >= at[self.bucket]


class FlatTopic:
    """One Kafka topic that is filled with copies.

    `partitioner`: how its keys find their partitions.
    """

    def __init__(
        self, connection: KafkaConnection, kafka_topic: str, partitioner: Partitioner
    ) -> None:
        self._connection = connection
        self.name = kafka_topic
        self.partitions = 0
        self._partitioner = partitioner
        self._failed: KafkaError | None = None
        self._at: dict[Place, int] = {}  # copied up to there, exclusive
        self._asked: set[str] = set()  # Kafka topics whose positions are known
        self._closing: list[Callable[[], None]] = []

    def open(self, sources: Iterable[Place]) -> None:
        """Fences former runs. `sources`: all partitions to copy from.

        Raises KafkaRefusedError for a topic that is not there, or that holds messages which no run
        has copied from these; KafkaUnreachableError.
        """
        self.partitions = partition_count(self._connection, self.name, _KAFKA_S)
        if not self.partitions:
            raise KafkaRefusedError(
                f"Kafka topic {self.name} is not there: make it first, with the partitions and "
                "settings that it shall have"
            )
        # Another topic of that name, made anew, has no copies.
        name = f"flatten-{topic_id(self._connection, self.name, _KAFKA_S)}"
        self._producer: Producer = self._connection.producer(
            transactional_id=name, linger_ms=5, message_max_bytes=_MESSAGE_BYTES_MAX
        )
        self._group = self._connection.consumer(group_id=name)
        self._closing.append(lambda: close_consumer(self._group))
        self._offsets = PartitionOffsets(self._connection, self._connection.consumer())
        self._closing.append(self._offsets.close)
        try:
            self._producer.init_transactions(_KAFKA_S)
        except KafkaException as error:
            raise self._connection.explained(error, f"a transaction of {name}") from None
        self._learn(sources)
        if not self._at:
            begins, ends = self.range(EARLIEST), self.range(LATEST)
            if begins != ends:
                raise KafkaRefusedError(
                    f"Kafka topic {self.name} has messages, and nothing of this topic was copied "
                    "to it yet: name an empty one"
                )

    def close(self) -> None:
        for close in self._closing:
            close()

    def position(self, place: Place) -> int | None:
        """Returns the first offset that is not copied, None if nothing is.

        Raises KafkaRefusedError and KafkaUnreachableError.
        """
        self._learn([place])
        return self._at.get(place)

    def _learn(self, sources: Iterable[Place]) -> None:
        """Asks Kafka how far those partitions are copied, once for each Kafka topic."""
        fresh = [place for place in sources if place[0] not in self._asked]
        if not fresh:
            return
        asked = [TopicPartition(*place) for place in fresh]
        try:
            told = self._group.committed(asked, timeout=_KAFKA_S)
        except KafkaException as error:
            raise self._connection.explained(error, "to tell what is copied") from None
        self._at |= {(each.topic, each.partition): each.offset for each in told if each.offset >= 0}
        self._asked.update(topic for topic, _ in fresh)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Returns the ends of partitions, up to the first open transaction of each."""
        found = self._offsets.ask_each(places, LATEST, _KAFKA_S)
        return {place: self._told(offset) for place, offset in found.items()}

    def range(self, at: int) -> list[int]:
        """Returns the begins or the ends of its partitions: EARLIEST or LATEST."""
        places = [(self.name, number) for number in range(self.partitions)]
        found = self._offsets.ask_each(places, at, _KAFKA_S)
        return [self._told(found[place]) for place in places]

    def _told(self, offset: PartitionOffset | KafkaError) -> int:
        if isinstance(offset, KafkaError):
            raise self._connection.explained(KafkaException(offset), "to tell where a topic ends")
        return offset.offset

    # --- copies -------------------------------------------------------------------------

    def copy(self, messages: Iterable[Message]) -> int:
        """Copies messages, all or none, but for those that were copied; returns how many.

        Raises KafkaRefusedError and KafkaUnreachableError.
        """
        at: dict[Place, int] = {}
        count = 0
        self._failed = None
        try:
            for message in messages:
                place = message.source.holding.partition
                if message.offset < self._at.get(place, 0):
                    continue  # its bucket was lost, and came back
                if not at:
                    self._producer.begin_transaction()
                self._produce(message)
                at[place] = message.offset + 1
                count += 1
            if at:
                self._commit(at)
        except KafkaException as error:
            self._abort(error.args[0])
            raise self._explained(error) from None
        self._at |= at
        return count

    def _produce(self, message: Message) -> None:
        key, origin = message.key, Origin(message.segment_id, message.bucket, message.offset)
        headers: Any = [each for each in message.headers if each[0] != ORIGIN]
        headers.append((ORIGIN, origin.header()))
        where = _ANYWHERE
        if key is not None:
            where = partition_of(self._partitioner, key, self.partitions)
        time_ms = message.event_time_ms
        more: dict[str, Any] = {} if time_ms is None else {"timestamp": time_ms}
        while True:
            try:
                self._producer.produce(
                    self.name,
                    message.value,
                    key,
                    where,
                    headers=headers,
                    on_delivery=self._delivered,
                    **more,
                )
            except BufferError:
                self._producer.poll(_POLL_S)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, _: KafkaMessage) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _commit(self, at: Mapping[Place, int]) -> None:
        offsets = [TopicPartition(*place, offset) for place, offset in at.items()]
        member = self._group.consumer_group_metadata()
        deadline = time.monotonic() + _KAFKA_S
        steps: tuple[Callable[[float], Any], ...] = (
            lambda left_s: self._producer.send_offsets_to_transaction(offsets, member, left_s),
            self._producer.commit_transaction,
        )
        for step in steps:
            while True:
                try:
                    step(max(_POLL_S, deadline - time.monotonic()))
                    break
                except KafkaException as error:
                    if not error.args[0].retriable() or time.monotonic() > deadline:
                        raise

    def _abort(self, error: KafkaError) -> None:
        if error.fatal():
            return
        with suppress(KafkaException):  # else the next run's beginning ends it
            self._producer.abort_transaction(_KAFKA_S)

    def _explained(self, error: KafkaException) -> Exception:
        code = error.args[0].code()
        if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
            return KafkaRefusedError(f"another command copies to Kafka topic {self.name} now")
        failed = KafkaException(self._failed) if self._failed is not None else error
        return self._connection.explained(failed, f"a copy to {self.name}")
