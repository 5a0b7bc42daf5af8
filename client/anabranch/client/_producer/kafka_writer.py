"""`KafkaPartitionWriter`: appends to one bucket of one segment, and takes Kafka's reports of it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from anabranch.client._errors import BufferFullError, DeliveryError, UnknownOutcomeError
from anabranch.client._producer.partition_writer import PartitionWriter, PendingMessage
from anabranch.client._producer.segment_writer import SegmentWriter
from anabranch.client._topics.layout import Segment

_MARK_S: Final = 0.5  # between two notes of when something was sent

# Called with the partition writer, what went wrong, the message, and Kafka's report of it.
Troubled = Callable[["KafkaPartitionWriter", KafkaError, PendingMessage, Message], None]


@dataclass(slots=True)  # as `PartitionWriter`
class Volume:
    """So many messages, with values of so many bytes."""

    count: int = 0
    bytes: int = 0


class KafkaPartitionWriter(PartitionWriter):
    """A partition writer over librdkafka, with what the hot path needs at hand."""

    __slots__ = (
        "headers",
        "marks",
        "produce",
        "refused_at",
        "report",
        "seen",
        "seen_at",
        "segment_writer",
        "topic",
        "troubled",
        "under_way",
    )

    def __init__(
        self,
        incarnation: int,
        segment: Segment,
        bucket: int,
        topic: str,
        writer: SegmentWriter,
        under_way: Volume,
        troubled: Troubled,
    ) -> None:
        super().__init__(incarnation, segment, bucket)
        self.topic = segment.kafka_topic
        self.where = f"{self.where} of {topic}"
        self.segment_writer = writer
        self.headers = writer.headers
        self.produce = writer.produce
        self.under_way = under_way  # of the producer
        self.troubled = troubled
        self.report = self._count if writer.counts else self._note
        # Of some appends, the oldest first: when all up to that number had been sent.
        self.marks: deque[tuple[float, int]] = deque()
        self.refused_at = -math.inf  # when Kafka's newest refusal was reported, monotonic
        self.seen = 0  # how many appends there were, and
        self.seen_at = -math.inf  # since when there were no more
        writer.partitions.add(self)

    @property
    def trouble(self) -> str:
        return self.segment_writer.trouble

    def sent_by(self, now: float, patience_s: float) -> float:
        return self.segment_writer.throttled.sent_by(now, patience_s)

    def throttling(self, now: float, patience_s: float) -> str:
        return self.segment_writer.throttled.why(now, patience_s)

    @property
    def has_copies(self) -> bool:
        return self.segment_writer.copies != 1

    def append(
        self, value: bytes | None, key: Any, timestamp_ms: int, report: Any, headers: Any
    ) -> Exception | None:
        """Hands a message to librdkafka; returns what that raised, if it did not take it."""
        try:
            self.produce(self.topic, value, key, self.bucket, report, None, timestamp_ms, headers)
        except KafkaException as error:
            self.segment_writer.broke(error.args[0])
            return error
        except (BufferError, TypeError) as error:
            return error
        self.appended += 1  # as `sent`, without a call
        order = self.order
        order.append(key)
        order.append(value)
        if len(order) > self.order_max:
            self.forget()
        return None

    def was_refused(self, message: PendingMessage, in_doubt: bool) -> None:
        super().was_refused(message, in_doubt)
        self.refused_at = time.monotonic()

    def look(self, now: float) -> None:
        """Notes how far it is: by these notes it is known what takes long."""
        self.forget()  # a writer at rest holds no messages
        marks = self.marks
        while marks and marks[0][1] <= self.reported:
            marks.popleft()
        if self.appended != self.seen or self.seen_at < 0:
            self.seen, self.seen_at = self.appended, now
            if self.outstanding:
                marks.append((now, self.appended))

    def mark(self, sent_at: float) -> None:
        """The newest append had been sent by then."""
        marks = self.marks
        if not marks or abs(sent_at - marks[-1][0]) >= _MARK_S:
            marks.append((sent_at, self.appended))

    def waiting_since(self) -> float:
        """When the oldest append that is under way was sent, or a little later."""
        return min(
            (sent_at for sent_at, number in self.marks if number > self.reported), default=math.inf
        )

    def resting_since(self) -> float:
        """Since when nothing was appended; infinite while something is under way or held."""
        if self.appended != self.seen or self.outstanding or self.held:
            return math.inf
        return self.seen_at

    def cut_off(self) -> None:
        """Reports that come from now on, on whichever thread, reach nobody."""
        self.under_way, self.troubled = Volume(), _ignored
        self.reported = self.appended  # nobody waits for more

    def _note(self, error: KafkaError | None, message: Message) -> None:
        """Takes Kafka's report of a message that nobody else waits for."""
        if error is None:
            offset = message.offset()
            if offset is None:
                self.unlocated += 1
            else:
                self.last_offset, self.unlocated = offset, 0
        self._count(error, message)

    def _count(self, error: KafkaError | None, message: Message) -> None:
        """The same where offsets need not be kept."""
        if error is None:
            self.reported += 1
            under_way = self.under_way
            under_way.count -= 1
            under_way.bytes -= len(message)
            return
        # The report of a failure has no time (librdkafka says -1): what had one has its own report.
        held = PendingMessage(message.key(), message.value())
        self.troubled(self, error, held, message)

    def is_doubtful(self, message: Message) -> bool:
        """Whether librdkafka may have tried the message more than once."""
        latency = message.latency()
        return latency is None or not 0 <= latency < self.segment_writer.certain_s


