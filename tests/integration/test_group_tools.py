"""Kafka's own group tools, and late commits, against subscriptions that are consumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import EARLIEST, Place
from anabranch.client import Client, StreamConsumer
from anabranch.core.entities.subscription import Subscription
from anabranch.core.subscriptions.known_positions import mark_of
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.kafka_tools import group_tool
from support.local_topic import LocalTopic, local_topic
from support.memory_cluster import until
from support.there import there
from support.waiting import WAIT_S

NOTICED_S = 10.0

pytestmark = pytest.mark.long


class Scene:
    """A topic, who produces to it and consumes it, and what Kafka has of the subscription."""

    def __init__(self, kafka: EmbeddedKafka, at: LocalTopic, client: Client) -> None:
        self.servers = kafka.bootstrap_servers
        self.at = at
        self.client = client
        self.connection = KafkaConnection(self.servers)
        self._positions = KafkaPositions(self.connection)
        self._sent = 0

    @property
    def begun_at(self) -> int:
        return self._known.created_offset

    @property
    def group(self) -> str:
        return self.at.node.operations.topics.access.group_id(self.at.topic, "billing", self._known)

    @property
    def places(self) -> list[Place]:
        topic = there(self.at.node.runtime.view.topic(self.at.topic))
        prefix = self.at.node.settings.topic_prefix
        return [
            (kafka_topic(prefix, self.at.topic, topic.incarnation, part), bucket)
            for part in topic.segments
            for bucket in range(part.buckets)
        ]

    @property
    def _known(self) -> Subscription:
        return self.at.node.operations.topics.subscriptions.known(self.at.topic, "billing")

    async def send(self, count: int) -> set[bytes]:
        """What was sent, under as many keys."""
        producer = await self.client.create_producer(self.at.topic)
        values = [b"%d" % number for number in range(self._sent, self._sent + count)]
        for value in values:
            await producer.send(value, value)
        await producer.close()
        self._sent += count
        return set(values)

    async def consumer(self) -> StreamConsumer:
        return await self.client.subscribe(self.at.topic, "billing")

    async def tool(self, *arguments: str) -> str:
        return await group_tool(self.servers, "--group", self.group, *arguments)

    async def reset(self, to: str) -> None:
        said = await self.tool("--reset-offsets", "--all-topics", to, "--execute")
        assert "NEW-OFFSET" in said, said

    def read(self) -> int:
        """How many messages the group has read, as whoever looks at Kafka sees it."""
        told = self._positions.committed(self.group, self.places, WAIT_S)
        return sum(each.offset for each in told.values())

    async def put_right(self, read: int) -> None:
        """Within the time in which it is promised."""
        await until(lambda: self.read() == read, NOTICED_S)


@asynccontextmanager
async def consumed(kafka: EmbeddedKafka, prefix: str, folder: Path) -> AsyncIterator[Scene]:
    async with (
        local_topic(kafka, prefix, folder) as at,
        Client(at.node.settings.service_url) as client,
    ):
        yield Scene(kafka, at, client)


async def received(consumer: StreamConsumer, values: set[bytes]) -> None:
    """It gives these, and no others."""
    found: list[bytes] = []
    for _ in values:
        message = await consumer.receive(WAIT_S)
        consumer.acknowledge(message)
        found.append(message.value or b"")
    assert (len(found), set(found)) == (len(values), values)
    await consumer.flush(WAIT_S)


async def test_resets_and_deletes_by_kafkas_tools_have_no_effect_on_what_is_delivered(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async with consumed(kafka, topic_prefix, tmp_path) as scene:
        watch = scene.at.node.operations.topics.position_watch
        consumer = await scene.consumer()
        await received(consumer, await scene.send(40))
        for _ in range(2):
            await watch.round()
        assert watch.found == {}, "nobody has done anything"

        await scene.reset("--to-earliest")
        await consumer.close()  # at once: nobody had the time to look
        consumer = await scene.consumer()
        await received(consumer, await scene.send(10))

        assert "successful" in await scene.tool("--delete")
        await scene.put_right(50)

        waiting = await scene.send(10)  # it is behind
        await scene.reset("--to-latest")
        await scene.put_right(50)
        await received(consumer, waiting)
        await consumer.close()

        await scene.reset("--to-earliest")
        await scene.put_right(60)  # though nobody consumes
        await scene.tool("--delete")
        scene.at.node.operations.topics.consumers.standing.forget(set())  # as one that just started
        consumer = await scene.consumer()
        await received(consumer, await scene.send(10))
        await consumer.close()


async def test_a_seek_keeps_the_groups_name_and_a_late_commit_from_before_has_no_effect(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async with consumed(kafka, topic_prefix, tmp_path) as scene:
        consumer = await scene.consumer()
        everything = await scene.send(20)
        await received(consumer, everything)
        group, former = scene.group, mark_of(scene.begun_at)
        await scene.at.node.operations.topics.subscriptions.reset(
            scene.at.topic, "billing", EARLIEST
        )
        assert scene.group == group
        await received(consumer, everything)
        late = scene.connection.consumer(group_id=group)
        places = [TopicPartition(*place, 0, metadata=former) for place in scene.places]
        late.commit(offsets=places, asynchronous=False)
        late.close()
        await consumer.close()
        consumer = await scene.consumer()
        await received(consumer, await scene.send(5))
        await scene.put_right(25)
        await consumer.close()
