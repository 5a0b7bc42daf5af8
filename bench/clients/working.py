"""How fast `StreamConsumer.run` works through a backlog, beside a bare loop with the same handler.

The bare loop (`bare.work`) reads the same Kafka topics, and has a task for each message.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, NamedTuple, Unpack

from confluent_kafka import Message as KafkaMessage

from anabranch.client import (
    Backoff,
    Client,
    DeadLetterPolicy,
    Handler,
    Message,
    Retry,
    RunOptions,
    StreamConsumer,
    Work,
)
from bench.clients import bare
from bench.clients.bare import BareKafka
from bench.clients.load import VALUE
from bench.figure import Measured
from bench.place import Place, resident_mb
from bench.topics.topic_under_test import TopicUnderTest

SUBSCRIPTION: Final = "bench"
DEADLINE_S: Final = 300.0  # of one turn
_SEGMENTS: Final = 4
_TURNS: Final = 3
_KEYS: Final = 100_000
_LOOK_EVERY: Final = 10_000  # messages, after which the memory is looked at
_MEMORY_MB: Final = 64 + 50e6 / 2**20  # what is read ahead, and all else
_BARE: Final = "a bare loop: consume(500) on a thread, a task each under a semaphore; no order"

_Ends = Callable[[], None]


class Turn(NamedTuple):
    """A backlog once, from the start of its first handler to the end of its last one."""

    per_s: float
    processor_us: float  # of a message, of all threads of this process
    grown_mb: float  # of this process, at most


class Pace:
    """Counts handlers, which may end on any thread. Made on the event loop."""

    def __init__(self, count: int) -> None:
        self.over = asyncio.Event()
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)  # one step of it is one step for all threads
        self._began: tuple[float, float] | None = None
        self._ended = (0.0, 0.0)
        self._before_mb = self._most_mb = resident_mb(os.getpid())

    def begins(self) -> None:
        if self._began is None:
            self._began = _clocks()

    def ends(self) -> None:
        number = next(self._numbers)
        if number % _LOOK_EVERY == 0:
            self._most_mb = max(self._most_mb, resident_mb(os.getpid()))
        if number == self._count:
            self._ended = _clocks()
            self._loop.call_soon_threadsafe(self.over.set)

    @property
    def turn(self) -> Turn:
        began = self._began or self._ended
        took_s, worked_s = (b - a for a, b in zip(began, self._ended, strict=True))
        grown_mb = self._most_mb - self._before_mb
        return Turn(self._count / took_s, worked_s * 1e6 / self._count, grown_mb)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


async def send(place: Place, topic: TopicUnderTest, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Returns once Kafka has all of these keys and values."""
    async with Client(place.service_urls()) as client, asyncio.timeout(DEADLINE_S):
        producer = await client.create_producer(topic.name)
        await producer.send_many(pairs)
        await producer.flush()


async def run_until(
    consumer: StreamConsumer,
    handler: Handler,
    over: Coroutine[Any, Any, object],
    **options: Unpack[RunOptions],
) -> None:
    """Runs until `over` returns, then stops the consumer. Raises what ends either earlier."""
    body = asyncio.create_task(over)
    work = asyncio.create_task(consumer.run(handler, **options))
    try:
        await asyncio.wait([body, work], return_when=asyncio.FIRST_COMPLETED)
        if not body.done():
            await work
            raise RuntimeError(f"{consumer.consumer_name} has ended before its work was done")
        await body
    finally:
        body.cancel()
        await asyncio.gather(body, return_exceptions=True)
        await consumer.stop()
        await work


# --- a backlog, by both -----------------------------------------------------------------------


class _Task(NamedTuple):
    """What is done with each message of a backlog. `sleeps`: in a thread, else in a coroutine."""

    keys: list[bytes]
    wait_s: float
    concurrency: int
    in_threads: bool = False

    def handler(self, pace: Pace) -> Handler:
        """As `run` takes it."""
        wait_s = self.wait_s

        async def none(_: Message, __: Work) -> None:
            pace.begins()
            pace.ends()

        async def wait(_: Message, __: Work) -> None:
            pace.begins()
            await asyncio.sleep(wait_s)
            pace.ends()

        def block(_: Message, __: Work) -> None:
            self._block(pace)

        return block if self.in_threads else wait if wait_s else none

    def bare(self, pace: Pace, pool: ThreadPoolExecutor) -> Callable[[Any], Awaitable[None]]:
        """The same for the bare loop."""
        wait_s, loop = self.wait_s, asyncio.get_running_loop()

        async def none(_: KafkaMessage) -> None:
            pace.begins()
            pace.ends()

        async def wait(_: KafkaMessage) -> None:
            pace.begins()
            await asyncio.sleep(wait_s)
            pace.ends()

        async def block(_: KafkaMessage) -> None:
            await loop.run_in_executor(pool, self._block, pace)

        return block if self.in_threads else wait if wait_s else none

    def _block(self, pace: Pace) -> None:
        pace.begins()
        time.sleep(self.wait_s)
        pace.ends()


