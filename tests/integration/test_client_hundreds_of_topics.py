"""One consumer of hundreds of topics, on a real node and a real Kafka."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client import Client, TopicSelection
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import NodeProcess, stop_all
from anabranch.devkit.topics_on_log import make_kafka_topics
from support.many_topics import start_with_topics
from support.processes import EVENLY, LONG_LEASES, free_ports

pytestmark = pytest.mark.integration

HOME = "public/default"
NAMES = [f"{HOME}/many-{number:03d}" for number in range(300)]
SELECTION = TopicSelection(HOME, pattern="many-.*")
MESSAGES = 20
THREADS_MAX = 40  # of clients of Kafka, and for short questions
_WAIT_S = 180.0


@pytest.fixture
def node(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> Iterator[tuple[NodeProcess, list[SegmentTopic]]]:
    """A node that serves them, and their Kafka topics."""
    process = NodeProcess(
        "node-0",
        free_ports(1),
        kafka.bootstrap_servers,
        tmp_path,
        f"topicPrefix={topic_prefix}",
        *LONG_LEASES,
        EVENLY,
    )
    connection = KafkaConnection(kafka.bootstrap_servers)
    try:
        topics = start_with_topics(process, connection, topic_prefix, NAMES)
        make_kafka_topics(connection, topics)
        yield process, topics
    finally:
        stop_all([process])


def threads() -> int:
    """Of this process, those of librdkafka included."""
    return len(list(Path("/proc/self/task").iterdir()))


def produce(kafka: EmbeddedKafka, topics: Sequence[SegmentTopic], numbers: range) -> None:
    producer = KafkaConnection(kafka.bootstrap_servers).producer()
    for number in numbers:
        for topic in topics:
            producer.produce(topic.name, str(number).encode(), partition=0)
    assert producer.flush(_WAIT_S) == 0


def test_all_are_read_in_order_by_few_threads_and_read_on_by_the_next_consumer(
    kafka: EmbeddedKafka, node: tuple[NodeProcess, list[SegmentTopic]]
) -> None:
    process, topics = node

    async def read(count: int) -> dict[str, list[int]]:
        before = threads()
        got: dict[str, list[int]] = defaultdict(list)
        async with (
            Client(process.service_url()) as client,
            await client.subscribe_topics(
                SELECTION, "all", "reader", subscribe_timeout_s=_WAIT_S
            ) as consumer,
        ):
            assert (consumer.topics, consumer.failing) == (NAMES, {})
            assert threads() - before < THREADS_MAX
            left = count * len(NAMES)
            while left:
                batch = await consumer.receive_many(timeout_s=_WAIT_S)
                for message in batch:
                    got[message.topic].append(int(message.value))
                left -= len(batch)
                assert consumer.acknowledge(batch)
        return got

    produce(kafka, topics, range(MESSAGES))
    assert asyncio.run(read(MESSAGES)) == {key: list(range(MESSAGES)) for key in NAMES}
    produce(kafka, topics, range(MESSAGES, MESSAGES + 5))
    assert asyncio.run(read(5)) == {key: list(range(MESSAGES, MESSAGES + 5)) for key in NAMES}
