"""Scalable topics on a real Kafka with real nodes: operations, fail-over at every step, trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.cimpl import NewTopic

from anabranch.broker.errors import KafkaFailedError
from anabranch.broker.node import Node
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentSettings
from anabranch.core.topics import kafka_names as segment_topics
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.segment import SegmentInfo, tile
from anabranch.core.topics.topic import ScalableTopic, TopicMove, TopicState
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.kafka_cluster import WAIT_S, KafkaCluster, kafka_cluster
from support.memory_cluster import until
from support.node_process import NodeProcess, node_process

pytestmark = pytest.mark.integration

NAME = "public/default/orders"
REST = f"/admin/v2/scalable/{NAME}"


def topic_of(node: Node) -> ScalableTopic:
    topic = node.runtime.view.topic(NAME)
    assert topic is not None
    return topic


def kafka_topic(node: Node, part: SegmentInfo) -> str:
    return segment_topics.kafka_topic(
        node.settings.topic_prefix, NAME, topic_of(node).incarnation, part
    )


def ends(kafka: EmbeddedKafka, topic: str, partitions: int) -> tuple[int, ...]:
    consumer: Consumer = KafkaConnection(kafka.bootstrap_servers).consumer()
    try:
        return tuple(
            consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)[1]
            for number in range(partitions)
        )
    finally:
        consumer.close()


def append(kafka: EmbeddedKafka, topic: str, partitions: int) -> list[str]:
    """One record to each partition: what each was answered with, "" for well."""
    said = [""] * partitions
    producer = KafkaConnection(kafka.bootstrap_servers).producer()

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            said[message.partition() or 0] = error.name()

    for number in range(partitions):
        producer.produce(topic, b"x", partition=number, on_delivery=answered)
    assert producer.flush(WAIT_S) == 0
    return said


def kafka_topics(kafka: EmbeddedKafka, prefix: str) -> set[str]:
    admin = KafkaConnection(kafka.bootstrap_servers).admin()
    found = admin.list_topics(timeout=WAIT_S).topics
    return {name for name in found if name.startswith(f"{prefix}segment.")}


def check_layout(kafka: EmbeddedKafka, node: Node) -> None:
    """What must hold of a topic at rest, and Kafka with it."""
    topic = topic_of(node)
    assert tile(part for part in topic.segments if part.is_active)
    for part in topic.segments:
        name = kafka_topic(node, part)
        if part.is_active:
            assert append(kafka, name, part.buckets) == [""] * part.buckets
        else:
            assert append(kafka, name, part.buckets) == ["MSG_SIZE_TOO_LARGE"] * part.buckets
            assert ends(kafka, name, part.buckets) == part.end_offsets


def test_a_topic_lives_from_its_creation_to_its_deletion(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 1) as cluster:
            node = cluster.nodes[0]
            topics = node.operations.topics
            await topics.create(NAME, 2, {})
            for part in topic_of(node).segments:
                await asyncio.to_thread(append, kafka, kafka_topic(node, part), part.buckets)
            await topics.split(NAME, 0)
            await topics.merge(NAME, 2, 3)
            await topics.rebucket(NAME, 4, 3)
            topic = topic_of(node)
            assert [part.end_offsets for part in topic.segments if part.segment_id == 0] == [(1, 1)]
            await asyncio.to_thread(check_layout, kafka, node)
            assert len(await asyncio.to_thread(kafka_topics, kafka, topic_prefix)) == 6
            await topics.delete(NAME)
            assert await asyncio.to_thread(kafka_topics, kafka, topic_prefix) == set()

    asyncio.run(test())


def test_what_kafka_cannot_do_leaves_the_topic_as_it_was(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 1) as cluster:
            node = cluster.nodes[0]
            topics = node.operations.topics
            await topics.create(NAME, 1, {})
            # Something else has made a topic of the child's name.
            admin = KafkaConnection(kafka.bootstrap_servers).admin()
            part = topic_of(node).layout.split_children(0)[0]
            taken = kafka_topic(node, part)
            admin.create_topics([NewTopic(taken, 7, 1)])[taken].result(WAIT_S)
            with pytest.raises(KafkaFailedError, match="has 7 partitions, not 2"):
                await topics.split(NAME, 0)
            await until(lambda: not topic_of(node).is_restless, WAIT_S)
            await asyncio.to_thread(check_layout, kafka, node)
            await topics.split(NAME, 0)
            await asyncio.to_thread(check_layout, kafka, node)

    asyncio.run(test())


def test_too_few_kafka_brokers_are_named_and_nothing_is_left(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if Kafka had lost brokers since the cluster's own topics were made.
    three = SegmentSettings(replication_factor=3)
    monkeypatch.setattr("anabranch.broker.node.segment_settings", lambda _: three)

    async def test() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 1) as cluster:
            node = cluster.nodes[0]
            with pytest.raises(KafkaFailedError, match="set replicationFactor"):
                await node.operations.topics.create(NAME, 1, {})
            assert node.runtime.view.topic(NAME) is None
            assert await asyncio.to_thread(kafka_topics, kafka, topic_prefix) == set()

    asyncio.run(test())


# --- the controller is killed ---------------------------------------------------------------


class Victims:
    """A cluster of one node in this process, and others that control the topic until killed."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.node = cluster.nodes[0]

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[NodeProcess]:
        """Another node, which controls the topic."""
        settings = self.cluster.settings(brokerServicePort=0)
        context = node_process(settings)
        process = await asyncio.to_thread(context.__enter__)
        try:
            await until(lambda: process.id in self.node.operations.brokers(), WAIT_S)
            unit, holder = controller_of(self.node.runtime.view, NAME)
            if holder != process.id:
                await self.node.operations.unload(unit, process.id)
            yield process
        finally:
            await asyncio.to_thread(process.kill)


