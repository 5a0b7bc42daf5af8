"""What stays undone while `StreamConsumer.run` goes on: one slow key, or every third message.

A position is a watermark and a map of what is done above it, in one commit of the Kafka group.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import time
from functools import cache
from typing import Any, Final, NamedTuple

from confluent_kafka import TopicPartition

from anabranch.client import Client, Message, Producer, Work
from anabranch.client._consumer.gaps import read
from anabranch.core.subscriptions.known_positions import parts_of
from bench.clients.bare import BareKafka
from bench.clients.load import VALUE, due_times, stamp, stamped
from bench.clients.working import DEADLINE_S, SUBSCRIPTION, run_until, send
from bench.figure import Measured, spread
from bench.place import Place, resident_mb
from bench.topics.topic_under_test import TopicUnderTest

_LOOK_S: Final = 0.05
_KAFKA_S: Final = 30.0


class Committed:
    """The positions of a subscription, as Kafka has them."""

    def __init__(self, kafka: BareKafka, topic: TopicUnderTest, subscription: str) -> None:
        self.group = topic.group(subscription)
        self._places = topic.buckets()
        self._consumer = kafka.consumer(**{"group.id": self.group})

    def maps(self) -> dict[tuple[int, int], tuple[int, str]]:
        """Watermark and map, by segment and bucket; what has no position is left out."""
        asked = [TopicPartition(*each) for each in self._places.values()]
        told = self._consumer.committed(asked, timeout=_KAFKA_S)
        found = {(each.topic, each.partition): each for each in told if each.offset >= 0}
        return {
            place: (found[where].offset, parts_of(found[where].metadata or "")[1])
            for place, where in self._places.items()
            if where in found
        }

    def done(self) -> dict[tuple[int, int], set[int]]:
        """Offsets that the maps name."""
        return {
            place: {
                offset
                for done in [read(text, self.group, self._places[place], at, sys.maxsize)]
                for start, end in (done.runs if done is not None else ())
                for offset in range(start, end)
            }
            for place, (at, text) in self.maps().items()
            if text
        }

    def close(self) -> None:
        self._consumer.close()

    async def largest(self) -> int:
        """Characters of the largest map, looked for until it is cancelled."""
        most = 0
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                found = await asyncio.to_thread(self.maps)
                most = max(most, *(len(text) for _, text in found.values()), 0)
                await asyncio.sleep(_LOOK_S)
        return most


def _one_bucket(topic: TopicUnderTest) -> None:
    (segment,) = topic.active()
    topic.rebucket(segment, 1)


# --- a slow key -----------------------------------------------------------------------------

_PER_S: Final = 2_000  # messages of the other keys
_SECONDS: Final = 60
_WARM_S: Final = 2.0  # what is sent until then does not count
_OTHERS: Final = [f"key-{number}".encode() for number in range(99)]
_SLOW: Final = b"slow"


class _Beside(NamedTuple):
    """The keys of 1 ms. Times in seconds."""

    per_s: float
    waits_ms: dict[str, float]  # from being sent to being begun
    longest_pause_ms: float  # in which none of them began
    map_characters: int  # of the largest map
    slow_done: int


def slow_rate(place: Place) -> Measured:
    """Messages a second of 99 keys, beside a key that takes a second for each of its messages."""
    alone, beside = _beside(place)
    details = _beside_details(alone, beside)
    return _share(beside.per_s, alone.per_s, "the same keys without the slow one", details)


def _share(per_s: float, alone_per_s: float, alone: str, details: dict[str, Any]) -> Measured:
    """A rate beside that without the trouble, nearly all of which is to be kept."""
    share = per_s / alone_per_s
    return Measured(
        per_s,
        "msg/s",
        share,
        0.95,
        at_least=True,
        limit=alone_per_s,
        limit_what=alone,
        details=details,
    )


def slow_wait(place: Place) -> Measured:
    """p99 of how long their messages wait to be begun, beside the same without the slow key."""
    alone, beside = _beside(place)
    value = beside.waits_ms["p99"]
    return Measured(
        value,
        "ms",
        value,
        20.0,
        limit=alone.waits_ms["p99"],
        limit_what="the same keys without the slow one",
        details=_beside_details(alone, beside),
    )


def slow_map(place: Place) -> Measured:
    """The largest map in Kafka meanwhile, as text."""
    alone, beside = _beside(place)
    value = float(beside.map_characters)
    return Measured(value, "bytes", value, 64.0, details=_beside_details(alone, beside))


def _beside_details(alone: _Beside, beside: _Beside) -> dict[str, Any]:
    return {
        "sent_per_s": _PER_S,
        "keys": len(_OTHERS),
        "buckets": 1,
        "with": beside._asdict(),
        "without": alone._asdict(),
    }


@cache
def _beside(place: Place) -> tuple[_Beside, _Beside]:
    """Without the slow key, and with it."""
    seconds = 10 if place.quick else _SECONDS
    found = []
    for is_slow in (False, True):
        with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
            _one_bucket(topic)
            found.append(asyncio.run(_steady(place, topic, kafka, seconds, is_slow)))
    return found[0], found[1]


async def _steady(
    place: Place, topic: TopicUnderTest, kafka: BareKafka, seconds: int, is_slow: bool
) -> _Beside:
    waits, begun = list[float](), list[float]()
    counted, warm, slow = int(_PER_S * (seconds - _WARM_S)), int(_PER_S * _WARM_S), 0
    over = asyncio.Event()

    async def handle(message: Message, _: Work) -> None:
        nonlocal slow
        now = time.perf_counter()
        if message.key == _SLOW:
            await asyncio.sleep(1.0)
            slow += 1
            return
        number, at = stamped(message.value)
        if number >= warm:
            begun.append(now)
            waits.append(1000 * (now - at))
            if len(waits) == counted:
                over.set()
        await asyncio.sleep(0.001)

    async with Client(place.service_urls()) as client, asyncio.timeout(seconds + DEADLINE_S):
        consumer = await client.subscribe(topic.name, SUBSCRIPTION)
        producer = await client.create_producer(topic.name)
        committed = await asyncio.to_thread(Committed, kafka, topic, SUBSCRIPTION)
        looking = asyncio.create_task(committed.largest())

        async def sent_and_begun() -> None:
            await _send_steadily(producer, seconds, is_slow)
            await over.wait()

        try:
            await run_until(consumer, handle, sent_and_begun())
        finally:
            looking.cancel()
            largest = await looking
            committed.close()
    pauses = [1000 * (b - a) for a, b in itertools.pairwise(begun)]
    per_s = (counted - 1) / (begun[-1] - begun[0])
    return _Beside(per_s, spread(waits), max(pauses), largest, slow)


async def _send_steadily(producer: Producer, seconds: int, is_slow: bool) -> None:
    """Paced by a thread: the loop's timers are late by up to a millisecond or two."""
    loop = asyncio.get_running_loop()

    def send_one(number: int) -> None:
        producer.send_nowait(stamp(number), _OTHERS[number % len(_OTHERS)])
        if is_slow and number % _PER_S == 0:
            producer.send_nowait(VALUE, _SLOW)

    def pace() -> None:
        for number in due_times(_PER_S * seconds, _PER_S):
            loop.call_soon_threadsafe(send_one, number)

    await asyncio.to_thread(pace)


