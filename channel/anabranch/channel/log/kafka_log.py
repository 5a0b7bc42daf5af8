"""The WAL on Kafka: an idempotent writer and a reader of one partition, tuned for the round trip,
and its present end.

Both block in librdkafka, so each gets a thread of its own in the node's shell; callbacks run on the
thread that calls `serve`, and only hand over.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from anabranch.channel.codec import Headers, header_of, knows_record
from anabranch.channel.errors import (
    AppendError,
    AppendFailedError,
    AppendUnknownError,
    KafkaRefusedError,
    KafkaUnreachableError,
    LogLostError,
    LogTrimmedError,
)
from anabranch.channel.kafka.connection import (
    KAFKA_S_MAX,
    KafkaConnection,
    ProducerHealth,
    close_consumer,
    is_passing,
)
from anabranch.channel.kafka.offsets import LATEST, PartitionOffsets
from anabranch.channel.kafka.topics import RECORD_BYTES_MAX
from anabranch.channel.log.entries import Entry, OnDone

_DELIVERY_TIMEOUT_S: Final = 5.0
_QUEUE_MAX: Final = 20_000  # appends in flight: more than a clean-up round, less than a flood
# Kafka takes a connection's requests one after another, and the next one only once it has answered
# the last: a second one under way would wait there. Here, what is proposed meanwhile goes together
# (but for the next, which librdkafka makes up at once), as one batch that Kafka appends, and every
# node fetches and folds, at once.
APPENDS_UNDER_WAY: Final = 1
_CLOSE_S_MAX: Final = 5.0
_RETRY_S: Final = 0.05
# The broker, or librdkafka before it, looks at these before it appends anything, each time anew.
_NEVER_APPENDED: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError._QUEUE_FULL}
)


class KafkaLogWriter:
    """A LogWriter on one topic. `append` is for any thread, `serve` for one.

    Without `report_success`, `on_done` hears of failures only. A writer that reads its records back
    in the log thus saves a thread's waking up for each.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        delivery_timeout_s: float = _DELIVERY_TIMEOUT_S,
        *,
        report_success: bool = True,
    ) -> None:
        self._topic = topic
        self._health = ProducerHealth(topic)
        timeout_ms = round(delivery_timeout_s * 1000)
        self._producer = connection.producer(
            self._health.note,
            is_polled=True,
            delivery_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            queue_buffering_max_messages=_QUEUE_MAX,
            message_max_bytes=RECORD_BYTES_MAX,
            max_in_flight_requests_per_connection=APPENDS_UNDER_WAY,
            delivery_report_only_error=not report_success,
        )

    def append(self, key: str, value: bytes, header: tuple[str, bytes], on_done: OnDone) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._health.note(error)
            on_done(None if error is None else append_error(error))

        try:
            self._producer.produce(
                self._topic, value, key.encode(), 0, headers=[header], on_delivery=delivered
            )
        except BufferError:
            on_done(AppendFailedError(f"{_QUEUE_MAX} appends are waiting for Kafka already"))
        except KafkaException as error:
            self._health.note(error.args[0])
            on_done(append_error(error.args[0]))

    def serve(self, timeout_s: float) -> int:
        """Calls the callbacks of appends that are settled; waits for the first one.

        Raises ProducerLostError when no append can succeed any more.
        """
        count = self._producer.poll(timeout_s)
        self._health.check()
        return count

    def close(self, timeout_s: float = _CLOSE_S_MAX) -> None:
        """Waits for the records in flight, up to the time-out; the rest is reported as unknown."""
        if self._producer.flush(timeout_s):
            self._producer.purge()
            self._producer.flush(timeout_s)


def append_error(error: KafkaError) -> AppendError:
    """Returns AppendFailedError if the record is certainly not in the log, else AppendUnknownError.

    A refusal says nothing about an earlier attempt of the same append whose answer was lost. So
    only an error that every attempt would have met the same way is certain.
    """
    if error.code() in _NEVER_APPENDED:
        return AppendFailedError(error.str())
    return AppendUnknownError(error.str())


