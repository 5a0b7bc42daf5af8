"""A Kafka that makes missing topics by itself, as Kafka does unless it is told otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client import Client, ClientError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support.channel import until
from support.hand_made_topic import HandMadeTopic
from support.waiting import WAIT_S


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    creating = Differences(server={"auto.create.topics.enable": "true"})
    with EmbeddedKafka(tmp_path_factory.mktemp("creating"), differences=creating) as running:
        yield running


@pytest.fixture
def connection(kafka: EmbeddedKafka) -> KafkaConnection:
    return KafkaConnection(kafka.bootstrap_servers)


def _topics(connection: KafkaConnection) -> set[str]:
    return set(connection.admin().list_topics(timeout=WAIT_S).topics)


def test_this_kafka_does_make_topics_that_are_missing(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    missing = f"{topic_prefix}missing"
    producer = connection.producer(allow_auto_create_topics=True)
    producer.produce(missing, b"x")
    assert producer.flush(WAIT_S) == 0
    assert missing in _topics(connection)


async def test_a_message_for_a_deleted_segment_is_not_acknowledged(
    kafka: EmbeddedKafka, connection: KafkaConnection, topic_prefix: str
) -> None:
    async with (
        HandMadeTopic(topic_prefix, kafka.bootstrap_servers) as topic,
        Client(topic.url) as client,
    ):
        producer = await client.create_producer(topic.name, delivery_timeout_s=8.0)
        await producer.send(b"one", b"key")
        name = topic.kafka_topic(topic.layout.segments[0])
        admin = SegmentAdmin(connection, SegmentSettings())
        await asyncio.to_thread(admin.delete, [name], WAIT_S)
        await asyncio.to_thread(admin.close)
        # Its controller has deleted it; the broker may still take appends for a moment.
        await asyncio.to_thread(until, lambda: name not in _topics(connection), "the topic is gone")
        with pytest.raises(ClientError):
            await producer.send(b"two", b"key")
        assert name not in await asyncio.to_thread(_topics, connection)


def test_sealing_makes_no_topic_of_one_that_is_gone(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    gone = SegmentTopic(f"{topic_prefix}gone", 2)
    admin = SegmentAdmin(connection, SegmentSettings())
    try:
        assert admin.seal([gone], WAIT_S) == {gone.name: (0, 0)}
    finally:
        admin.close()
    assert gone.name not in _topics(connection)
