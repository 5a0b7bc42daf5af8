"""What a real Kafka keeps, forgets and deletes of subscriptions, and what their consumers get."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.positions import GroupPositions
from anabranch.client import CheckpointConsumer, Client, StreamConsumer, SubscriptionError
from anabranch.core.hashing import hash32, segment_hash
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.channel import DEADLINE_S
from support.kafka_cluster import WAIT_S
from support.local_topic import LocalTopic, local_topic
from support.memory_cluster import until

pytestmark = pytest.mark.integration

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


def written_down(at: LocalTopic, subscription: str = "billing") -> int:
    """Messages before the subscription's positions, by the log."""
    known = at.node.runtime.view.subscription(at.topic, subscription)
    return sum(sum(each.offsets) for each in known.positions) if known is not None else 0


def group_of(at: LocalTopic, subscription: str = "billing") -> str:
    known = at.node.runtime.view.subscription(at.topic, subscription)
    assert known is not None
    prefix = at.node.settings.topic_prefix
    return kafka_group(prefix, at.topic, subscription, known.created_offset)


def deleted_up_to(at: LocalTopic, kafka: GroupPositions) -> int:
    """Messages that Kafka has no more."""
    topic = at.node.runtime.view.topic(at.topic)
    assert topic is not None
    prefix = at.node.settings.topic_prefix
    places = [
        (kafka_topic(prefix, at.topic, topic.incarnation, part), bucket)
        for part in topic.segments
        for bucket in range(part.buckets)
    ]
    return sum(kafka.offsets(places, EARLIEST, DEADLINE_S).values())


