"""Consumers that come and go while segments split and merge."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from anabranch.client import Client, ClosedError, DeadlineError, StreamConsumer
from support.topic_cluster import TopicCluster
from support.waiting import until

_KEYS = 40


class Churn:
    """One producer, up to three consumers, and the operations of an administrator."""

    def __init__(self, cluster: TopicCluster, client: Client, topic: str, seed: int) -> None:
        self.sent = [0] * _KEYS
        self.received: dict[int, list[int]] = defaultdict(list)
        self._cluster = cluster
        self._client = client
        self._topic = topic
        self._chance = random.Random(seed)
        self._consumers: list[tuple[StreamConsumer, asyncio.Lock, asyncio.Task[None]]] = []
        self._names = 0
        self._over = False

    async def run(self) -> None:
        sending = asyncio.create_task(self._send())
        for _ in range(8):
            await asyncio.gather(self._operation(), self._come_or_go())
        self._over = True
        await sending
        await until(lambda: sum(map(len, self.received.values())) >= sum(self.sent))
        while self._consumers:
            await self._go()

    async def _send(self) -> None:
        producer = await self._client.create_producer(f"topic://{self._topic}")
        while not self._over:
            for key in range(_KEYS):
                await producer.post(b"%d:%d" % (key, self.sent[key]), f"k{key}")
                self.sent[key] += 1
            await asyncio.sleep(0.02)
        await producer.close()

    async def _operation(self) -> None:
        if len(await self._cluster.active(self._topic)) < 3:
            await self._cluster.split_any(self._topic, self._chance.randrange(3))
        else:
            await self._cluster.merge_last(self._topic)

    async def _come_or_go(self) -> None:
        count = len(self._consumers)
        if count == 0 or (count < 3 and self._chance.random() < 0.6):
            self._names += 1
            name = f"consumer-{self._names}"
            consumer = await self._client.subscribe(f"topic://{self._topic}", "billing", name)
            lock = asyncio.Lock()
            task = asyncio.create_task(self._work(consumer, lock))
            self._consumers.append((consumer, lock, task))
        elif count > 1:
            await self._go()

    async def _go(self) -> None:
        consumer, lock, task = self._consumers.pop(self._chance.randrange(len(self._consumers)))
        async with lock:  # not between a message and its acknowledgement
            await consumer.close()
        await task

    async def _work(self, consumer: StreamConsumer, lock: asyncio.Lock) -> None:
        while True:
            await asyncio.sleep(0)
            async with lock:
                try:
                    batch = await consumer.receive_many(timeout_s=0.05)
                except DeadlineError:
                    continue
                except ClosedError:
                    return
                for value in batch.values():
                    key, _, number = value.partition(b":")
                    self.received[int(key)].append(int(number))
                consumer.acknowledge(batch)


@pytest.mark.parametrize("segments", [2])
async def test_nothing_is_lost_repeated_or_reordered_while_consumers_come_and_go(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    churn = Churn(cluster, client, topic, seed=1)
    await churn.run()
    assert churn.received == {key: list(range(n)) for key, n in enumerate(churn.sent)}