# --- many that do not end -------------------------------------------------------------------

_SPAN: Final = 24_000  # offsets for which bits always fit
_EVERY: Final = 3  # every second one would fill the slots, of which 10,000 are the most
_WIDEST: Final = 10_000
_BACKLOG: Final = 40_000
_STILL_S: Final = 2.0  # for which nothing more begins at the bound
_MAP_MAX: Final = 4_096.0  # characters of Kafka's metadata, unless an operator says otherwise


class _Alternating(NamedTuple):
    """`begun`: messages until nothing more began. `again`: done ones that came again."""

    begun: int
    per_s: float
    map_characters: int
    grown_mb: float
    again: int


def alternating_rate(place: Place) -> Measured:
    """Every third message does not end: how fast the first 24,000 offsets begin, beside none."""
    alone, beside = _alternating(place)
    details = _alternating_details(alone, beside)
    return _share(beside.per_s, alone.per_s, "the same messages, where all end", details)


def alternating_map(place: Place) -> Measured:
    """The largest map in Kafka of that. Another consumer begins nothing again that was done."""
    alone, beside = _alternating(place)
    value = float(beside.map_characters)
    return Measured(value, "bytes", value, _MAP_MAX, details=_alternating_details(alone, beside))


def _alternating_details(alone: _Alternating, beside: _Alternating) -> dict[str, Any]:
    return {
        "messages": _BACKLOG,
        "keys": _BACKLOG,
        "one_does_not_end_of": _EVERY,
        "handler_ms": 1,
        "concurrency": _WIDEST,
        "buckets": 1,
        "with": beside._asdict(),
        "without": alone._asdict(),
    }