def test_a_subscription_whose_group_kafka_forgot_goes_on_where_it_was(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        async with used_topic(kafka, topic_prefix, tmp_path, **SURVEY) as (at, client):
            values = await sent(client, at.topic, 0, 20)
            async with await client.subscribe(at.topic, "billing") as consumer:
                assert await received(consumer, 12) == values[:12]
            await until(lambda: written_down(at) == 12, WAIT_S)
            admin = SegmentAdmin(KafkaConnection(kafka.bootstrap_servers), SegmentSettings())
            assert admin.delete_groups([group_of(at)], DEADLINE_S) == []
            admin.close()
            async with await client.subscribe(at.topic, "billing") as consumer:
                assert await received(consumer, 8) == values[12:]

    asyncio.run(test())


def test_messages_go_once_every_subscription_has_read_them(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
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

    asyncio.run(test())


async def saved(consumer: CheckpointConsumer, count: int) -> None:
    for _ in range(count):
        await consumer.receive(WAIT_S)
    assert consumer.saved(consumer.checkpoint())


def test_what_a_queue_has_acknowledged_is_deleted_and_its_backlog_is_known(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        settings = {**SURVEY, "scalableTopicRetentionSeconds": 0}
        async with used_topic(kafka, topic_prefix, tmp_path, **settings) as (at, client):
            positions = positions_in(kafka)
            surveys = at.node.operations.topics.surveys
            async with await client.subscribe_queue(at.topic, "work") as consumer:
                await sent(client, at.topic, 0, 10)
                for _ in range(10):
                    consumer.acknowledge(await consumer.receive(WAIT_S))
            await until(lambda: deleted_up_to(at, positions) == 10, WAIT_S)
            await sent(client, at.topic, 10, 15)
            await until(lambda: surveys.seen[at.topic].left == {"work": 5}, WAIT_S)
            assert deleted_up_to(at, positions) == 10

    asyncio.run(test())


def test_a_sealed_segment_goes_when_all_have_read_it_though_nobody_is_there_any_more(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        kept = {"scalableTopicRetentionSeconds": 0, "scalableTopicSealedRetentionSeconds": 0}
        async with used_topic(kafka, topic_prefix, tmp_path, **SURVEY, **kept) as (at, client):
            topics = at.node.operations.topics

            def drained(subscription: str) -> tuple[int, ...]:
                return topics.consumers.known(at.topic, subscription).drained

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

    asyncio.run(test())


def test_a_sealed_segment_is_drained_once_kafka_calls_it_settled_though_a_consumer_stays_away(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        async with used_topic(kafka, topic_prefix, tmp_path, **SURVEY) as (at, client):
            topics = at.node.operations.topics

            def drained() -> tuple[int, ...]:
                return topics.consumers.known(at.topic, "work").drained

            # It asks for nothing any more, so that its own word never comes.
            async with await client.subscribe_queue(at.topic, "work") as queue:
                await sent(client, at.topic, 0, 10)
                for _ in range(9):
                    queue.acknowledge(await queue.receive(WAIT_S))
                last = await queue.receive(WAIT_S)
                home = segment_hash(hash32(b"key"))
                first = next(p.segment_id for p in topics.topic(at.topic).segments if home in p)
                await topics.split(at.topic, first)
                await topics.surveys.look(at.topic)
                assert drained() == (), "one message is locked"
                queue.acknowledge(last)
                await until(lambda: drained() == (first,), WAIT_S)

    asyncio.run(test())


def test_the_group_of_a_deleted_subscription_does_not_come_back(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        settings = {**SURVEY, "scalableTopicConsumerSessionTimeoutSeconds": 2}
        async with used_topic(kafka, topic_prefix, tmp_path, **settings) as (at, client):
            positions = positions_in(kafka)
            consumer = await client.subscribe(at.topic, "billing")
            await received_after(client, at.topic, consumer)
            group = group_of(at)

            def is_there() -> bool:
                return group in positions.unused_groups(topic_prefix, DEADLINE_S)

            assert is_there()
            await at.node.operations.topics.consumers.delete(at.topic, "billing", force=True)
            late = KafkaConnection(kafka.bootstrap_servers).consumer(group_id=group)
            commit_late(late, at)
            with pytest.raises(SubscriptionError):
                await consumer.receive(WAIT_S)
            await consumer.close()
            await until(lambda: not is_there(), WAIT_S)
            commit_late(late, at)  # and later than anybody may
            late.close()
            assert is_there()
            await at.node.operations.topics.surveys.strays.search()
            await until(lambda: not is_there(), WAIT_S)

    asyncio.run(test())


async def received_after(client: Client, topic: str, consumer: StreamConsumer) -> None:
    values = await sent(client, topic, 0, 3)
    assert await received(consumer, 3) == values


def commit_late(consumer: Consumer, at: LocalTopic) -> None:
    topic = at.node.runtime.view.topic(at.topic)
    assert topic is not None
    part = topic.segments[0]
    kafka = kafka_topic(at.node.settings.topic_prefix, at.topic, topic.incarnation, part)
    consumer.commit(offsets=[TopicPartition(kafka, 0, 0)], asynchronous=False)


def test_a_consumer_begins_where_it_says_that_its_subscription_begins(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def test() -> None:
        async with used_topic(kafka, topic_prefix, tmp_path) as (at, client):
            old = await sent(client, at.topic, 0, 5)
            await asyncio.sleep(0.002)  # times are told in milliseconds
            then = datetime.fromtimestamp(time.time(), UTC)
            middle = await sent(client, at.topic, 5, 10)
            latest = await client.subscribe(at.topic, "latest", start="latest")
            other = await client.subscribe_checkpoint(at.topic, "kept", start="latest")
            new = await sent(client, at.topic, 10, 15)
            assert await received(latest, 5) == new
            assert [(await other.receive(WAIT_S)).value for _ in new] == new
            async with await client.subscribe(at.topic, "earliest") as consumer:
                assert await received(consumer, 15) == old + middle + new
            async with await client.subscribe(at.topic, "then", start=then) as consumer:
                assert await received(consumer, 10) == middle + new
            await latest.close()
            await other.close()

    asyncio.run(test())