class _Turns(NamedTuple):
    ours: list[Turn]
    bare: list[Turn]

    def details(self, task: _Task) -> dict[str, Any]:
        return {
            "messages": len(task.keys),
            "keys": len(set(task.keys)),
            "handler_ms": 1000 * task.wait_s,
            "concurrency": task.concurrency,
            "segments": _SEGMENTS,
            "turns": {name: [t._asdict() for t in each] for name, each in self._asdict().items()},
            "of_bare": self.ratio,
        }

    @property
    def ratio(self) -> float:
        """Our rate by the bare loop's."""
        pairs = zip(self.ours, self.bare, strict=True)
        return statistics.median(ours.per_s / most.per_s for ours, most in pairs)


def _worked(place: Place, task: _Task) -> _Turns:
    turns = _Turns([], [])
    with TopicUnderTest(place, _SEGMENTS) as topic, BareKafka(place) as kafka:
        asyncio.run(send(place, topic, ((key, VALUE) for key in task.keys)))
        for number in range(1 if place.quick else _TURNS):
            turns.ours.append(asyncio.run(_by_run(place, topic, task, f"bench-{number}")))
            turns.bare.append(asyncio.run(_by_hand(kafka, topic, task)))
    return turns


async def _by_run(place: Place, topic: TopicUnderTest, task: _Task, name: str) -> Turn:
    pace = Pace(len(task.keys))
    async with Client(place.service_urls()) as client, asyncio.timeout(DEADLINE_S):
        consumer = await client.subscribe(topic.name, name)
        handler = task.handler(pace)
        await run_until(consumer, handler, pace.over.wait(), concurrency=task.concurrency)
    return pace.turn


async def _by_hand(kafka: BareKafka, topic: TopicUnderTest, task: _Task) -> Turn:
    pace = Pace(len(task.keys))
    with ThreadPoolExecutor(task.concurrency) as pool:
        async with asyncio.timeout(DEADLINE_S):
            handle = task.bare(pace, pool)
            await bare.work(kafka, topic.kafka_topics(), handle, task.concurrency, pace.over)
    return pace.turn


def _rate(turns: _Turns, task: _Task, goal_per_s: float) -> Measured:
    """The median rate, which is what the goal is about."""
    value = statistics.median(each.per_s for each in turns.ours)
    return Measured(
        value,
        "msg/s",
        value,
        goal_per_s,
        at_least=True,
        limit=statistics.median(each.per_s for each in turns.bare),
        limit_what=_BARE,
        details=turns.details(task),
    )


# --- no-op ------------------------------------------------------------------------------------


def rate(place: Place) -> Measured:
    """A coroutine that returns at once, 1,000 wide, keys by Zipf 1.0: the loop's own work."""
    turns, task = _noop(place)
    return _rate(turns, task, 40_000.0)


def cost(place: Place) -> Measured:
    """Processor time of a message in the same turns."""
    turns, task = _noop(place)
    value = statistics.median(each.processor_us for each in turns.ours)
    return Measured(
        value,
        "us",
        value,
        25.0,
        limit=statistics.median(each.processor_us for each in turns.bare),
        limit_what=_BARE,
        details=turns.details(task),
    )


def of_bare(place: Place) -> Measured:
    """The rate by that of the bare loop in the same turns."""
    turns, task = _noop(place)
    return Measured(
        statistics.median(each.per_s for each in turns.ours),
        "msg/s",
        turns.ratio,
        0.8,
        at_least=True,
        limit=statistics.median(each.per_s for each in turns.bare),
        limit_what=_BARE,
        details=turns.details(task),
    )


def memory(place: Place) -> Measured:
    """What the process grows by in the same turns, in which 100,000 keys come and go."""
    turns, task = _noop(place)
    value = max(each.grown_mb for each in turns.ours)
    return Measured(
        value,
        "MB",
        value,
        _MEMORY_MB,
        limit=max(each.grown_mb for each in turns.bare),
        limit_what=_BARE,
        details=turns.details(task),
    )


@cache
def _noop(place: Place) -> tuple[_Turns, _Task]:
    count = 50_000 if place.quick else 1_000_000
    names = [f"key-{rank}".encode() for rank in range(1, _KEYS + 1)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, _KEYS + 1)))
    keys = random.Random(1).choices(names, cum_weights=weights, k=count)
    task = _Task(keys, 0.0, 1_000)
    return _worked(place, task), task


# --- handlers that wait -----------------------------------------------------------------------


def waiting(place: Place) -> Measured:
    """Handlers that sleep for 10 ms, 100 wide: the share of what these slots could do."""
    task = _Task(_even(20_000 if place.quick else 100_000), 0.01, 100)
    return _share(_worked(place, task), task, 0.95)


def waiting_wide(place: Place) -> Measured:
    """The same 1,000 wide, where the event loop is the limit."""
    task = _Task(_even(50_000 if place.quick else 200_000), 0.01, 1_000)
    return _rate(_worked(place, task), task, 20_000.0)


