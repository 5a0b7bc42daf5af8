"""From one end to the other: at a steady rate, and when one consumer takes over from another."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import cache

from anabranch.client import Client, Producer, ProducerSettings, StreamConsumer
from bench.clients import bare
from bench.clients.bare import BareKafka
from bench.clients.load import KEYS, Waited, due_times, keep_sending, stamp, stamped
from bench.figure import Measured, spread
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_RATE = 1_000
_SECONDS = 3
_REPEATS = 5
_DEFAULT_MS = ProducerSettings().linger_ms
_SEGMENTS = 4
_TICK_S = 0.001
_DEADLINE_S = 30.0
_HAND_OVERS = 10
_WHAT = "bare confluent-kafka, a thread for each end, as many partitions, the same settings"


# --- end to end -----------------------------------------------------------------------------


def median(place: Place) -> Measured:
    """50th percentile of send to receive, producer and consumer on one event loop."""
    return _judged(place, _DEFAULT_MS, "p50", 1.5)


def tail(place: Place) -> Measured:
    """99th percentile of the same."""
    return _judged(place, _DEFAULT_MS, "p99", 2.0)


def tuned_median(place: Place) -> Measured:
    """The same when no message waits for company."""
    return _judged(place, 0.0, "p50", 1.5)


def tuned_tail(place: Place) -> Measured:
    """99th percentile of that."""
    return _judged(place, 0.0, "p99", 2.0)


def _judged(place: Place, linger_ms: float, which: str, goal: float) -> Measured:
    ours, limits = _end_to_end(place, linger_ms)
    value = statistics.median(each[which] for each in ours)
    limit = statistics.median(each[which] for each in limits)
    ratio = statistics.median(
        mine[which] / bare[which] for mine, bare in zip(ours, limits, strict=True)
    )
    return Measured(
        value,
        "ms",
        ratio,
        goal,
        limit=limit,
        limit_what=_WHAT,
        details={
            "messages_per_s": _RATE,
            "linger_ms": linger_ms,
            "each": ours,
            "bare": limits,
        },
    )


@cache
def _end_to_end(
    place: Place, linger_ms: float
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Spreads of ours and of the bare client's, measured in turn."""
    seconds = 2 if place.quick else _SECONDS
    ours, limits = [], []
    for _ in range(_REPEATS):
        with TopicUnderTest(place, _SEGMENTS) as topic, BareKafka(place) as kafka:
            ours.append(spread(asyncio.run(_ours(place, topic, seconds, linger_ms))))
            bare_topic = kafka.topic(_SEGMENTS * topic.partitions(0))
            took = bare.end_to_end(kafka, bare_topic, _RATE, seconds, linger_ms)
            limits.append(spread(took))
    return ours, limits


async def _ours(
    place: Place, topic: TopicUnderTest, seconds: float, linger_ms: float
) -> list[float]:
    count = int(_RATE * seconds)
    waited = Waited(count)
    async with Client(place.service_urls()) as client, asyncio.timeout(_DEADLINE_S):
        consumer = await client.subscribe(topic.name, "bench")
        producer = await client.create_producer(topic.name, linger_ms=linger_ms)
        sending = asyncio.create_task(_send(producer, count))
        while not waited.is_complete:
            batch = await consumer.receive_many()
            for value in batch.values():
                waited.came(*stamped(value))
            consumer.acknowledge(batch)
        await sending
    return waited.settled()


async def _send(producer: Producer, count: int) -> None:
    """Sends at the moments at which the bare client does, each message by itself.

    A task that sleeps could not: the loop's timers are late by up to a millisecond or two.
    """
    loop = asyncio.get_running_loop()

    def send(number: int) -> None:
        producer.send_nowait(stamp(number), KEYS[number % len(KEYS)])

    def pace() -> None:
        for number in due_times(count, _RATE):
            loop.call_soon_threadsafe(send, number)

    await asyncio.to_thread(pace)


# --- hand-over ------------------------------------------------------------------------------


def hand_over(place: Place) -> Measured:
    """One of two consumers closes and a third one opens: until that one is served all it gets.

    From the call of `close` to the first message from each bucket that the newcomer is to have,
    while messages keep coming.
    """
    took = asyncio.run(_hand_overs(place, 3 if place.quick else _HAND_OVERS))
    value = max(took)
    return Measured(value, "s", value, 1.0, details={"each": took, "consumers": 2})


async def _hand_overs(place: Place, count: int) -> list[float]:
    took = []
    with TopicUnderTest(place, _SEGMENTS) as topic:
        async with Client(place.service_urls()) as client:
            producer = await client.create_producer(topic.name)
            sending = asyncio.create_task(keep_sending(producer))
            staying = asyncio.create_task(_serve(await client.subscribe(topic.name, "bench", "a")))
            leaving = await client.subscribe(topic.name, "bench", "leaving-0")
            try:
                await _until_served(leaving, set())
                for number in range(count):
                    share = set(leaving.buckets)
                    began = time.perf_counter()
                    await leaving.close()
                    leaving = await client.subscribe(topic.name, "bench", f"leaving-{number + 1}")
                    await _until_served(leaving, share)
                    took.append(time.perf_counter() - began)
            finally:
                sending.cancel()
                staying.cancel()
    return took


async def _serve(consumer: StreamConsumer) -> None:
    while True:
        consumer.acknowledge(await consumer.receive_many())


async def _until_served(consumer: StreamConsumer, share: set[tuple[int, int]]) -> None:
    """Until there came a message from each bucket of the share; without one, from any two."""
    seen: set[tuple[int, int]] = set()
    async with asyncio.timeout(_DEADLINE_S):
        while not (seen >= share if share else len(seen) >= _SEGMENTS // 2):
            batch = await consumer.receive_many()
            seen.update((message.segment_id, message.bucket) for message in batch)
            consumer.acknowledge(batch)
