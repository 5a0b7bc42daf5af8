"""Consumers that come and go while segments split and merge."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from anabranch.client import Client, ClosedError, DeadlineError, StreamConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster

pytestmark = pytest.mark.integration

_TOPIC = "public/default/churned"
_KEYS = 40
_STEPS = 12
_WAIT_S = 60.0


class Churn:
    """One producer, up to three consumers, and the operations of an administrator."""

    def __init__(self, cluster: TopicCluster, client: Client, seed: int) -> None:
        self.sent = [0] * _KEYS
        self.received: dict[int, list[int]] = defaultdict(list)
        self._cluster = cluster
        self._client = client
        self._chance = random.Random(seed)
        self._consumers: list[tuple[StreamConsumer, asyncio.Lock, asyncio.Task[None]]] = []
        self._names = 0
        self._over = False

    async def run(self) -> None:
        sending = asyncio.create_task(self._send())
        for _ in range(_STEPS):
            await asyncio.gather(self._operation(), self._come_or_go())
        self._over = True
        await sending
        deadline = time.monotonic() + _WAIT_S
        while sum(map(len, self.received.values())) < sum(self.sent):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        while self._consumers:
            await self._go()

    async def _send(self) -> None:
        producer = await self._client.create_producer(f"topic://{_TOPIC}")
        while not self._over:
            for key in range(_KEYS):
                await producer.post(b"%d:%d" % (key, self.sent[key]), f"k{key}")
                self.sent[key] += 1
            await asyncio.sleep(0.02)
        await producer.close()

    async def _operation(self) -> None:
        if len(await self._cluster.active(_TOPIC)) < 3:
            await self._cluster.split_any(_TOPIC, self._chance.randrange(3))
        else:
            await self._cluster.merge_last(_TOPIC)

    async def _come_or_go(self) -> None:
        count = len(self._consumers)
        if count == 0 or (count < 3 and self._chance.random() < 0.6):
            self._names += 1
            name = f"consumer-{self._names}"
            consumer = await self._client.subscribe(f"topic://{_TOPIC}", "billing", name)
            lock = asyncio.Lock()
            task = asyncio.create_task(self._work(consumer, lock))
            self._consumers.append((consumer, lock, task))
        elif count > 1:
            await self._go()

    async def _go(self) -> None:
        chosen = self._chance.randrange(len(self._consumers))
        consumer, lock, task = self._consumers.pop(chosen)
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
                assert consumer.acknowledge(batch)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_repeated_or_reordered_while_consumers_come_and_go(
    seed: int, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test(cluster: TopicCluster) -> None:
        await cluster.create(_TOPIC, 2)
        async with Client(cluster.url) as client:
            churn = Churn(cluster, client, seed)
            await churn.run()
        assert churn.received == {key: list(range(n)) for key, n in enumerate(churn.sent)}

    with topic_cluster(kafka, topic_prefix, tmp_path) as running:
        asyncio.run(asyncio.wait_for(test(running), TEST_S))