def _ignored(*_: object) -> None:
    """What comes too late."""


class Waiting(Protocol):
    """Who is told. `awaited`: those that have not come; what is taken out of it tells nothing."""

    awaited: set[DeliveryReport]

    def delivered(
        self,
        partition: KafkaPartitionWriter,
        message: PendingMessage,
        offset: int,
        timestamp_ms: int,
    ) -> None:
        """Kafka has the message."""


class DeliveryReport(msgspec.Struct, eq=False):
    """To be called once, inside of `poll`, with what became of `message`."""

    waiting: Waiting
    partition: KafkaPartitionWriter
    message: PendingMessage

    def __post_init__(self) -> None:
        self.waiting.awaited.add(self)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        try:
            self.waiting.awaited.remove(self)
        except KeyError:
            return
        partition = self.partition
        if error is not None:
            partition.troubled(partition, error, self.message, message)
            return
        offset = message.offset()
        if offset is None:
            offset = -1  # librdkafka lost the answer, and concludes from a later one
        partition.acked(offset)
        self.waiting.delivered(partition, self.message, offset, message.timestamp()[1])


_GIVEN_UP: Final = frozenset({KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE})
# After these nobody knows whether Kafka has the message. What is purged from a queue may have been
# there to be tried again.
_UNKNOWN: Final = _GIVEN_UP | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._FATAL,
    KafkaError._DESTROY,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}


def delivery_error(error: KafkaError, where: str, why: str, trouble: str) -> DeliveryError:
    """The error for a message that Kafka, or its client, gave up for good.

    `where`: topic, segment and bucket. `why`: it was given up, if it was. `trouble`: what Kafka's
    client complained of last, if of anything.
    """
    code = error.code()
    cause = why if code in _GIVEN_UP and why else error.str()
    if trouble and trouble != cause:
        cause = f"{cause} (the last trouble with Kafka: {trouble})"
    if code in _UNKNOWN:
        return UnknownOutcomeError(
            f"a message to {where}: {cause}; Kafka may have it or get it, so look before you "
            "send it again"
        )
    if code == KafkaError.INVALID_TIMESTAMP:
        return DeliveryError(
            f"Kafka refused a message to {where} for its event time, or for that of another one in "
            "its batch: it is older than what the topic keeps, or too far in the future; correct it"
        )
    return DeliveryError(f"Kafka refused a message to {where}: {cause}")


def no_room(where: str) -> BufferFullError:
    """The error for a message that Kafka's client refused to take."""
    return BufferFullError(
        f"a message to {where} was not sent: Kafka's client holds as many bytes as it can, lower "
        "the producer's buffer_bytes_max"
    )
