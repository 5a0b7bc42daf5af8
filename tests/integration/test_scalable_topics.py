"""Scalable topics on a real Kafka with a real node; its end at each step: test_topic_steps.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from anabranch.broker.node import Node
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.topics import kafka_names as segment_topics
from anabranch.core.topics.segment import SegmentInfo, tile
from anabranch.core.topics.topic import ScalableTopic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.kafka_cluster import kafka_cluster
from support.there import there
from support.waiting import WAIT_S

NAME = "public/default/orders"


def topic_of(node: Node) -> ScalableTopic:
    return there(node.runtime.view.topic(NAME))


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
            assert ends(kafka, name, part.buckets) == part.end_offsets


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
