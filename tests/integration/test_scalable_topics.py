"""Scalable topics on a real Kafka, also where the controller is killed at each step."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from anabranch.broker.node.node import Node
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.client import Client, StreamConsumer
from anabranch.core.entities.segment import SegmentInfo, tile
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.topics import kafka_names as segment_topics
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.doomed_node import Point
from support.kafka_cluster import kafka_cluster
from support.local_topic import local_topic
from support.log_ends import log_ends
from support.memory_cluster import until
from support.there import there
from support.traffic import Traffic, stored, wrong
from support.waiting import WAIT_S

NAME = "public/default/orders"


def topic_of(node: Node) -> ScalableTopic:
    return there(node.runtime.view.topic(NAME))


def kafka_topic(node: Node, part: SegmentInfo) -> str:
    return segment_topics.kafka_topic(
        node.settings.topic_prefix, NAME, topic_of(node).incarnation, part
    )


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
    found = KafkaConnection(kafka.bootstrap_servers).admin().list_topics(timeout=WAIT_S).topics
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
            reader = KafkaConnection(kafka.bootstrap_servers).consumer()
            assert log_ends(reader, name, part.buckets) == part.end_offsets


async def test_a_topic_lives_from_its_creation_to_its_deletion(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
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


# --- the controller is killed at each step of an operation, while producers and a consumer go on


_KEYS = [b"key-%d" % number for number in range(60)]


async def _receive(consumer: StreamConsumer, into: dict[bytes, list[bytes]]) -> None:
    while True:
        batch = await consumer.receive_many()
        for message in batch:
            key, value = message.key or b"", message.value
            if value not in into[key]:  # at least once
                into[key].append(value)
        consumer.acknowledge(batch)


@pytest.mark.parametrize(
    ("point", "path", "active"),
    [
        (Point.ONE_PARTITION_REFUSES, "/split/0", {1, 2, 3}),
        pytest.param(
            Point.SEALING_LOGGED, "/rebucket/0?bucketCount=3", {1, 2}, marks=pytest.mark.long
        ),
        pytest.param(Point.LIMIT_SET, "/prepare?segmentCount=3", {2, 3, 4}, marks=pytest.mark.long),
    ],
)
async def test_the_next_controller_goes_on_under_load(
    kafka: EmbeddedKafka,
    topic_prefix: str,
    tmp_path: Path,
    point: Point,
    path: str,
    active: set[int],
) -> None:
    async with (
        local_topic(kafka, topic_prefix, tmp_path) as at,
        Client(at.node.settings.service_url) as client,
    ):
        producer = await client.create_producer(at.topic)
        consumer = await client.subscribe(at.topic, "billing")
        received: dict[bytes, list[bytes]] = defaultdict(list)
        receiving = asyncio.create_task(_receive(consumer, received))
        traffic = Traffic(producer, _KEYS, 0.01)
        await at.asked(point, "POST", path)
        sent = await traffic.stop()
        topic = at.node.runtime.view.topic(at.topic)
        assert topic is not None
        assert {part.segment_id for part in topic.segments if part.is_active} == active
        await until(lambda: not producer.layout.children, WAIT_S)  # the watch may be behind
        found = await asyncio.to_thread(stored, kafka.bootstrap_servers, producer.layout)
        assert wrong(found, sent) == []
        await until(lambda: received == sent, WAIT_S)
        receiving.cancel()


@pytest.mark.long
async def test_the_next_controller_finishes_a_deletion(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async with local_topic(kafka, topic_prefix, tmp_path) as at:
        await at.asked(Point.TOPICS_DELETED, "DELETE")
        await until(lambda: at.node.runtime.view.topic(at.topic) is None, WAIT_S)