def threads(place: Place) -> Measured:
    """Plain functions that sleep for 10 ms, 256 at once, each on a thread."""
    task = _Task(_even(50_000 if place.quick else 200_000), 0.01, 256, in_threads=True)
    return _share(_worked(place, task), task, 0.8)


def _even(count: int) -> list[bytes]:
    return [f"key-{number % _KEYS}".encode() for number in range(count)]


def _share(turns: _Turns, task: _Task, goal: float) -> Measured:
    """The rate as a share of the ideal one: as many handlers at a time, without a pause."""
    ideal = task.concurrency / task.wait_s
    value = statistics.median(each.per_s for each in turns.ours)
    return Measured(
        value,
        "msg/s",
        value / ideal,
        goal,
        at_least=True,
        limit=statistics.median(each.per_s for each in turns.bare),
        limit_what=_BARE,
        details={**turns.details(task), "ideal_per_s": ideal, "share_of_ideal": value / ideal},
    )


# --- poison -----------------------------------------------------------------------------------

_POISON: Final = b"poison"
_OF_KEY: Final = 5  # messages
_POISON_WAIT_S: Final = 0.01
_POISON_WIDE: Final = 50  # so that the slots are the limit, and not the event loop
_RETRY: Final = Retry(
    attempts_max=5,
    delay_s=Backoff(first=0.01, factor=2.0, most=0.1),
    then="dead_letter",
    letters_max=1_000,
)


class _Healthy(NamedTuple):
    """Rates of keys without poison. `letters`: messages put aside after all attempts."""

    per_s: float
    letters: int
    attempts: int  # at poison


def poison(place: Place) -> Measured:
    """Of 20,000 keys 1,000 have one message that fails at each of five attempts, and goes to the
    dead letters. The rate of the others' messages, beside the same backlog where nothing fails.
    """
    keys, poisonous = (4_000, 200) if place.quick else (20_000, 1_000)
    shares, ill, well = [], list[_Healthy](), list[_Healthy]()
    with TopicUnderTest(place, _SEGMENTS) as topic:
        asyncio.run(send(place, topic, _poisoned(keys, poisonous)))
        for number in range(1 if place.quick else _TURNS):
            for fails, found in ((False, well), (True, ill)):
                name = f"bench-{number}-{fails}"
                found.append(asyncio.run(_healthy(place, topic, name, keys, poisonous, fails)))
            shares.append(ill[-1].per_s / well[-1].per_s)
    return Measured(
        statistics.median(each.per_s for each in ill),
        "msg/s",
        statistics.median(shares),
        0.95,
        at_least=True,
        limit=statistics.median(each.per_s for each in well),
        limit_what="the same backlog and handler, where nothing fails",
        details={
            "keys": keys,
            "poison_keys": poisonous,
            "messages_of_a_key": _OF_KEY,
            "handler_ms": 1000 * _POISON_WAIT_S,
            "concurrency": _POISON_WIDE,
            "with": [each._asdict() for each in ill],
            "without": [each._asdict() for each in well],
        },
    )


def _poisoned(keys: int, poisonous: int) -> list[tuple[bytes, bytes]]:
    """Keys in turn; the third message of every so many is poison."""
    every = keys // poisonous
    return [
        (_name(key, every), _POISON if turn == _OF_KEY // 2 and key % every == 0 else VALUE)
        for turn in range(_OF_KEY)
        for key in range(keys)
    ]


def _name(key: int, every: int) -> bytes:
    return f"{'ill' if key % every == 0 else 'well'}-{key}".encode()


async def _healthy(
    place: Place, topic: TopicUnderTest, name: str, keys: int, poisonous: int, fails: bool
) -> _Healthy:
    pace, others = Pace((keys - poisonous) * _OF_KEY), Pace(poisonous * (_OF_KEY - fails))
    attempts = letters = 0

    async def handle(message: Message, _: Work) -> None:
        nonlocal attempts
        if fails and message.value == _POISON:
            attempts += 1
            raise ValueError("poison")
        mine = pace if message.key.startswith(b"well") else others
        mine.begins()
        await asyncio.sleep(_POISON_WAIT_S)
        mine.ends()

    async def both() -> None:
        await pace.over.wait()
        await others.over.wait()

    async with Client(place.service_urls()) as client, asyncio.timeout(DEADLINE_S):
        policy = DeadLetterPolicy()
        consumer = await client.subscribe(topic.name, name, dead_letter=policy)
        await run_until(consumer, handle, both(), concurrency=_POISON_WIDE, retry=_RETRY)
        if fails and consumer.dead_letter is not None:
            async with await client.subscribe(consumer.dead_letter.topic, SUBSCRIPTION) as aside:
                while letters < poisonous:
                    batch = await aside.receive_many()
                    letters += len(batch)
                    aside.acknowledge(batch)
    return _Healthy(pace.turn.per_s, letters, attempts)
