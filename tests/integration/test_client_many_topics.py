"""Consumers over many topics on real nodes and a real Kafka: topics come and go while they read."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

import pytest

from anabranch import client as sdk
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, eventually

_rounds = itertools.count()


@pytest.fixture
def prefix() -> str:
    """Names begin with it that no other test has."""
    return f"many-{next(_rounds)}-"


def selected(prefix: str) -> sdk.TopicSelection:
    return sdk.TopicSelection("public/default", pattern=f"{prefix}.*")


async def created(cluster: TopicCluster, *names: str) -> None:
    for name in names:
        await cluster.create(f"public/default/{name}")


class Received:
    """By topic and key, the numbers of the messages in the order in which they came."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.count = 0

    async def until(self, consumer: sdk.StreamTopicsConsumer, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.count < count:
                batch = await consumer.receive_many()
                for message in batch:
                    key, _, number = message.value.decode().partition(":")
                    self.numbers[message.topic, key].append(int(number))
                    self.count += 1
                consumer.acknowledge(batch)


async def send(client: sdk.Client, topic: str, key: str, numbers: range) -> None:
    async with await client.create_producer(f"topic://public/default/{topic}") as producer:
        for number in numbers:
            await producer.post(f"{key}:{number}".encode(), key)


async def test_topics_that_match_are_read_and_new_ones_join_and_deleted_ones_leave(
    cluster: TopicCluster, client: sdk.Client, prefix: str
) -> None:
    await created(cluster, f"{prefix}a", f"{prefix}b", f"other-{prefix}")
    consumer = await client.subscribe_topics(selected(prefix), "billing", start="latest")
    assert consumer.topics == [f"public/default/{prefix}{each}" for each in "ab"]
    got = Received()
    for name in (f"{prefix}a", f"{prefix}b", f"other-{prefix}"):
        await send(client, name, "k", range(50))
    await got.until(consumer, 100)
    await created(cluster, f"{prefix}c")
    await send(client, f"{prefix}c", "k", range(30))  # nobody has joined it: it begins there
    await got.until(consumer, 130)
    message_of = await _given(consumer, client, f"{prefix}b")
    await cluster.call("DELETE", f"public/default/{prefix}b?force=true")

    async def gone() -> bool:
        return f"public/default/{prefix}b" not in consumer.topics

    await eventually(gone, WAIT_S)
    consumer.acknowledge(message_of)
    await send(client, f"{prefix}a", "k", range(50, 60))
    await got.until(consumer, 140)
    await consumer.close()
    a, b, c = (f"public/default/{prefix}{each}" for each in "abc")
    assert got.numbers == {
        (a, "k"): list(range(60)),
        (b, "k"): list(range(50)),
        (c, "k"): list(range(30)),
    }


async def _given(consumer: sdk.StreamTopicsConsumer, client: sdk.Client, topic: str) -> sdk.Message:
    await send(client, topic, "late", range(1))
    return await consumer.receive(WAIT_S)
