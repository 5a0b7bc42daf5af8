"""Subscriptions that are put elsewhere while a consumer reads them; backlogs on Kafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from anabranch.client import Client, Message, QueueConsumer, StreamConsumer
from anabranch.client._consumer.group_offsets import Answers, GroupOffsets, Position
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until


async def received(consumer: StreamConsumer, count: int) -> list[bytes]:
    """The next messages, each acknowledged."""
    found: list[bytes] = []
    for _ in range(count):
        message: Message = await consumer.receive(WAIT_S)
        consumer.acknowledge(message)
        found.append(message.value or b"")
    return found


async def backlog(cluster: TopicCluster, topic: str, expected: int) -> None:
    """Waits for it: what is told may be some seconds old."""
    deadline = time.monotonic() + WAIT_S
    found: dict[str, Any] = {}
    while time.monotonic() < deadline:
        stats = await cluster.call("GET", f"{topic}/stats")
        found = stats["subscriptions"]["billing"]
        if found["msgBacklog"] == expected:
            assert sum(found["segments"].values()) == expected
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"a backlog of {expected} was expected: {found}")


def values(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


async def test_a_consumer_goes_on_where_its_subscription_was_put(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    seek = f"{topic}/subscriptions/billing/seek"
    consumer = await client.subscribe(topic, "billing")
    producer = await client.create_producer(topic)
    now = round(time.time() * 1000)
    for number in range(10):
        await producer.send(b"%d" % number, "key", event_time_ms=now + number)
    await cluster.split(topic, 0)
    for number in range(10, 20):
        await producer.send(b"%d" % number, "key", event_time_ms=now + number)
    assert await received(consumer, 20) == values(0, 20)
    await backlog(cluster, topic, 0)

    await cluster.call("POST", seek, params={"position": "earliest"})
    assert await received(consumer, 20) == values(0, 20)
    await cluster.call("POST", seek, params={"timestamp": now + 7})
    await backlog(cluster, topic, 13)
    assert await received(consumer, 13) == values(7, 20)
    await cluster.call("POST", seek, params={"timestamp": now + 15})
    assert await received(consumer, 2) == values(15, 17)
    await cluster.call("POST", f"{topic}/subscriptions/billing/skip-all")
    await backlog(cluster, topic, 0)
    await producer.send(b"20", "key")
    assert await received(consumer, 1) == values(20, 21)


async def test_a_consumer_follows_a_second_seek_that_comes_while_it_asks_for_its_position(
    cluster: TopicCluster, monkeypatch: pytest.MonkeyPatch, client: Client, topic: str
) -> None:
    committed, close = GroupOffsets.committed, GroupOffsets.close
    asking: list[GroupOffsets] = []
    closed = threading.Event()

    async def slow(group: GroupOffsets, places: Iterable[tuple[str, int]]) -> Answers[Position]:
        asking.append(group)
        found = await committed(group, places)
        if group is asking[0]:
            await until(closed.is_set, WAIT_S)
        return found

    def noted(group: GroupOffsets) -> None:
        close(group)
        if asking and group is asking[0]:
            closed.set()

    seek = f"{topic}/subscriptions/billing/seek"
    producer = await client.create_producer(topic)
    now = round(time.time() * 1000)
    for number in range(20):
        await producer.send(b"%d" % number, "key", event_time_ms=now + number)
    consumer = await client.subscribe(topic, "billing")
    assert await received(consumer, 3) == values(0, 3)
    monkeypatch.setattr(GroupOffsets, "committed", slow)
    monkeypatch.setattr(GroupOffsets, "close", noted)
    await cluster.call("POST", seek, params={"timestamp": now + 5})
    await until(lambda: bool(asking), WAIT_S)
    await cluster.call("POST", seek, params={"timestamp": now + 9})
    assert await received(consumer, 11) == values(9, 20)
    assert closed.is_set()
    await consumer.close()


async def settled(queue: QueueConsumer, count: int) -> list[bytes]:
    """The next messages of a queue, each acknowledged, in the order of their numbers."""
    found: list[bytes] = []
    while len(found) < count:
        message = await queue.receive(WAIT_S)
        assert queue.acknowledge(message)
        found.append(message.value or b"")
    return sorted(found, key=int)


async def test_a_queue_begins_where_it_is_told_and_is_put_elsewhere_while_nobody_consumes_it(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    now = round(time.time() * 1000)
    for number in range(10):
        await producer.send(b"%d" % number, f"k{number}", event_time_ms=now + number)
    await cluster.split(topic, 0)
    for number in range(10, 20):
        await producer.send(b"%d" % number, f"k{number}", event_time_ms=now + number)
    await (await client.subscribe_queue(topic, "jobs", start="latest")).close()
    for number in range(20, 24):
        await producer.send(b"%d" % number, f"k{number}", event_time_ms=now + number)
    await cluster.split_any(topic)  # its children are read from their beginning
    for number in range(24, 30):
        await producer.send(b"%d" % number, f"k{number}", event_time_ms=now + number)
    async with await client.subscribe_queue(topic, "jobs") as queue:
        assert await settled(queue, 10) == values(20, 30)
    await cluster.call("POST", f"{topic}/subscriptions/jobs/seek", params={"timestamp": now + 20})
    async with await client.subscribe_queue(topic, "jobs") as queue:
        assert await settled(queue, 10) == values(20, 30)