@cache
def _alternating(place: Place) -> tuple[_Alternating, _Alternating]:
    """Where all end, and where every third does not.

    Raises RuntimeError if something that was done began again.
    """
    found = []
    with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
        _one_bucket(topic)
        pairs = [(f"key-{number}".encode(), VALUE) for number in range(_BACKLOG)]
        asyncio.run(send(place, topic, pairs))
        for name in ("none", "stuck"):
            turn = _until_bound(place, topic, kafka, name, is_stuck=name == "stuck")
            found.append(asyncio.run(turn))
    return found[0], found[1]


async def _until_bound(
    place: Place, topic: TopicUnderTest, kafka: BareKafka, name: str, *, is_stuck: bool
) -> _Alternating:
    go_on, over = asyncio.Event(), asyncio.Event()
    begun, done, again = dict[int, float](), set[int](), set[int]()
    before_mb, least = resident_mb(os.getpid()), _SPAN if is_stuck else _BACKLOG

    async def handle(message: Message, _: Work) -> None:
        offset = message.offset
        if offset in done:
            again.add(offset)
        begun.setdefault(offset, time.perf_counter())
        if is_stuck and offset % _EVERY == 0:
            await go_on.wait()
        await asyncio.sleep(0.001)
        done.add(offset)
        if len(done) == _BACKLOG:
            over.set()

    async def still() -> None:
        """Until the bound is reached, if there is one, and nothing more begins."""
        count, since = 0, time.monotonic()
        while len(begun) < least or time.monotonic() < since + _STILL_S:
            if len(begun) == _BACKLOG:
                return
            if len(begun) > count:
                count, since = len(begun), time.monotonic()
            await asyncio.sleep(_LOOK_S)

    async with Client(place.service_urls()) as client, asyncio.timeout(DEADLINE_S):
        consumer = await client.subscribe(topic.name, name)
        committed = await asyncio.to_thread(Committed, kafka, topic, name)
        looking = asyncio.create_task(committed.largest())
        work = asyncio.create_task(consumer.run(handle, concurrency=_WIDEST))
        try:
            await still()
            grown_mb = resident_mb(os.getpid()) - before_mb
            stopped_at = len(begun)
        finally:
            await consumer.close()  # cancels what runs
            await work
            looking.cancel()
            largest = await looking
            committed.close()
        go_on.set()
        consumer = await client.subscribe(topic.name, name)
        await run_until(consumer, handle, over.wait(), concurrency=_WIDEST)
    if again:
        raise RuntimeError(f"{len(again)} messages that were done began again")
    first = sorted(begun.values())[: min(_SPAN, stopped_at)]
    per_s = len(first) / (first[-1] - first[0])
    return _Alternating(stopped_at, per_s, largest, grown_mb, len(again))
