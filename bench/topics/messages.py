"""Pauses that a split, a merge or a prepare makes for messages of its keys.

Each message is followed from the time at which it was due to its acknowledgement and its receipt.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any

import msgspec

from anabranch.client import Client, Producer
from anabranch.core.entities.segment import RING16_END
from anabranch.core.hashing import hash32, segment_hash
from anabranch.devkit.causality import Span, turned_round
from bench.clients.load import KEYS, stamp, stamped
from bench.figure import Measured, spread
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

RATE = 200  # messages a second
FAST = 2_000
_PRODUCERS = 2
_SEGMENTS = 4
_CHANGES = 20
_PREPARED = (8, 3)  # segments, in turn
_APART_S = 3.0  # from the end of a change to the next one
_AROUND_S = 0.2  # of a change, belongs to it
_DEADLINE_S = 30.0
_TICK_S = 0.001
_AT_ONCE = 500  # messages at most in a tick: whoever is behind must let the consumer live, too
_RING = [segment_hash(hash32(key)) for key in KEYS]

Pick = Callable[[list[float]], float]

# Calls back with each value that arrives, until it is cancelled.
Consume = Callable[[Client, TopicUnderTest, Callable[[bytes], None]], Awaitable[None]]


class Change(msgspec.Struct, frozen=True):
    """When it was asked for and answered, and the part of the ring that it is of, inclusive."""

    began: float
    ended: float
    start: int
    end: int


# Changes a topic, again and again, and notes when; a few times only where it is to be quick.
Disturb = Callable[[TopicUnderTest, "Traffic", bool], Awaitable[None]]


class Traffic:
    """Every message: when it was due, sent, acknowledged and received; two producers send."""

    def __init__(self, rate: int) -> None:
        self.rate = rate  # messages a second
        self.due = array("d")
        self.sent = array("d")
        self.acked = array("d")
        self.received = array("d")
        self.splits: list[Change] = []
        self.merges: list[Change] = []
        self.prepares: list[Change] = []
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

    def worst_ms(self, until: array[float], changes: Iterable[Change]) -> list[float]:
        """For each change, of the messages sent around it to its part of the ring."""
        return [
            self._worst(until, change, change.began - _TICK_S, change.ended + _AROUND_S)
            for change in changes
        ]

    def calm_ms(self, until: array[float], changes: Iterable[Change]) -> list[float]:
        """The same part of the ring just before each change, for as long."""
        return [
            self._worst(until, each, 2 * each.began - each.ended - _AROUND_S, each.began - 0.05)
            for each in changes
        ]

    def _worst(self, until: array[float], change: Change, low: float, high: float) -> float:
        took = [
            until[number] - due
            for number, due in enumerate(self.due)
            if low <= due <= high and change.start <= _RING[number % len(KEYS)] <= change.end
        ]
        if not took:
            raise RuntimeError("the load is too late: it sent nothing that was due around a change")
        return 1000 * max(took)


def ack(place: Place, rate: int = RATE) -> Measured:
    """The producer's part of the run with a stream consumer: the median of all changes."""
    traffic = _with_stream(place, rate)
    return _judged(traffic, traffic.acked, statistics.median, _goal_ms(place, 25.0, 100.0))


def ack_worst(place: Place) -> Measured:
    """The worst change of all."""
    traffic = _with_stream(place, RATE)
    return _judged(traffic, traffic.acked, max, _goal_ms(place, 25.0, 250.0))


def prepare(place: Place) -> Measured:
    """The worst of each prepare of all keys, up and down, beside splits in the same run."""
    traffic = Traffic(RATE)
    _run(place, traffic, _stream, traffic.take, _split_and_prepare)
    worst = traffic.worst_ms(traffic.acked, traffic.prepares)
    splits = traffic.worst_ms(traffic.acked, traffic.splits)
    value, limit = statistics.median(worst), statistics.median(splits)
    return Measured(
        value,
        "ms",
        value / limit,
        1.5,
        limit=limit,
        limit_what="the same of the splits of one segment in four",
        floor=statistics.median(traffic.calm_ms(traffic.acked, traffic.prepares)),
        floor_what="the worst of the same keys just before each prepare, for as long",
        details={
            "worst_of_each_prepare": worst,
            "worst_of_each_split": splits,
            "prepare_ms": _took_ms(traffic.prepares),
            "split_ms": _took_ms(traffic.splits),
        },
    )


def stream(place: Place, rate: int = RATE) -> Measured:
    """The stream consumer's part of it."""
    traffic = _with_stream(place, rate)
    return _judged(traffic, traffic.received, statistics.median, _goal_ms(place, 60.0, 150.0))


def queue(place: Place, rate: int = RATE) -> Measured:
    """The same traffic with a queue consumer instead."""
    traffic = _with_queue(place, rate)
    return _judged(traffic, traffic.received, statistics.median, _goal_ms(place, 60.0, 200.0))


def _goal_ms(place: Place, on_one: float, on_three: float) -> float:
    return on_one if place.brokers == 1 else on_three


def _took_ms(changes: Iterable[Change]) -> dict[str, float]:
    return spread([1000 * (each.ended - each.began) for each in changes])