class KafkaLogReader:
    """A LogReader on one topic's only partition.

    `passed_over`: offsets of records whose claim of a newer release is ignored. `to_end`:
    `next_offset` also passes entries before the end that are no records, such as the marks of
    transactions. A reader up to an end must know that.

    Raises LogTrimmedError or LogLostError unless the log goes on from `next_offset`, or
    KafkaUnreachableError.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        next_offset: int,
        timeout_s: float = KAFKA_S_MAX,
        *,
        passed_over: frozenset[int] = frozenset(),
        to_end: bool = False,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._next_offset = next_offset
        self._passed_over = passed_over
        self._out_of_range = False  # librdkafka waits to be told where to go on
        self._consumer = connection.consumer(
            is_polled=True,
            isolation_level="read_uncommitted",
            enable_partition_eof=to_end,
            queued_min_messages=50_000,
            queued_max_messages_kbytes=16_384,
        )
        try:
            check_holds(topic, next_offset, *self.offsets(timeout_s))
        except BaseException:
            self.close()
            raise
        self._consumer.assign([TopicPartition(topic, 0, next_offset)])

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def poll(self, max_records: int, timeout_s: float) -> list[Entry]:
        # consume(n, t) would wait the whole time for n messages: wait for one, take what is there.
        if self._out_of_range and not self._is_back(timeout_s):
            return []
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first]
        if max_records > 1:
            messages += self._consumer.consume(max_records - 1, 0)
        entries: list[Entry] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if entries:
                    self._next_offset = max(self._next_offset, entries[-1].offset + 1)
                if error.code() == KafkaError._PARTITION_EOF:
                    end: int = message.offset()  # type: ignore[assignment]
                    self._next_offset = max(self._next_offset, end)
                else:
                    self._raise_if_serious(error)
                continue
            value = message.value()
            schema = None
            offset: int = message.offset()  # type: ignore[assignment]  # only errors have none
            strange = value is not None and not knows_record(value)
            if strange and offset not in self._passed_over:
                schema = header_of(cast(Headers | None, message.headers()))
            stamp = message.timestamp()[1]
            entries.append(Entry(offset, stamp, message.key(), value, schema))
        if entries:
            self._next_offset = max(self._next_offset, entries[-1].offset + 1)
        return entries

    def _raise_if_serious(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range = True  # looked into at the next poll: Kafka may be gone by now
        elif not is_passing(error):
            raise KafkaRefusedError(f"{self._topic} cannot be read: {error.str()}")

    def _is_back(self, timeout_s: float) -> bool:
        """Tells whether the log, which seemed not to hold the next offset, was found to hold it."""
        try:
            check_holds(self._topic, self._next_offset, *self.offsets(timeout_s))
        except KafkaUnreachableError:
            return False
        self._consumer.assign([TopicPartition(self._topic, 0, self._next_offset)])
        self._out_of_range = False
        return True

    def offsets(self, timeout_s: float) -> tuple[int, int]:
        """The first offset that the log holds, and its end. Raises KafkaUnreachableError."""
        return offsets(self._connection, self._consumer, self._topic, timeout_s)

    def close(self) -> None:
        """Ends the reader; no other call may be under way."""
        close_consumer(self._consumer)


def offsets(
    connection: KafkaConnection, consumer: Consumer, topic: str, timeout_s: float
) -> tuple[int, int]:
    """A topic's first offset and end, as the consumer's isolation level sees it.

    Raises KafkaUnreachableError or KafkaRefusedError.
    """
    doing = f"to tell the offsets of {topic}"
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        try:
            found = consumer.get_watermark_offsets(TopicPartition(topic, 0), left_s)
        except KafkaException as error:
            if not is_passing(error.args[0]):
                raise connection.explained(error, doing) from None
            found = None
        if found is not None:
            first, end = found
            return first, end
        if time.monotonic() > deadline:
            raise connection.unreachable(doing)
        time.sleep(_RETRY_S)


def check_holds(topic: str, next_offset: int, first_offset: int, end_offset: int) -> None:
    """Raises LogTrimmedError or LogLostError unless a reader can go on at `next_offset`."""
    if next_offset < first_offset:
        raise LogTrimmedError(topic, next_offset, first_offset)
    if next_offset > end_offset:
        raise LogLostError(
            f"{topic} ends at offset {end_offset}, but this node has read it up to {next_offset}: "
            "the topic was made anew or lost records; restore it, or if its loss is accepted, "
            "delete this node's data directory and start the cluster on another topicPrefix"
        )


_ANSWER_S_MAX: Final = 5.0
_LOOK_S: Final = 1.0  # a leader that is gone does not answer, and librdkafka asks no other instead


class KafkaLogEnd:
    """Asks where a topic's only partition ends, over a connection of its own.

    Kafka answers a connection's requests in order. A question beside the reader's would thus wait
    as long as the reader's request does for new records.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._place = (topic, 0)
        self._offsets = PartitionOffsets(connection)

    def close(self) -> None:
        """Ends the client, once its open requests are over."""
        self._offsets.close()

    async def ask(self) -> int:
        """The offset behind the last record that any reader may have seen.

        Raises KafkaUnreachableError or KafkaRefusedError.
        """
        deadline = time.monotonic() + _ANSWER_S_MAX
        while True:
            asked = self._offsets.soon([self._place], LATEST, _LOOK_S)
            answer = (await asyncio.wrap_future(asked))[self._place]
            if not isinstance(answer, KafkaError):
                return answer.offset
            if not is_passing(answer) or time.monotonic() > deadline:
                doing = f"to tell the end of {self._place[0]}"
                raise self._connection.explained(KafkaException(answer), doing)
            await asyncio.sleep(_RETRY_S)
