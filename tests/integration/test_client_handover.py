"""Consumers whose controller moves: they are told, and do not wait for their next report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from anabranch.client import Client, StreamConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S, until

# A consumer reports every sixth of it: no test here waits for one.
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


async def close_in_the_middle(consumer: StreamConsumer, unloading: asyncio.Task[None]) -> None:
    """Closes it when its controller has gone and it has not found the next one yet."""
    await until(lambda: not consumer._core.subscribed or unloading.done())
    await consumer.close()
    await unloading


async def test_a_consumer_that_closes_during_a_hand_over_gives_its_share_away_all_the_same(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    for number in range(3):
        consumer = await client.subscribe(topic, "billing", consumer_name=f"c{number}")
        await producer.send(b"%d" % number, "key")
        message = await consumer.receive(WAIT_S)
        assert message.value == b"%d" % number  # of the bucket that the one before left
        consumer.acknowledge(message)
        await consumer.flush()
        await close_in_the_middle(consumer, asyncio.create_task(cluster.unload()))