def _judged(traffic: Traffic, until: array[float], pick: Pick, goal_ms: float) -> Measured:
    kinds = {"split": traffic.splits, "merge": traffic.merges}
    changes = [each for found in kinds.values() for each in found]
    worst, calm = traffic.worst_ms(until, changes), traffic.calm_ms(until, changes)
    value = pick(worst)
    return Measured(
        value,
        "ms",
        value,
        goal_ms,
        floor=pick(calm),
        floor_what="the worst of the same keys just before each change, for as long",
        details={
            "worst_of_each_change": spread(worst),
            "worst_just_before": spread(calm),
            **{f"worst_of_each_{name}": traffic.worst_ms(until, kinds[name]) for name in kinds},
            **{f"{name}_ms": _took_ms(found) for name, found in kinds.items()},
            "messages_per_s": traffic.rate,
        },
    )


@cache
def _with_stream(place: Place, rate: int) -> Traffic:
    traffic = Traffic(rate)
    _run(place, traffic, _stream, traffic.take, _split_and_merge)
    return traffic


async def _stream(client: Client, topic: TopicUnderTest, take: Callable[[bytes], None]) -> None:
    consumer = await client.subscribe(topic.name, "stream")
    while True:
        batch = await consumer.receive_many()
        for value in batch.values():
            take(value)
        consumer.acknowledge(batch)


def _with_queue(place: Place, rate: int) -> Traffic:
    async def consume(client: Client, topic: TopicUnderTest, take: Callable[[bytes], None]) -> None:
        consumer = await client.subscribe_queue(topic.name, "queue")
        while True:
            for message in await consumer.receive_many():
                take(message.value)
            consumer.acknowledge_all()

    traffic = Traffic(rate)
    _run(place, traffic, consume, traffic.take_any_order, _split_and_merge)
    return traffic


def _run(
    place: Place,
    traffic: Traffic,
    consume: Consume,
    take: Callable[[bytes], None],
    disturb: Disturb,
) -> None:
    """Raises RuntimeError with what went wrong, of all that ran at once."""
    try:
        asyncio.run(_traffic(place, traffic, consume, take, disturb))
    except ExceptionGroup as group:
        raise RuntimeError("; ".join(map(str, group.exceptions))) from group


async def _traffic(
    place: Place,
    traffic: Traffic,
    consume: Consume,
    take: Callable[[bytes], None],
    disturb: Disturb,
) -> None:
    with TopicUnderTest(place, _SEGMENTS) as topic:
        async with Client(place.service_urls()) as client, asyncio.TaskGroup() as group:
            consuming = group.create_task(_as_task(consume(client, topic, take)))
            producers = [await client.create_producer(topic.name) for _ in range(_PRODUCERS)]
            over = asyncio.Event()
            sending = group.create_task(_send(producers, traffic, over))
            await _until(lambda: min(traffic.received[: traffic.rate], default=math.inf) < math.inf)
            await asyncio.sleep(1.0)
            await disturb(topic, traffic, place.quick)
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
            if (due := began + number / traffic.rate) > time.perf_counter():
                break
            turn = number + number // len(KEYS)
            traffic.send(producers[turn % len(producers)], due)
        await asyncio.sleep(_TICK_S)


async def _split_and_merge(topic: TopicUnderTest, traffic: Traffic, quick: bool) -> None:
    for _ in range((_CHANGES // 4 if quick else _CHANGES) // 2):
        traffic.splits.append(await asyncio.to_thread(_change, topic, topic.split))
        await asyncio.sleep(_APART_S)
        traffic.merges.append(await asyncio.to_thread(_merge_newest, topic))
        await asyncio.sleep(_APART_S)


async def _split_and_prepare(topic: TopicUnderTest, traffic: Traffic, quick: bool) -> None:
    """Each time from as many segments as at the beginning, to which it is prepared again."""
    for number in range((_CHANGES // 4 if quick else _CHANGES) // 2):
        traffic.splits.append(await asyncio.to_thread(_change, topic, topic.split))
        await asyncio.sleep(_APART_S)
        for count in (_PREPARED[number % 2], _SEGMENTS):
            traffic.prepares.append(await asyncio.to_thread(_prepare, topic, count))
            await asyncio.sleep(_APART_S)


def _prepare(topic: TopicUnderTest, count: int) -> Change:
    began = time.perf_counter()
    topic.prepare(count)
    return Change(began, time.perf_counter(), 0, RING16_END)


def _change(topic: TopicUnderTest, act: Callable[[int], None]) -> Change:
    """Of the widest segment, of those the first."""
    active = topic.active()
    segment = max(active, key=lambda each: (active[each][1] - active[each][0], -each))
    began = time.perf_counter()
    act(segment)
    return Change(began, time.perf_counter(), *active[segment])


def _merge_newest(topic: TopicUnderTest) -> Change:
    """The two segments that the split before has made."""
    active = topic.active()
    one, other = sorted(active)[-2:]
    began = time.perf_counter()
    topic.merge(one, other)
    ended = time.perf_counter()
    start, end = min(active[one], active[other])[0], max(active[one], active[other])[1]
    return Change(began, ended, start, end)


async def _until(done: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _DEADLINE_S
    while not done():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not every message came within {_DEADLINE_S:.0f} s")
        await asyncio.sleep(0.01)
