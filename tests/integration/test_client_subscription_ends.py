"""Consumers whose subscription is deleted, and made again, under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import Client, QueueConsumer, StreamConsumer, SubscriptionError
from anabranch.client._topics.nodes import NodeConnection
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S

_COUNT = 10
_GONE = "was deleted"

Either = QueueConsumer | StreamConsumer


async def subscribed(client: Client, topic: str, kind: str) -> Either:
    if kind == "QUEUE":
        return await client.subscribe_queue(topic, "billing")
    return await client.subscribe(topic, "billing")


async def received(consumer: Either, count: int) -> set[bytes]:
    """The next messages, each acknowledged."""
    found = set()
    for _ in range(count):
        message = await consumer.receive(WAIT_S)
        if isinstance(consumer, QueueConsumer):
            consumer.acknowledge(message)  # type: ignore[arg-type]  # its own
        else:
            consumer.acknowledge(message)
        found.add(message.value)
    return found


@asynccontextmanager
async def away(consumer: Either) -> AsyncIterator[None]:
    """Its connection is cut, and no other is made until the end."""
    session, back = consumer._session, asyncio.Event()
    find, connection = session._find, session._connection
    assert connection is not None

    async def later() -> NodeConnection:
        await back.wait()
        return await find()

    session._find = later  # type: ignore[method-assign]  # its way to the controller
    connection.abort("the test cuts it")
    yield
    back.set()


async def sent(client: Client, topic: str) -> set[bytes]:
    producer = await client.create_producer(topic)
    values = {b"%d" % number for number in range(_COUNT)}
    for value in sorted(values):
        await producer.send(value, "key")
    return values


@pytest.mark.parametrize("kind", ["STREAM", "QUEUE"])
async def test_a_consumer_that_was_away_does_not_take_another_subscription_for_its_own(
    cluster: TopicCluster, kind: str, client: Client, topic: str
) -> None:
    values = await sent(client, topic)
    consumer = await subscribed(client, topic, kind)
    assert await received(consumer, _COUNT) == values
    path = f"{topic}/subscriptions/billing"
    async with away(consumer):
        await cluster.call("DELETE", f"{path}?force=true")
        await cluster.call("PUT", path, params={"type": kind})
    with pytest.raises(SubscriptionError, match=_GONE):
        await consumer.receive(WAIT_S)
    assert set((await cluster.call("GET", f"{topic}/stats"))["subscriptions"]) == {"billing"}
    await consumer.close()
    async with await subscribed(client, topic, kind) as other:
        assert await received(other, _COUNT) == values
