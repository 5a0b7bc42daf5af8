"""The SDK's ordered consumers on real nodes and a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.ordered import OrderedConsumer
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until

pytestmark = pytest.mark.parametrize("segments", [2])

_KEYS = 40


async def send(client: sdk.Client, topic: str, rounds: range) -> None:
    """In each round a message of each key, with the round's number."""
    async with await client.create_producer(topic) as producer:
        for number in rounds:
            for key in range(_KEYS):
                await producer.post(b"%d" % number, f"k{key}")


async def served(consumers: list[OrderedConsumer], total: int) -> None:
    """Returns once these consumers serve so many buckets together."""
    await until(lambda: sum(len(each.buckets) for each in consumers) == total, WAIT_S)


async def test_a_consumer_receives_keys_in_order_with_all_that_was_sent(
    client: sdk.Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    headers = [("a", b"1"), ("empty", b""), ("none", None)]
    then = round(time.time() * 1_000) - 60_000
    sent = await producer.send(b"value", key="key", headers=headers, event_time_ms=then)
    async with await client.subscribe(topic, "billing") as consumer:
        message = await consumer.receive(WAIT_S)
        assert (message.key, message.value, message.event_time_ms) == (b"key", b"value", then)
        assert message.headers == headers
        assert (message.segment_id, message.bucket) == (sent.segment_id, sent.bucket)
        assert (message.topic, message.offset) == (topic, sent.offset)
        consumer.acknowledge(message)
        with pytest.raises(sdk.DeadlineError):
            await consumer.receive(0.05)


async def all_received(consumer: sdk.StreamConsumer) -> list[sdk.Message]:
    """Five rounds; nothing of them is acknowledged."""
    return [await consumer.receive(WAIT_S) for _ in range(5 * _KEYS)]


async def test_a_bucket_waits_for_what_is_worked_on_and_the_next_consumer_repeats_nothing(
    client: sdk.Client, topic: str
) -> None:
    await send(client, topic, range(5))
    one = await client.subscribe(topic, "billing", "one")
    seen = await all_received(one)
    two = await client.subscribe(topic, "billing", "two")
    await until(lambda: len(one.buckets) == 2, WAIT_S)  # it was told to give two up
    assert not any(message.is_revoked for message in seen)
    one.acknowledge_all()
    await served([one, two], 4)
    await send(client, topic, range(5, 6))
    assert (await two.receive(WAIT_S)).value == b"5"


async def test_several_receive_from_one_consumer_and_each_message_comes_once(
    client: sdk.Client, topic: str
) -> None:
    await send(client, topic, range(20))
    consumer = await client.subscribe(topic, "billing")
    seen: list[tuple[int, int, int]] = []

    async def receive() -> None:
        while len(seen) < 20 * _KEYS:
            with contextlib.suppress(sdk.DeadlineError):
                message = await consumer.receive(0.5)
                seen.append((message.segment_id, message.bucket, message.offset))

    await asyncio.gather(*(receive() for _ in range(3)))
    assert len(set(seen)) == len(seen) == 20 * _KEYS


async def test_producers_and_consumers_of_a_topic_that_is_deleted_say_so(
    cluster: TopicCluster, client: sdk.Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    consumer = await client.subscribe(topic, "billing")
    queue = await client.subscribe_queue(topic, "jobs")
    await served([consumer], 4)
    with pytest.raises(
        AssertionError, match=r"has consumers: close .+ or delete the topic by force"
    ):
        await cluster.call("DELETE", topic)
    await cluster.call("DELETE", f"{topic}?force=true")
    with pytest.raises(sdk.TopicNotFoundError):
        await consumer.receive(WAIT_S)
    with pytest.raises(sdk.TopicNotFoundError):
        await queue.receive(WAIT_S)
    await until(lambda: producer.layout.deleted, WAIT_S)
    with pytest.raises(sdk.TopicNotFoundError):
        await producer.send(b"late", "key")
