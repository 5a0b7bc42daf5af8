"""Consumers whose controller moves: they are told, and do not wait for their next report."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import (
    BucketLostError,
    Client,
    ConsumerFencedError,
    Message,
    StreamConsumer,
    TopicSelection,
)
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S, until

# A consumer reports every sixth of it: no test here waits for one, or for a session to lapse.
PATIENT = (
    "scalableTopicConsumerSessionTimeoutSeconds=600",
    "scalableTopicConsumerSessionGracePeriodSeconds=6000",
)


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("patient")  # another name each time
    with topic_cluster(kafka, f"{folder.name}.", folder, *PATIENT) as running:
        yield running


async def test_a_consumer_follows_a_controller_that_moved_without_waiting_for_its_report(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    consumer = await client.subscribe(topic, "billing")
    producer = await client.create_producer(topic)
    await producer.send(b"before", "key")
    consumer.acknowledge(await consumer.receive(WAIT_S))
    await cluster.unload()
    await cluster.split(topic, 0)
    await producer.send(b"after", "key")
    # The child is given out by the new controller, which must hear of the drain first.
    assert (await consumer.receive(WAIT_S)).value == b"after"


_NAMED = """
import asyncio, sys, time
from anabranch.client import Client

async def main():
    async with Client(sys.argv[1]) as client:
        begun = time.monotonic()
        consumer = await client.subscribe(sys.argv[2], "billing", consumer_name="one")
        async for message in consumer:
            print(message.value.decode(), time.monotonic() - begun, flush=True)
            consumer.acknowledge(message)
            await consumer.flush()
            print("done", flush=True)

asyncio.run(main())
"""


@asynccontextmanager
async def named(client: Client, topic: str) -> AsyncIterator[asyncio.StreamReader]:
    """The output of a process that consumes under a name, and is killed in the end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _NAMED, client.nodes.url, topic, stdout=pipe
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.wait()


async def line(output: asyncio.StreamReader) -> list[str]:
    return (await asyncio.wait_for(output.readline(), WAIT_S)).decode().split()


async def test_a_consumer_that_was_killed_goes_on_under_its_name_in_two_seconds(
    client: Client, topic: str
) -> None:
    other = await client.subscribe(topic, "billing", consumer_name="other")
    async with named(client, topic) as output:
        await until(lambda: len(other.buckets) == 2)
        producer = await client.create_producer(topic)
        sent = [await producer.send(b"before", f"k{number}") for number in range(20)]
        keys = [f"k{n}" for n, at in enumerate(sent) if (0, at.bucket) not in other.buckets]
        for _ in keys:
            assert (await line(output))[0] == "before"
            assert await line(output) == ["done"]
    await producer.send(b"after", keys[0])
    async with named(client, topic) as output:
        value, took_s = await line(output)
        assert value == "after"
        assert float(took_s) < 2.0
    assert len(other.buckets) == 2, "the share was nobody else's meanwhile"


async def test_who_is_alive_under_a_name_is_told_before_the_other_is_given_anything(
    client: Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    await producer.send(b"1", "key")
    former = await client.subscribe(topic, "billing", consumer_name="one")
    message = await former.receive(WAIT_S)
    working = asyncio.create_task(until_revoked(former, message))
    successor = await client.subscribe(topic, "billing", consumer_name="one")
    assert working.done(), "no two handlers are at work on a key"
    assert (await successor.receive(WAIT_S)).value == b"1"
    with pytest.raises(ConsumerFencedError, match="another process has taken over the name one"):
        await former.receive(WAIT_S)
    await working


async def test_who_is_fenced_in_one_of_many_topics_leaves_them_all_and_does_not_come_back(
    client: Client, topic: str
) -> None:
    namespace, _, name = topic.removeprefix("topic://").rpartition("/")
    selection = TopicSelection(namespace, pattern=name)
    former = await client.subscribe_topics(selection, "billing", consumer_name="one")
    assert former.topics
    successor = await client.subscribe_topics(selection, "billing", consumer_name="one")
    with pytest.raises(ConsumerFencedError):
        await former.receive(WAIT_S)
    await until(lambda: not former.topics)
    producer = await client.create_producer(topic)
    await producer.send(b"1", "key")
    assert (await successor.receive(WAIT_S)).value == b"1"


async def until_revoked(consumer: StreamConsumer, message: Message) -> None:
    with pytest.raises(BucketLostError, match="another process has taken"):
        async with consumer.while_held(message):
            await asyncio.Event().wait()


async def test_who_closes_with_its_share_finds_it_when_it_comes_back(
    client: Client, topic: str
) -> None:
    first, other = [
        await client.subscribe(topic, "billing", consumer_name=name) for name in ("one", "two")
    ]
    await until(lambda: len(first.buckets) == len(other.buckets) == 2)
    share = first.buckets
    await first.close(keep_share=True)
    again = await client.subscribe(topic, "billing", consumer_name="one")
    await until(lambda: again.buckets == share)
    assert len(other.buckets) == 2
    await again.close()
    await until(lambda: len(other.buckets) == 4)
