"""What tests of scalable topics on a Kafka of several brokers share."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from anabranch import client as sdk
from anabranch.channel.segments.sealing import Sealer
from support.quiet import QUIET
from support.traffic import Traffic, stored, wrong
from support.waiting import WAIT_S, until

_KEYS = [b"key-%d" % number for number in range(120)]
_LINGERS_MS = (0, 5, 50)
_PAUSE_S = 0.004


class Reading:
    """What a subscription's consumer receives, in its order.

    `repeats`: what comes again is left out, since it was not committed in time; else it counts.
    """

    def __init__(self, consumer: sdk.StreamConsumer, *, repeats: bool) -> None:
        self.received: dict[bytes, list[bytes]] = defaultdict(list)
        self._repeats = repeats
        # While its controller was dead the session may be over: then all of it comes again.
        self._harmless = (sdk.BucketLostError,) if repeats else ()
        self._seen: set[tuple[bytes, bytes]] = set()
        self._consumer = consumer
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                batch = await self._consumer.receive_many(timeout_s=0.2)
            except sdk.DeadlineError:
                continue
            except sdk.ClosedError:
                return
            for message in batch:
                key, value = message.key or b"", bytes(message.value)
                if not (self._repeats and (key, value) in self._seen):
                    self.received[key].append(value)
                self._seen.add((key, value))
            with suppress(*self._harmless):
                self._consumer.acknowledge(batch)

    async def all_of(self, sent: dict[bytes, list[bytes]]) -> dict[bytes, list[bytes]]:
        """What was received once that was as much as was sent; ends the consumer."""
        total = sum(map(len, sent.values()))
        await until(lambda: len(self._seen) >= total or self._task.done(), WAIT_S)
        await self._consumer.close()
        await self._task
        return dict(self.received)


def leaders(kafka: str, topic: str) -> dict[int, int]:
    """Which broker leads each partition."""
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka})
    found = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    return {number: each.leader for number, each in found.items()}


class HalfSealed:
    """Holds the first seal of a node in this process once one of the partitions refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        probe = Sealer._probe

        def held(sealer: Sealer, *asked: Any) -> bool:
            refused = probe(sealer, *asked)
            self.reached.set()
            assert self.go_on.wait(WAIT_S)
            return refused

        monkeypatch.setattr(Sealer, "_probe", held)


Disturb = Callable[[sdk.Producer], Awaitable[None]]


async def at_once() -> None:
    """Has nothing to wait for."""


async def under_load(
    kafka: str,
    client: sdk.Client,
    topic: str,
    disturb: Disturb,
    *,
    repeats: bool,
    keeps: bool = True,
    ready: Callable[[], Awaitable[None]] = at_once,
) -> None:
    """Several producers and a consumer while that goes on; then everything is compared.

    `repeats`: whether the consumer may be given something again. `keeps`: whether Kafka has what
    was read until the end. `ready` returns once there is something to disturb: it is awaited with
    the consumer there, and before the first message.
    """
    producers = [await client.create_producer(topic, linger_ms=linger) for linger in _LINGERS_MS]
    reading = Reading(await client.subscribe(topic, "billing"), repeats=repeats)
    await ready()
    traffic = [
        Traffic(producer, _KEYS[place :: len(producers)], _PAUSE_S)
        for place, producer in enumerate(producers)
    ]
    await disturb(producers[0])
    sent: dict[bytes, list[bytes]] = {}
    for each in traffic:
        sent |= await each.stop()

    def newest() -> sdk.TopicLayout:
        return max((each.layout for each in producers), key=lambda each: each.age)

    await until(lambda: not newest().children)
    if keeps:
        assert wrong(await asyncio.to_thread(stored, kafka, newest()), sent) == []
    assert wrong(await reading.all_of(sent), sent) == []
