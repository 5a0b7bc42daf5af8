"""The controller is killed at each step of an operation, while producers and a consumer go on."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path

import pytest

from anabranch.client import Client, StreamConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.doomed_node import Point
from support.local_topic import local_topic
from support.memory_cluster import until
from support.traffic import Traffic, stored, wrong
from support.waiting import WAIT_S

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
        pytest.param(Point.LIMIT_SET, "/merge/0/1", {2}, marks=pytest.mark.long),
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
async def test_a_seek_whose_controller_dies_once_it_is_logged_is_done(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    values = [b"%d" % number for number in range(20)]
    async with (
        local_topic(kafka, topic_prefix, tmp_path) as at,
        Client(at.node.settings.service_url) as client,
    ):
        producer = await client.create_producer(at.topic)
        consumer = await client.subscribe(at.topic, "billing")

        async def received(count: int) -> list[bytes]:
            found: list[bytes] = []
            while len(found) < count:
                message = await consumer.receive(WAIT_S)
                found.append(message.value)
                consumer.acknowledge(message)
            return found

        now = round(time.time() * 1000)
        for number, value in enumerate(values):
            await producer.send(value, b"key", event_time_ms=now + number)
        assert await received(20) == values
        await at.asked(
            Point.RESET_LOGGED, "POST", f"/subscriptions/billing/seek?timestamp={now + 7}"
        )
        assert await received(13) == values[7:]
        await consumer.close()


@pytest.mark.long
async def test_the_next_controller_finishes_a_deletion(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async with local_topic(kafka, topic_prefix, tmp_path) as at:
        await at.asked(Point.TOPICS_DELETED, "DELETE")
        await until(lambda: at.node.runtime.view.topic(at.topic) is None, WAIT_S)
