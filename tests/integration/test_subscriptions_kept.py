"""What a real Kafka keeps, forgets and deletes of subscriptions, and what their consumers get."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.channel.segments.positions import GroupPositions
from anabranch.client import CheckpointConsumer, Client, StreamConsumer, SubscriptionError
from anabranch.core.hashing import hash32, segment_hash
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.local_topic import LocalTopic, local_topic
from support.memory_cluster import until
from support.there import there
from support.waiting import WAIT_S

SURVEY: dict[str, Any] = {"scalableTopicSurveyIntervalSeconds": 0.2}


@asynccontextmanager
async def used_topic(
    kafka: EmbeddedKafka, prefix: str, folder: Path, **settings: Any
) -> AsyncIterator[tuple[LocalTopic, Client]]:
    """A topic on a node of its own, and a client of both."""
    async with (
        local_topic(kafka, prefix, folder, **settings) as at,
        Client(at.node.settings.service_url) as client,
    ):
        yield at, client


def positions_in(kafka: EmbeddedKafka) -> GroupPositions:
    return GroupPositions(KafkaConnection(kafka.bootstrap_servers))


async def sent(client: Client, topic: str, first: int, end: int) -> list[bytes]:
    producer = await client.create_producer(topic)
    values = [b"%d" % number for number in range(first, end)]
    for value in values:
        await producer.send(value, b"key")
    await producer.close()
    return values


async def received(consumer: StreamConsumer, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = await consumer.receive(WAIT_S)
        found.append(message.value)
        consumer.acknowledge(message)
    await consumer.flush(WAIT_S)
    return found


def group_of(at: LocalTopic, subscription: str = "billing") -> str:
    known = there(at.node.runtime.view.subscription(at.topic, subscription))
    return kafka_group(at.node.settings.topic_prefix, at.topic, subscription, known.group_offset)


def deleted_up_to(at: LocalTopic, kafka: GroupPositions) -> int:
    """Messages that Kafka has no more."""
    topic = there(at.node.runtime.view.topic(at.topic))
    prefix = at.node.settings.topic_prefix
    places = [
        (kafka_topic(prefix, at.topic, topic.incarnation, part), bucket)
        for part in topic.segments
        for bucket in range(part.buckets)
    ]
    return sum(kafka.offsets(places, EARLIEST, WAIT_S).values())


async def test_messages_go_once_every_subscription_has_read_them(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {**SURVEY, "scalableTopicRetentionSeconds": 0}
    async with used_topic(kafka, topic_prefix, tmp_path, **settings) as (at, client):
        positions = positions_in(kafka)
        slow = await client.subscribe(at.topic, "slow")
        keeper = await client.subscribe_checkpoint(at.topic, "keeper")
        async with await client.subscribe(at.topic, "billing") as consumer:
            values = await sent(client, at.topic, 0, 10)
            assert await received(consumer, 10) == values
            await until(lambda: at.node.operations.topics.surveys.seen != {}, WAIT_S)
            assert await received(slow, 4) == values[:4]
            await saved(keeper, 10)
            # Commits come one by one, so it may grow in steps; never past who has not read.
            await until(lambda: deleted_up_to(at, positions) >= 4, WAIT_S)
            assert deleted_up_to(at, positions) == 4
            assert await received(slow, 6) == values[4:]
            await until(lambda: deleted_up_to(at, positions) == 10, WAIT_S)
        await slow.close()
        await keeper.close()


async def saved(consumer: CheckpointConsumer, count: int) -> None:
    for _ in range(count):
        await consumer.receive(WAIT_S)
    consumer.saved(consumer.checkpoint())


async def test_a_sealed_segment_goes_when_all_have_read_it_though_nobody_is_there_any_more(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    kept = {"scalableTopicRetentionSeconds": 0, "scalableTopicSealedRetentionSeconds": 0}
    async with used_topic(kafka, topic_prefix, tmp_path, **SURVEY, **kept) as (at, client):
        topics = at.node.operations.topics

        def drained(subscription: str) -> tuple[int, ...]:
            return topics.subscriptions.known(at.topic, subscription).drained

        slow = await client.subscribe(at.topic, "slow")
        async with (
            await client.subscribe(at.topic, "billing") as consumer,
            await client.subscribe_queue(at.topic, "work") as queue,
        ):
            values = await sent(client, at.topic, 0, 10)
            assert await received(consumer, 10) == values
            for _ in range(10):
                queue.acknowledge(await queue.receive(WAIT_S))
        assert await received(slow, 9) == values[:9]
        await slow.close()
        home = segment_hash(hash32(b"key"))
        first = next(p.segment_id for p in topics.topic(at.topic).segments if home in p)
        await topics.split(at.topic, first)
        await until(lambda: drained("billing") == drained("work") == (first,), WAIT_S)
        assert drained("slow") == (), "one message is left"
        async with await client.subscribe(at.topic, "slow") as consumer:
            assert await received(consumer, 1) == values[9:]
        await until(lambda: topics.topic(at.topic).segment(first) is None, WAIT_S)


async def test_the_group_of_a_deleted_subscription_does_not_come_back(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {**SURVEY, "scalableTopicConsumerSessionTimeoutSeconds": 2}
    async with used_topic(kafka, topic_prefix, tmp_path, **settings) as (at, client):
        positions = positions_in(kafka)
        consumer = await client.subscribe(at.topic, "billing")
        await received_after(client, at.topic, consumer)
        group = group_of(at)

        def is_there() -> bool:
            return group in positions.unused_groups(topic_prefix, WAIT_S)

        assert is_there()
        await at.node.operations.topics.subscriptions.delete(at.topic, "billing", force=True)
        late = KafkaConnection(kafka.bootstrap_servers).consumer(group_id=group)
        commit_late(late, at)
        with pytest.raises(SubscriptionError):
            await consumer.receive(WAIT_S)
        await consumer.close()
        await until(lambda: not is_there(), WAIT_S)
        commit_late(late, at)  # and later than anybody may
        late.close()
        assert is_there()
        topics = at.node.operations.topics
        await topics.subscriptions.groups.delete_strays(topics.surveys._positions)
        await until(lambda: not is_there(), WAIT_S)


async def received_after(client: Client, topic: str, consumer: StreamConsumer) -> None:
    values = await sent(client, topic, 0, 3)
    assert await received(consumer, 3) == values


def commit_late(consumer: Consumer, at: LocalTopic) -> None:
    topic = there(at.node.runtime.view.topic(at.topic))
    part = topic.segments[0]
    kafka = kafka_topic(at.node.settings.topic_prefix, at.topic, topic.incarnation, part)
    consumer.commit(offsets=[TopicPartition(kafka, 0, 0)], asynchronous=False)
