"""The plain Kafka topic that `topics flatten` fills, by transactions.

A transaction holds copies, and how far they go: offsets of the segments' Kafka topics in a group of
its own. So a run that ends anywhere leaves neither a gap nor a repeat for the next one. Each copy
tells its origin in a header, from which that is found once more when Kafka has forgotten the group.

All calls block. One thread makes them, one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka.connection import KafkaConnection, close_consumer
from anabranch.channel.kafka.offsets import EARLIEST, LATEST, PartitionOffset, PartitionOffsets
from anabranch.channel.kafka.topics import topic_facts
from anabranch.client import Message
from anabranch.core.partitioners import Partitioner, partition_of

Place = tuple[str, int]  # Kafka topic and partition
Positions = Mapping[int, Sequence[int]]  # the next offset of each bucket, by segment

ORIGIN: Final = "anabranch.origin"
_KAFKA_S: Final = 30.0
_POLL_S: Final = 0.1
_AT_ONCE: Final = 1_000
_REFRESH_S: Final = 3_600.0  # Kafka forgets offsets after days
_ANYWHERE: Final = -1  # librdkafka chooses
_MESSAGE_BYTES_MAX: Final = 1_000_000_000  # Kafka's topic says what is too much
_BATCH_BYTES: Final = 1_000_000
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Origin(NamedTuple):
    """The place of a message in a scalable topic, which its incarnation names."""

    incarnation: int
    segment_id: int
    bucket: int
    offset: int

    def header(self) -> bytes:
        """Encodes it.

        >>> Origin(57, 3, 1, 1742).header()
        b'57/3/1@1742'
        """
        return b"%d/%d/%d@%d" % self

    @classmethod
    def of(cls, message: KafkaMessage) -> Self | None:
        """Returns the origin that a copy tells, None for a message of somebody else."""
        headers: Any = message.headers() or ()
        return cls.read(next((value for name, value in headers if name == ORIGIN), None))

    @classmethod
    def read(cls, told: bytes | None) -> Self | None:
        """Decodes a header.

        >>> Origin.read(b"57/3/1@1742")
        Origin(incarnation=57, segment_id=3, bucket=1, offset=1742)
        """
        place, _, offset = (told or b"").partition(b"@")
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


class FlatSource(NamedTuple):
    """What is copied: a scalable topic, and the Kafka topic of each of its segments."""

    incarnation: int
    segments: Mapping[int, str]
    places: Sequence[Place]


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
        self.settings: Mapping[str, str] = {}
        self._partitioner = partitioner
        self._incarnation = 0
        self._failed: KafkaError | None = None
        self._at: dict[Place, int] = {}  # copied up to there, exclusive
        self._asked: set[str] = set()  # Kafka topics whose positions are known
        self._refresh_at = 0.0
        self._open = ExitStack()

    def open(self, source: FlatSource) -> bool:
        """Takes over from former runs. Returns False if nothing was copied yet.

        Raises KafkaRefusedError for a topic that is not there, that has other messages, or that
        former runs filled in another way; KafkaUnreachableError.
        """
        self._incarnation = source.incarnation
        facts = topic_facts(self._connection, self.name, _KAFKA_S)
        if facts is None:
            raise KafkaRefusedError(
                f"Kafka topic {self.name} is not there: make it first, with the partitions and "
                "settings that it shall have"
            )
        self.partitions, self.settings = facts.partitions, facts.settings
        # Another topic of that name, made anew, has no copies.
        name = f"flatten-{facts.topic_id}-{source.incarnation}"
        # Offsets of a transaction that was left open are no answer for a minute.
        self._group = self._connection.consumer(group_id=name, isolation_level="read_uncommitted")
        self._open.callback(close_consumer, self._group)
        self._offsets = PartitionOffsets(self._connection, self._connection.consumer())
        self._open.callback(self._offsets.close)
        self._learn(source.places)
        if not self._at:  # before another run is fenced: this one may be refused
            self._at = self._recovered(source)
        bytes_max = int(self.settings.get("max.message.bytes", _BATCH_BYTES))
        self._producer: Producer = self._connection.producer(
            transactional_id=name,
            linger_ms=5,
            message_max_bytes=_MESSAGE_BYTES_MAX,
            batch_size=min(_BATCH_BYTES, bytes_max),
        )
        try:
            self._producer.init_transactions(_KAFKA_S)
        except KafkaException as error:
            raise self._connection.explained(error, f"a transaction of {name}") from None
        self._asked.clear()
        self._learn(source.places)
        self.note({})
        return bool(self._at)

    def close(self) -> None:
        self._open.close()

    def position(self, place: Place) -> int | None:
        """Returns the first offset that is not copied, None if nothing is.

        Raises KafkaRefusedError and KafkaUnreachableError.
        """
        self._learn([place])
        return self._at.get(place)

    def reached(self, place: Place) -> int | None:
        """Returns the same without asking Kafka."""
        return self._at.get(place)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Returns the ends of partitions, up to the first open transaction of each."""
        found = self._offsets.ask_each(places, LATEST, _KAFKA_S)
        return {place: self._told(offset) for place, offset in found.items()}

    def range(self, at: int) -> list[int]:
        """Returns the begins or the ends of its partitions: EARLIEST or LATEST."""
        places = [(self.name, number) for number in range(self.partitions)]
        found = self._offsets.ask_each(places, at, _KAFKA_S)
        return [self._told(found[place]) for place in places]

    def messages(self) -> Iterator[KafkaMessage]:
        """Reads all that is committed in it, each partition in order."""
        begins, ends = self.range(EARLIEST), self.range(LATEST)
        left = {number for number, end in enumerate(ends) if begins[number] < end}
        reader = self._connection.consumer(is_polled=True, enable_partition_eof=True)
        try:
            reader.assign([TopicPartition(self.name, number, begins[number]) for number in left])
            while left:
                for message in reader.consume(_AT_ONCE, _POLL_S):
                    number, error = message.partition() or 0, message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if error is not None or (message.offset() or 0) >= ends[number]:
                        left.discard(number)
                    else:
                        yield message
        except KafkaException as error:
            raise self._connection.explained(error, f"to read {self.name}") from None
        finally:
            close_consumer(reader)

    def _told(self, offset: PartitionOffset | KafkaError) -> int:
        if isinstance(offset, KafkaError):
            raise self._connection.explained(KafkaException(offset), "to tell where a topic ends")
        return offset.offset

    # --- what is copied -----------------------------------------------------------------

    @property
    def _how(self) -> str:
        """How keys find their partitions, which must not change while the topic is filled."""
        return f"{self.partitions} {self._partitioner.value}"

    def _learn(self, places: Iterable[Place]) -> None:
        """Asks Kafka how far those partitions are copied, once for each Kafka topic."""
        fresh = [place for place in places if place[0] not in self._asked]
        if not fresh:
            return
        asked = [TopicPartition(*place) for place in fresh]
        try:
            told = self._group.committed(asked, timeout=_KAFKA_S)
        except KafkaException as error:
            raise self._connection.explained(error, "to tell what is copied") from None
        for each in told:
            if each.error is not None:
                failed = KafkaException(each.error)
                raise self._connection.explained(failed, "to tell what is copied")
            if each.offset >= 0:
                if each.metadata != self._how:
                    raise self._filled_otherwise(f"{each.metadata!r}")
                self._at[each.topic, each.partition] = each.offset
        self._asked.update(topic for topic, _ in fresh)

    def _filled_otherwise(self, how: str) -> KafkaRefusedError:
        return KafkaRefusedError(
            f"Kafka topic {self.name} was filled with partitions and partitioner {how}, and now it "
            f"would be {self._how!r}: keys would lose their order. Name an empty one"
        )

    def _recovered(self, source: FlatSource) -> dict[Place, int]:
        """Returns how far the copies in the topic go, by their own words.

        Raises KafkaRefusedError for a message that is none.
        """
        found: dict[Place, int] = {}
        for message in self.messages():
            origin = Origin.of(message)
            if origin is None or origin.incarnation != source.incarnation:
                raise KafkaRefusedError(
                    f"Kafka topic {self.name} has messages that are no copies of this topic: name "
                    "an empty one"
                )
            key: Any = message.key()
            if key is not None and message.partition() != self._place_of(key):
                raise self._filled_otherwise("of another kind")
            kafka_topic = source.segments.get(origin.segment_id)
            if kafka_topic is not None:
                place = kafka_topic, origin.bucket
                found[place] = max(origin.offset + 1, found.get(place, 0))
        return found

    def note(self, reached: Mapping[Place, int]) -> None:
        """Commits all that is known to be copied, and `reached`, behind which nothing was to copy.

        Raises KafkaRefusedError and KafkaUnreachableError.
        """
        at = self._at | {
            place: offset for place, offset in reached.items() if offset > self._at.get(place, -1)
        }
        if at:
            self._in_transaction(lambda: at)

    # --- copies -------------------------------------------------------------------------

    def copy(self, messages: Iterable[Message]) -> int:
        """Copies messages, all or none, but for those that were copied; returns how many.

        Raises KafkaRefusedError and KafkaUnreachableError.
        """
        count = 0

        def produce() -> Mapping[Place, int]:
            nonlocal count
            at: dict[Place, int] = {}
            for message in fresh:
                self._produce(message)
                at[message.source.holding.partition] = message.offset + 1
                count += 1
            return at

        fresh = [
            message
            for message in messages  # else its bucket was lost, and came back
            if message.offset >= self._at.get(message.source.holding.partition, 0)
        ]
        if fresh:
            self._in_transaction(produce)
        if time.monotonic() >= self._refresh_at:
            self.note({})
        return count

    def _in_transaction(self, produce: Callable[[], Mapping[Place, int]]) -> None:
        self._failed = None
        try:
            self._producer.begin_transaction()
            at = produce()
            self._commit(at)
        except KafkaException as error:
            self._abort(error.args[0])
            raise self._explained(error) from None
        self._at |= at
        if len(at) == len(self._at):
            self._refresh_at = time.monotonic() + _REFRESH_S

    def _place_of(self, key: bytes) -> int:
        return partition_of(self._partitioner, key, self.partitions)

    def _produce(self, message: Message) -> None:
        key, place = message.key, message.source.holding.place
        headers: Any = [each for each in message.headers if each[0] != ORIGIN]
        headers.append((ORIGIN, Origin(self._incarnation, *place, message.offset).header()))
        where = _ANYWHERE if key is None else self._place_of(key)
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
        offsets = [
            TopicPartition(*place, offset, metadata=self._how) for place, offset in at.items()
        ]
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
        if error.args[0].code() in _FENCED:
            return KafkaRefusedError(
                f"another command copies to Kafka topic {self.name} by now, or Kafka has given the "
                "transaction up after a minute: run this again unless one does"
            )
        failed = KafkaException(self._failed) if self._failed is not None else error
        return self._connection.explained(failed, f"a copy to {self.name}")
