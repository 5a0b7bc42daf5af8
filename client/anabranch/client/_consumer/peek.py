"""`peek`: a look at a topic's messages that leaves no trace: no subscription, no Kafka group.

It reads each bucket from the place asked for, at most as many messages as are wanted in all. It
returns them by event time, as far as each bucket's own order allows.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.assignment import Fetch, Partition, SegmentBucket, group_properties
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.group_offsets import Answers, GroupOffsets
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.messages import Message, Source
from anabranch.client._consumer.reads import ReadTrouble, partition_of
from anabranch.client._errors import DeadlineError
from anabranch.client._settings import EARLIEST, LATEST, ReadSettings, ReceivingSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError

_T = TypeVar("_T")

MESSAGES_MAX: Final = 10_000
_RETRY_S: Final = 0.1
_SESSION_S: Final = 40.0  # it commits nothing, and waits for Kafka as long as who does
_READ: Final = ReadSettings(bytes_max=8 * 1024 * 1024)


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
    places: dict[Partition, SegmentBucket] = {}
    firsts: dict[Partition, int] = {}
    for part in layout.segments.values():
        for bucket in range(part.info.buckets):
            places[part.kafka_topic, bucket] = SegmentBucket(part.segment_id, bucket)
            firsts[part.kafka_topic, bucket] = part.info.first_offset(bucket)
    # A group that is never joined, and in which nothing is committed, is not known to Kafka.
    given = group_properties(kafka, layout.bootstrap_servers, "anabranch-peek")
    look = _Look(given, places, firsts, messages_max)
    try:
        async with asyncio.timeout(timeout_s):
            found = await look.taken(start_ms)
    except TimeoutError:
        raise DeadlineError(
            f"Kafka did not give the messages of {layout.topic} in time{look.trouble.last}"
        ) from None
    finally:
        await look.close()
    raw = merged(found)
    sources = {
        partition: Source(layout.topic, 0, Holding(place, partition[0], None), settings)
        for partition, place in places.items()
    }
    shown = raw[-messages_max:] if start_ms == LATEST else raw[:messages_max]
    return [Message(message, sources[partition_of(message)]) for message in shown]


class _Trouble(ReadTrouble):
    """Passes over the missing right to a group that is not used."""

    def note(self, error: KafkaError | None, doing: str = "to read") -> None:
        if error is None or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            super().note(error, doing)


class _Look:
    """One peek. Its methods raise KafkaReadError."""

    def __init__(
        self,
        kafka: Mapping[str, Any],
        places: Mapping[Partition, SegmentBucket],
        firsts: Mapping[Partition, int],
        most: int,
    ) -> None:
        self._places = places
        self._firsts = firsts  # what lies before is another segment's
        self._most = most
        self._heard = asyncio.Event()
        self.trouble = _Trouble(self._heard.set)
        self._offsets = GroupOffsets(kafka, _SESSION_S, "")
        self._plane = DataPlane(kafka, _READ, self._heard.set, self.trouble)

    async def taken(self, start_ms: int) -> dict[Partition, list[KafkaMessage]]:
        """Returns messages of each bucket, as many as may be wanted."""
        spans = await self._spans(start_ms)
        found: dict[Partition, list[KafkaMessage]] = {each: [] for each in spans}
        partitions = [place for place, (begin, end) in spans.items() if begin < end]
        for number, place in enumerate(partitions):
            fetch = Fetch(number, self._places[place], place[0], None)
            self._plane.start(fetch, spans[place][0])
        left = set(range(len(partitions)))
        while left:
            self._heard.clear()
            read = self._plane.take()
            if read is None:
                self._check()
                await self._heard.wait()
                continue
            for message in read.messages:
                place = partition_of(message)
                if (message.offset() or 0) < spans[place][1]:
                    found[place].append(message)
            for number, reached in (*read.ends.items(), *read.reached.items()):
                if number in left and reached >= spans[partitions[number]][1]:
                    left.discard(number)
                    self._plane.stop(number)
        return found

    async def close(self) -> None:
        """Ends its clients of Kafka."""
        await asyncio.gather(asyncio.to_thread(self._offsets.close), self._plane.close())

    async def _spans(self, start_ms: int) -> dict[Partition, tuple[int, int]]:
        """Returns the offsets to read, the second one excluded."""
        found = await self._told(lambda: self._offsets.ranges(self._places))
        ranges = {
            place: (max(first, self._firsts[place]), end) for place, (first, end) in found.items()
        }
        begins = {place: first for place, (first, _) in ranges.items()}
        if start_ms == LATEST:
            begins = {p: max(first, end - self._most) for p, (first, end) in ranges.items()}
        elif start_ms != EARLIEST:
            at = await self._told(lambda: self._offsets.at(self._places, start_ms))
            begins = {p: e if at[p] < 0 else max(at[p], f) for p, (f, e) in ranges.items()}
        ends = {place: min(end, begins[place] + self._most) for place, (_, end) in ranges.items()}
        return {place: (begin, ends[place]) for place, begin in begins.items()}

    async def _told(self, ask: Callable[[], Awaitable[Answers[_T]]]) -> dict[Partition, _T]:
        """Asks until Kafka has told of all buckets."""
        while True:
            try:
                found, refused = await ask()
                if not refused:
                    return found
                self.trouble.note(next(iter(refused.values())))
            except KafkaException as error:
                self.trouble.note(error.args[0])
            self._check()
            await asyncio.sleep(_RETRY_S)

    def _check(self) -> None:
        if self.trouble.failure is not None:
            raise self.trouble.failure


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
