"""What a split does to the messages of the split keys: from sending to ack, and to receiving."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from array import array
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import msgspec

from anabranch.client import Client, Producer
from anabranch.core.hashing import hash32, segment_hash
from anabranch.devkit.causality import Span, turned_round
from bench.figure import Measured, spread
from bench.load import KEYS, stamp, stamped
from bench.place import Place
from bench.scalable import TopicUnderTest

_RATE = 2_000
_PRODUCERS = 2
_SEGMENTS = 4
_SPLITS = 20
_APART_S = 0.5  # from the end of a split to the next one
_AROUND_S = 0.2  # of a split, belongs to it
_DEADLINE_S = 30.0
_TICK_S = 0.001
_AT_ONCE = 50  # messages at most in a tick: whoever is behind must let the consumer live, too
_GOAL_ACK_MS = 25.0
_GOAL_RECEIVE_MS = 60.0
_RING = [segment_hash(hash32(key)) for key in KEYS]

# Calls back with each value that arrives, until it is cancelled.
Consume = Callable[[Client, TopicUnderTest, Callable[[bytes], None]], Awaitable[None]]


class Split(msgspec.Struct, frozen=True):
    """When it was asked for and answered, and the split part of the ring, inclusive."""

    began: float
    ended: float
    start: int
    end: int


class Traffic:
    """Every message: when it was due, sent, acknowledged and received; two producers send."""

    def __init__(self) -> None:
        self.due = array("d")
        self.sent = array("d")
        self.acked = array("d")
        self.received = array("d")
        self.splits: list[Split] = []
        self._orders: dict[int, list[int]] = {}
        self._failure: Exception | None = None

    def send(self, producer: Producer, due: float) -> None:
        """Sends the next message, which was due at that time."""
        number = len(self.due)
        self.due.append(due)
        self.sent.append(time.perf_counter())
        self.acked.append(math.inf)
        self.received.append(math.inf)

        def settled(_: object, error: Exception | None) -> None:
            self._failure = self._failure or error
            self.acked[number] = time.perf_counter()

        producer.send_nowait(stamp(number), KEYS[number % len(KEYS)], on_delivery=settled)

    def take(self, value: bytes) -> None:
        """A message has come. Raises RuntimeError for one that came before."""
        self.take_any_order(value)
        number, _ = stamped(value)
        self._orders.setdefault(number % len(KEYS), []).append(number)

    def must_be_in_order(self) -> None:
        """Raises RuntimeError when what was acknowledged before another was sent came after it."""
        for key, order in self._orders.items():
            spans = {number: Span(self.sent[number], self.acked[number]) for number in order}
            for each in turned_round(order, spans):
                raise RuntimeError(f"of key {key} {each.effect} came before {each.cause}")

    def take_any_order(self, value: bytes) -> None:
        """The same for a consumer that promises no order."""
        number, _ = stamped(value)
        if self.received[number] < math.inf:
            raise RuntimeError(f"message {number} came twice")
        self.received[number] = time.perf_counter()

    @property
    def is_settled(self) -> bool:
        """Whether every message was acknowledged and received. Raises what a send failed with."""
        if self._failure is not None:
            raise self._failure
        return math.inf not in self.acked and math.inf not in self.received

    def worst_ms(self, until: array[float]) -> list[float]:
        """For each split, of the messages sent around it to its part of the ring."""
        return [
            self._worst(until, split, split.began - _TICK_S, split.ended + _AROUND_S)
            for split in self.splits
        ]

    def calm_ms(self, until: array[float]) -> list[float]:
        """The same part of the ring just before each split, for as long."""
        return [
            self._worst(until, split, 2 * split.began - split.ended - _AROUND_S, split.began - 0.05)
            for split in self.splits
        ]

    def _worst(self, until: array[float], split: Split, low: float, high: float) -> float:
        return 1000 * max(
            until[number] - due
            for number, due in enumerate(self.due)
            if low <= due <= high and split.start <= _RING[number % len(KEYS)] <= split.end
        )


def ack(place: Place) -> Measured:
    """The producer's part of the run with a stream consumer."""
    traffic = _with_stream(place)
    return _judged(traffic, traffic.acked, _GOAL_ACK_MS)


