"""What scaling does for consumers: how soon a newcomer has its share, and how fast many drain."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import Any

from anabranch.client import Client, StreamConsumer
from bench.clients.load import KEYS, VALUE, keep_sending
from bench.figure import Measured, spread
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest

_BUCKETS = 4  # of a new topic's only segment
_DEADLINE_S = 60.0
_TICK_S = 0.001
_GOAL_MS = 300.0
_JOINS = 40
_WORK_S = 0.002
_TURN = 20  # messages that a consumer takes at a time, as work of 2 ms each wants it
_SPEED_UP = 3.0


# --- a consumer that joins -------------------------------------------------------------------


def join(place: Place) -> Measured:
    """From the call of `subscribe` to the first message, while another consumer keeps receiving.

    Each newcomer has a new name, and closes before the next one joins, so it gets its buckets from
    the other one each time.
    """
    took = asyncio.run(_joins(place, _JOINS // 4 if place.quick else _JOINS))
    value = statistics.median(took)
    return Measured(
        value, "ms", value, _GOAL_MS, details={"each": spread(took), "buckets": _BUCKETS}
    )


async def _joins(place: Place, count: int) -> list[float]:
    took = []
    with TopicUnderTest(place) as topic:
        async with Client(place.service_urls()) as client:
            producer = await client.create_producer(topic.name)
            sending = asyncio.create_task(keep_sending(producer))
            staying = await client.subscribe(topic.name, "bench", "staying")
            serving = asyncio.create_task(_serve(staying))
            try:
                async with asyncio.timeout(_DEADLINE_S + count):
                    for number in range(count):
                        await _has_all(staying)
                        began = time.perf_counter()
                        newcomer = await client.subscribe(topic.name, "bench", f"new-{number}")
                        newcomer.acknowledge(await newcomer.receive(_DEADLINE_S))
                        took.append((time.perf_counter() - began) * 1000)
                        await newcomer.close()
            finally:
                for task in (sending, serving):
                    task.cancel()
                await asyncio.gather(sending, serving, return_exceptions=True)
    return took


async def _has_all(consumer: StreamConsumer) -> None:
    while True:
        if len(consumer.buckets) == _BUCKETS:
            return
        await asyncio.sleep(_TICK_S)


async def _serve(consumer: StreamConsumer) -> None:
    while True:
        consumer.acknowledge(await consumer.receive_many())


# --- the backlog of a sealed segment ---------------------------------------------------------


def drain(place: Place) -> Measured:
    """Messages per second out of a sealed segment of four buckets, by as many consumers.

    The handler of each waits for 2 ms with every message. Timed is the whole backlog: from when all
    consumers have begun to receive until the last message is acknowledged, the first ones left out.
    """
    count = 2_000 if place.quick else 10_000
    rates: dict[int, list[float]] = {1: [], _BUCKETS: []}
    for _ in range(1 if place.quick else 3):
        for consumers, found in rates.items():
            found.append(asyncio.run(_drained(place, consumers, count)))
    ours, alone = statistics.median(rates[_BUCKETS]), statistics.median(rates[1])
    return Measured(
        ours,
        "msg/s",
        ours / alone,
        _SPEED_UP,
        at_least=True,
        limit=alone,
        limit_what="one consumer with the same handler, the same backlog",
        details={
            "messages": count,
            "consumers": _BUCKETS,
            "handler_ms": 1000 * _WORK_S,
            "rates": {str(consumers): found for consumers, found in rates.items()},
        },
    )


class _Backlog:
    """Counts down; paces what comes after all consumers have begun."""

    def __init__(self, count: int, consumers: int) -> None:
        self.left = count
        self.over = asyncio.Event()
        self._idle = consumers  # have not received anything yet
        self._began = 0.0
        self._first_left = count
        self._ended = 0.0

    def began(self) -> None:
        """One more consumer has received its first messages."""
        self._idle -= 1
        if self._idle == 0:
            self._began, self._first_left = time.perf_counter(), self.left

    def handled(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._ended = time.perf_counter()
            self.over.set()

    @property
    def rate(self) -> float:
        """Raises RuntimeError when the consumers did not share the backlog."""
        if not self._began or not self._first_left:
            raise RuntimeError("not every consumer had something of the backlog")
        return self._first_left / (self._ended - self._began)


async def _drained(place: Place, consumers: int, count: int) -> float:
    backlog = _Backlog(count, consumers)
    with TopicUnderTest(place) as topic:
        async with Client(place.service_urls()) as client, asyncio.timeout(_DEADLINE_S):
            producer = await client.create_producer(topic.name)
            await producer.send_many((key, VALUE) for key in KEYS[:count])
            await producer.flush()
            (segment,) = topic.active()
            await asyncio.to_thread(topic.split, segment)
            ours = await asyncio.gather(
                *(client.subscribe(topic.name, "bench", f"c-{n}") for n in range(consumers))
            )
            tasks = [asyncio.create_task(_handle(each, segment, backlog)) for each in ours]
            over = asyncio.create_task(backlog.over.wait())
            await asyncio.wait([*tasks, over], return_when=asyncio.FIRST_COMPLETED)
            await _ended([*tasks, over])
    return backlog.rate


async def _handle(consumer: StreamConsumer, segment: int, backlog: _Backlog) -> None:
    """Works through what comes, of that segment; each message has its handler's time."""
    is_first = True
    while True:
        batch = await consumer.receive_many(_TURN)
        for message in batch:
            if message.segment_id != segment:
                raise RuntimeError(f"{message} came before the backlog was drained")
            if is_first:
                is_first = False
                backlog.began()
            await asyncio.sleep(_WORK_S)
            backlog.handled()
        consumer.acknowledge(batch)


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Raises what one of them failed with."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
