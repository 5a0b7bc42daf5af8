"""Kafka discards what it gave out too often: no message may go that way that nobody received."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.channel.embedded.settings import Differences
from anabranch.client.client import Client
from anabranch.client.errors import DeadlineError
from anabranch.client.queue import QueueConsumer
from support.topic_cluster import TopicCluster, run_on, topic_cluster

pytestmark = pytest.mark.integration

_WAIT_S = 40.0
_COUNT = 60
_LOCK_S = 10


async def _send(client: Client, topic: str, keys: int) -> None:
    async with await client.create_producer(topic) as producer:
        for number in range(_COUNT):
            await producer.post(b"%d" % number, f"k{number % keys}")


async def _do_rest(consumer: QueueConsumer, done: set[bytes]) -> None:
    """Until all are received and acknowledged in time, or nothing comes any more."""
    while len(done) < _COUNT:
        try:
            message = await consumer.receive(_WAIT_S)
        except DeadlineError:
            return
        if consumer.acknowledge(message):
            done.add(message.value)


def test_no_message_is_lost_to_workers_that_take_one_and_go(cluster: TopicCluster) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        topic = f"topic://{topic}"
        await _send(client, topic, _COUNT)
        done: set[bytes] = set()
        for _ in range(14):
            async with await client.subscribe_queue(topic, "jobs") as worker:
                message = await worker.receive(_WAIT_S)
                assert worker.acknowledge(message)
                done.add(message.value)
        async with await client.subscribe_queue(topic, "jobs") as consumer:
            await _do_rest(consumer, done)
        assert len(done) == _COUNT

    run_on(cluster, body)


def test_no_message_is_lost_to_an_application_that_works_on_one_for_long(
    topic_prefix: str, tmp_path: Path
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        topic = f"topic://{topic}"
        await _send(client, topic, 1)
        async with await client.subscribe_queue(topic, "jobs") as consumer:
            first = await consumer.receive(_WAIT_S)
            await asyncio.sleep(2.2 * _LOCK_S)  # the work
            assert not consumer.acknowledge(first)
            done: set[bytes] = set()
            await _do_rest(consumer, done)
        assert len(done) == _COUNT

    # A Kafka that gives a message out twice, and refuses the ten times that we would like.
    short = Differences(
        server={
            "group.share.min.record.lock.duration.ms": f"{_LOCK_S}000",
            "group.share.record.lock.duration.ms": f"{_LOCK_S}000",
            "group.share.max.delivery.count.limit": "5",
            "group.share.delivery.count.limit": "2",
        }
    )
    with (
        EmbeddedKafka(tmp_path / "kafka", differences=short) as kafka,
        topic_cluster(kafka, topic_prefix, tmp_path) as running,
    ):
        run_on(running, body)
