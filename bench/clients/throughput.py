"""Producing, and consuming a backlog, as fast as it goes: the SDK, and the bare client in turn."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import cache

from anabranch.client import BufferFullError, Client, Producer
from bench.clients import bare
from bench.clients.bare import BareKafka
from bench.clients.load import BATCH, BATCH_MAX, KEYS, VALUE, Pace
from bench.figure import Measured
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_SEGMENTS = 4
_REPEATS = 5
_TURNS = 3
_DEADLINE_S = 60.0
_TURN = 500  # messages between two turns of the event loop

_Produce = Callable[[Producer, int], Awaitable[None]]


def produce_each(place: Place) -> Measured:
    """`send_nowait` for each message against `produce` for each, both with a report of each."""
    return _produce(place, _one_by_one, bare.produce_each, 0.85)


def produce_many(place: Place) -> Measured:
    """`send_many` against `produce_batch`."""
    return _produce(place, _many, bare.produce_batches, 0.8)


async def _one_by_one(producer: Producer, count: int) -> None:
    send = producer.send_nowait
    for number in range(count):
        if number % _TURN == 0:
            await asyncio.sleep(0)
        key = KEYS[number % len(KEYS)]
        while True:
            try:
                send(VALUE, key)
                break
            except BufferFullError:
                await producer.room()


async def _many(producer: Producer, count: int) -> None:
    pairs = [(key, VALUE) for key in KEYS]
    sent = 0
    for at in itertools.cycle(range(0, len(pairs), BATCH)):
        if sent == count:
            break
        sent += await producer.send_many(pairs[at : at + BATCH])


def _produce(
    place: Place,
    ours: _Produce,
    limit: Callable[[BareKafka, str, int], float],
    goal: float,
) -> Measured:
    count = 50_000 if place.quick else 400_000
    rates, limits = [], []
    for _ in range(_REPEATS):
        with TopicUnderTest(place, _SEGMENTS) as topic, BareKafka(place) as kafka:
            rates.append(asyncio.run(_rate(place, topic, ours, count)))
            partitions = _SEGMENTS * topic.partitions(0)
            limits.append(limit(kafka, kafka.topic(partitions), count))
    ratio = statistics.median(ours / most for ours, most in zip(rates, limits, strict=True))
    return Measured(
        statistics.median(rates),
        "msg/s",
        ratio,
        goal,
        at_least=True,
        limit=statistics.median(limits),
        limit_what="bare confluent-kafka, as many partitions, the same settings",
        details={"messages": count, "segments": _SEGMENTS, "rates": rates, "limits": limits},
    )


async def _rate(place: Place, topic: TopicUnderTest, ours: _Produce, count: int) -> float:
    async with Client(place.nodes[0].service_url()) as client:
        producer = await client.create_producer(topic.name)
        began = time.perf_counter()
        await ours(producer, count)
        await producer.flush()
        return count / (time.perf_counter() - began)


# --- consuming ------------------------------------------------------------------------------


def consume_stream(place: Place) -> Measured:
    """A new subscription, read from the first message to the last one."""
    return _consumed(place, "stream")


def consume_queue(place: Place) -> Measured:
    """The same with a queue consumer, which acknowledges each message."""
    return _consumed(place, "queue")


def _consumed(place: Place, kind: str) -> Measured:
    rates = _backlog(place)
    pairs = zip(rates[kind], rates["bare"], strict=True)
    return Measured(
        statistics.median(rates[kind]),
        "msg/s",
        statistics.median(ours / most for ours, most in pairs),
        0.8,
        at_least=True,
        limit=statistics.median(rates["bare"]),
        limit_what="bare confluent-kafka, `consume` with a deep queue, the same partitions",
        details={"segments": _SEGMENTS, "rates": rates},
    )


@cache
def _backlog(place: Place) -> dict[str, list[float]]:
    """Messages per second of each kind, in turn, of one backlog."""
    count = 200_000 if place.quick else 1_000_000
    rates: dict[str, list[float]] = {"bare": [], "bare share group": [], "stream": [], "queue": []}
    with TopicUnderTest(place, _SEGMENTS) as topic, BareKafka(place) as kafka:
        asyncio.run(_rate(place, topic, _many, count))
        for turn in range(_TURNS):
            names = topic.kafka_topics()
            rates["bare"].append(bare.consume(kafka, names, count))
            rates["bare share group"].append(bare.consume_shared(kafka, names, count))
            for kind, read in (("stream", _read_stream), ("queue", _read_queue)):
                rates[kind].append(asyncio.run(read(place, topic, f"{kind}-{turn}", count)))
    return rates


async def _read_stream(place: Place, topic: TopicUnderTest, name: str, count: int) -> float:
    pace = Pace(count)
    async with Client(place.service_urls()) as client, asyncio.timeout(_DEADLINE_S):
        consumer = await client.subscribe(topic.name, name)
        while not pace.is_over:
            batch = await consumer.receive_many()
            pace.took(batch.values())
            consumer.acknowledge(batch)
        await consumer.flush()
    return pace.rate


async def _read_queue(place: Place, topic: TopicUnderTest, name: str, count: int) -> float:
    pace = Pace(count)
    async with Client(place.service_urls()) as client, asyncio.timeout(_DEADLINE_S):
        consumer = await client.subscribe_queue(topic.name, name, messages_max=BATCH_MAX)
        while not pace.is_over:
            pace.took((await consumer.receive_many()).values())
            consumer.acknowledge_all()
    return pace.rate
