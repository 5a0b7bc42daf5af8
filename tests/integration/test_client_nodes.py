"""The SDK's producer on real nodes: layout changes, a deletion, a controller that is killed."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import Client, TopicNotFoundError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.topic_cluster import MISSED_SOON, TopicCluster, run_on, topic_cluster
from support.traffic import Traffic, stored
from support.waiting import until

_KEYS = [b"key-%d" % number for number in range(200)]


async def test_a_deletion_reaches_the_producer(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    producer = await client.create_producer(topic)
    await producer.send(b"one", "key")
    await cluster.call("DELETE", topic)
    await until(lambda: producer.layout.deleted)
    with pytest.raises(TopicNotFoundError):
        await producer.send(b"two", "key")
    with pytest.raises(TopicNotFoundError, match=topic):
        await client.create_producer(topic)


@pytest.mark.long
@pytest.mark.parametrize("operation", ["split", "relocate"])
def test_producers_go_on_when_the_controller_is_killed_in_the_middle(
    kafka: EmbeddedKafka,
    topic_prefix: str,
    tmp_path_factory: pytest.TempPathFactory,
    operation: str,
) -> None:
    folder = tmp_path_factory.mktemp("killed")

    async def body(nodes: TopicCluster, client: Client, topic: str) -> None:
        producer = await client.create_producer(topic)
        traffic = Traffic(producer, _KEYS)
        await nodes.split(topic, 0)
        owner = producer.layout.controller_url
        victim = next(node for node in nodes.nodes if node.service_url() == owner)
        under_way = asyncio.create_task(nodes.call("POST", f"{topic}/{operation}/1"))
        await until(lambda: bool(producer.layout.children) or under_way.done())
        victim.kill()
        await asyncio.gather(under_way, return_exceptions=True)
        await until(lambda: not producer.layout.children, 60)
        sent = await traffic.stop()

        assert await asyncio.to_thread(stored, nodes.kafka, producer.layout) == sent

    with topic_cluster(kafka, topic_prefix, folder, *MISSED_SOON) as nodes:
        run_on(nodes, body)