@asynccontextmanager
async def victims(kafka: EmbeddedKafka, prefix: str, folder: Path) -> AsyncIterator[Victims]:
    async with kafka_cluster(kafka, prefix, folder, 1) as cluster:
        await cluster.nodes[0].operations.topics.create(NAME, 2, {})
        yield Victims(cluster)


# Each step between these, and the load meanwhile: test_topic_steps.py.
@pytest.mark.parametrize("move", [TopicMove.BEGIN, TopicMove.SEALING])
def test_the_next_controller_finishes_what_a_killed_one_began(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, move: TopicMove
) -> None:
    async def test() -> None:
        async with victims(kafka, topic_prefix, tmp_path) as stage, stage.controller() as victim:
            node = stage.node
            async with httpx.AsyncClient(timeout=WAIT_S) as client:
                request = asyncio.create_task(client.post(f"{victim.url}{REST}/split/0"))
                await until(
                    lambda: topic_of(node).move in (move, TopicMove.COMMIT) and _acted(node), WAIT_S
                )
                await asyncio.to_thread(victim.kill)
                await asyncio.gather(request, return_exceptions=True)
            await until(lambda: not topic_of(node).is_restless, WAIT_S)
            active = {part.segment_id for part in topic_of(node).segments if part.is_active}
            assert active == {1, 2, 3}
            await asyncio.to_thread(check_layout, kafka, node)

    asyncio.run(test())


def _acted(node: Node) -> bool:
    return topic_of(node).next_segment_id > 2


def test_creation_and_deletion_survive_their_controller(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        async with victims(kafka, topic_prefix, tmp_path) as stage:
            node = stage.node
            async with stage.controller() as victim, httpx.AsyncClient(timeout=WAIT_S) as client:
                request = asyncio.create_task(client.delete(f"{victim.url}{REST}"))
                view = node.runtime.view
                await until(
                    lambda: (
                        (found := view.topic(NAME)) is None or found.state is TopicState.DELETING
                    ),
                    WAIT_S,
                )
                await asyncio.to_thread(victim.kill)
                await asyncio.gather(request, return_exceptions=True)
            await until(lambda: view.topic(NAME) is None, WAIT_S)
            assert await asyncio.to_thread(kafka_topics, kafka, topic_prefix) == set()
            async with stage.controller() as victim, httpx.AsyncClient(timeout=WAIT_S) as client:
                request = asyncio.create_task(
                    client.put(f"{victim.url}{REST}", params={"numInitialSegments": 50})
                )
                await until(lambda: view.topic(NAME) is not None, WAIT_S)
                await asyncio.to_thread(victim.kill)
                await asyncio.gather(request, return_exceptions=True)
            await until(lambda: topic_of(node).state is TopicState.STABLE, WAIT_S)
            assert len(await asyncio.to_thread(kafka_topics, kafka, topic_prefix)) == 50

    asyncio.run(test())
