"""`peek`: a look at a topic's messages that leaves no trace: no subscription, no Kafka group.

It reads each bucket from the place asked for, at most as many messages as are wanted in all. It
returns them by event time, as far as each bucket's own order allows.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.assignment import Holding, Partition, SegmentBucket
from anabranch.client._consumer.messages import Message, Source
from anabranch.client._consumer.reads import is_for_good, locked_out, partition_of
from anabranch.client._errors import DeadlineError, KafkaReadError
from anabranch.client._kafka_options import CONSUMER, LIBRDKAFKA_LOG
from anabranch.client._settings import EARLIEST, LATEST, ReadSettings, ReceivingSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError

MESSAGES_MAX: Final = 10_000
_ASK_S_MAX: Final = 3.0
_POLL_S: Final = 0.1
_RETRY_S: Final = 0.1
_READ: Final = ReadSettings(bytes_max=8 * 1024 * 1024)

_Spans = dict[Partition, tuple[int, int]]  # offsets, the second one excluded


def check_count(messages_max: Any) -> None:
    """Raises InvalidInputError."""
    number = isinstance(messages_max, int) and not isinstance(messages_max, bool)
    if not (number and 0 < messages_max <= MESSAGES_MAX):
        raise InvalidInputError(f"messages_max is 1 to {MESSAGES_MAX}: {messages_max!r}")


async def peek(
    layout: TopicLayout,
    kafka: Mapping[str, Any],
    settings: ReceivingSettings,
    messages_max: int,
    start_ms: int,
    timeout_s: float,
) -> list[Message]:
    """Returns messages of all segments, including sealed ones, `messages_max` at most.

    `start_ms` has the form of `start_milliseconds`. Raises KafkaReadError if Kafka refuses, and
    DeadlineError after `timeout_s` seconds.
    """
    places = {
        (part.kafka_topic, bucket): SegmentBucket(part.segment_id, bucket)
        for part in layout.segments.values()
        for bucket in range(part.info.buckets)
    }
    kafka = {"client.id": "anabranch", **kafka, "bootstrap.servers": layout.bootstrap_servers}
    look = _Look(kafka, layout.topic, list(places), messages_max, time.monotonic() + timeout_s)
    try:
        raw = await asyncio.to_thread(look.taken, start_ms)
    finally:
        look.end()
    sources = {
        partition: Source(layout.topic, 0, Holding(place, partition[0], None), settings)
        for partition, place in places.items()
    }
    return [Message(message, sources[partition_of(message)]) for message in raw]


class _Look:
    """One peek, on a thread."""

    def __init__(
        self,
        kafka: Mapping[str, Any],
        topic: str,
        partitions: Sequence[Partition],
        messages_max: int,
        deadline: float,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._most = messages_max
        self._deadline = deadline
        self._last = ""
        # A group that is never joined, and in which nothing is committed, is not known to Kafka.
        own = {"group.id": "anabranch-peek", "enable.partition.eof": True}
        self._heard: list[KafkaError] = []
        options = {**CONSUMER, **_READ.kafka(), **kafka, **own, "error_cb": self._heard.append}
        self._client = Consumer(options, logger=LIBRDKAFKA_LOG)

    def taken(self, start_ms: int) -> list[KafkaMessage]:
        """Raises KafkaReadError, DeadlineError."""
        try:
            spans = {p: span for p, span in self._spans(start_ms).items() if span[0] < span[1]}
            found = merged(self._read(spans))
            return found[-self._most :] if start_ms == LATEST else found[: self._most]
        finally:
            self._client.close()

    def end(self) -> None:
        """Ends the thread after the question that is under way, because nobody waits any more."""
        self._deadline = -math.inf

    def _spans(self, start_ms: int) -> _Spans:
        first, end = self._offsets(OFFSET_BEGINNING), self._offsets(OFFSET_END)
        if start_ms == EARLIEST:
            begin = first
        elif start_ms == LATEST:
            begin = {p: max(first[p], end[p] - self._most) for p in first}
        else:
            found = self._offsets(start_ms)
            begin = {p: end[p] if at < 0 else max(at, first[p]) for p, at in found.items()}
        return {p: (begin[p], min(end[p], begin[p] + self._most)) for p in self._partitions}

    def _offsets(self, which: int) -> dict[Partition, int]:
        asked = [TopicPartition(*partition, which) for partition in self._partitions]
        while True:
            try:
                found = self._client.offsets_for_times(asked, timeout=_ASK_S_MAX)
                for each in found:
                    if each.error is not None:
                        raise KafkaException(each.error)
                return {(each.topic, each.partition): each.offset for each in found}
            except KafkaException as error:
                self._note(error.args[0])
                time.sleep(_RETRY_S)

    def _read(self, spans: _Spans) -> dict[Partition, list[KafkaMessage]]:
        found: dict[Partition, list[KafkaMessage]] = {each: [] for each in spans}
        open_ = set(spans)
        self._client.assign([TopicPartition(*p, begin) for p, (begin, _) in spans.items()])
        while open_:
            for message in self._client.consume(self._most, _POLL_S):
                partition, error = partition_of(message), message.error()
                if error is None:
                    at, end = message.offset() or 0, spans[partition][1]
                    if at < end and partition in open_:
                        found[partition].append(message)
                    if at < end - 1:
                        continue
                elif error.code() != KafkaError._PARTITION_EOF:
                    self._note(error)
                    continue
                if partition in open_:
                    open_.discard(partition)
                    self._client.incremental_unassign([TopicPartition(*partition)])
            self._note(None)
        return found

    def _note(self, error: KafkaError | None) -> None:
        """Raises KafkaReadError for an error that no other try mends, and DeadlineError if the time
        is up.
        """
        for why in filter(None, map(locked_out, self._heard)):
            raise KafkaReadError(why)
        self._heard.clear()
        if error is not None and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._last = error.str()
            if is_for_good(error):
                raise KafkaReadError(f"Kafka refuses to read {self._topic}: {self._last}")
        if time.monotonic() >= self._deadline:
            raise DeadlineError(
                f"Kafka did not give the messages of {self._topic} in time; it said last: "
                f"{self._last or 'nothing'}"
            )


def merged(found: Mapping[Partition, Sequence[KafkaMessage]]) -> list[KafkaMessage]:
    """Returns the messages by event time, but each bucket's in its own order."""
    order = (_timed(number, messages) for number, messages in enumerate(found.values()))
    return [message for _, _, _, message in heapq.merge(*order, key=lambda each: each[:3])]


def _timed(
    number: int, messages: Sequence[KafkaMessage]
) -> Iterator[tuple[int, int, int, KafkaMessage]]:
    """Yields each message with the newest time of the bucket so far, which never falls."""
    newest = 0
    for message in messages:
        newest = max(newest, message.timestamp()[1])
        yield newest, number, message.offset() or 0, message