def stream(place: Place) -> Measured:
    """The stream consumer's part of it."""
    traffic = _with_stream(place)
    return _judged(traffic, traffic.received, _GOAL_RECEIVE_MS)


def queue(place: Place) -> Measured:
    """The same traffic with a queue consumer instead."""
    traffic = _with_queue(place)
    return _judged(traffic, traffic.received, _GOAL_RECEIVE_MS)


def _judged(traffic: Traffic, until: array[float], goal_ms: float) -> Measured:
    worst = traffic.worst_ms(until)
    value = statistics.median(worst)
    return Measured(
        value,
        "ms",
        value,
        goal_ms,
        details={
            "worst_of_each_split": spread(worst),
            "worst_just_before": spread(traffic.calm_ms(until)),
            "split_ms": spread([1000 * (split.ended - split.began) for split in traffic.splits]),
            "messages_per_s": _RATE,
        },
    )


@cache
def _with_stream(place: Place) -> Traffic:
    async def consume(client: Client, topic: TopicUnderTest, take: Callable[[bytes], None]) -> None:
        consumer = await client.subscribe(topic.name, "stream")
        while True:
            batch = await consumer.receive_many()
            for value in batch.values():
                take(value)
            consumer.acknowledge(batch)

    traffic = Traffic()
    asyncio.run(_run(place, traffic, consume, traffic.take))
    return traffic


def _with_queue(place: Place) -> Traffic:
    async def consume(client: Client, topic: TopicUnderTest, take: Callable[[bytes], None]) -> None:
        consumer = await client.subscribe_queue(topic.name, "queue")
        while True:
            for message in await consumer.receive_many():
                take(message.value)
            consumer.acknowledge_all()

    traffic = Traffic()
    asyncio.run(_run(place, traffic, consume, traffic.take_any_order))
    return traffic


async def _run(
    place: Place, traffic: Traffic, consume: Consume, take: Callable[[bytes], None]
) -> None:
    with TopicUnderTest(place, _SEGMENTS) as topic:
        async with Client(place.service_urls()) as client, asyncio.TaskGroup() as group:
            consuming = group.create_task(_as_task(consume(client, topic, take)))
            producers = [await client.create_producer(topic.name) for _ in range(_PRODUCERS)]
            over = asyncio.Event()
            sending = group.create_task(_send(producers, traffic, over))
            await _until(lambda: min(traffic.received[:_RATE], default=math.inf) < math.inf)
            await asyncio.sleep(1.0)
            for _ in range(_SPLITS // 4 if place.quick else _SPLITS):
                traffic.splits.append(await asyncio.to_thread(_split, topic))
                await asyncio.sleep(_APART_S)
            over.set()
            await sending
            await _until(lambda: traffic.is_settled)
            traffic.must_be_in_order()
            consuming.cancel()


async def _as_task(work: Awaitable[Any]) -> None:
    await work


async def _send(producers: list[Producer], traffic: Traffic, over: asyncio.Event) -> None:
    """Each key's messages by all of them in turn."""
    began = time.perf_counter()
    while not over.is_set():
        for _ in range(_AT_ONCE):
            number = len(traffic.due)
            if (due := began + number / _RATE) > time.perf_counter():
                break
            turn = number + number // len(KEYS)
            traffic.send(producers[turn % len(producers)], due)
        await asyncio.sleep(_TICK_S)


def _split(topic: TopicUnderTest) -> Split:
    """Splits the widest segment, of those the first."""
    active = topic.active()
    segment = max(active, key=lambda each: (active[each][1] - active[each][0], -each))
    began = time.perf_counter()
    topic.split(segment)
    return Split(began, time.perf_counter(), *active[segment])


async def _until(done: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _DEADLINE_S
    while not done():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not every message came within {_DEADLINE_S:.0f} s")
        await asyncio.sleep(0.01)
