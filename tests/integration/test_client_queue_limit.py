"""Kafka discards what it gave out too often: no message may go that way that nobody received."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from anabranch.client import Client, DeadLetter, DeadLetterPolicy, DeadlineError, QueueConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support.topic_cluster import TopicCluster, run_on, topic_cluster

pytestmark = pytest.mark.integration

_WAIT_S = 40.0
_COUNT = 60
_LOCK_S = 6


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


def test_what_cannot_be_processed_is_kept_with_its_history_and_nothing_else_is(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        poison = {b"7", b"13"}
        await _send(client, f"topic://{topic}", _COUNT)
        policy = DeadLetterPolicy(deliveries_max=3)
        jobs = await client.subscribe_queue(topic, "jobs", dead_letter=policy)
        assert jobs.dead_letter == DeadLetterPolicy(
            deliveries_max=3, topic=f"topic://{topic}-jobs-DLQ"
        )
        done: set[bytes] = set()
        tries: Counter[bytes] = Counter()
        while len(done) < _COUNT - len(poison) or tries.total() < 3 + 1:
            job = await jobs.receive(_WAIT_S)
            if job.value not in poison:
                assert jobs.acknowledge(job)
                done.add(job.value)
            elif job.value == b"13":
                tries[job.value] += 1
                assert jobs.reject(job, error="unlucky")
            else:
                tries[job.value] += 1
                assert jobs.release(job, error=f"try {job.delivery_count}")
        with pytest.raises(DeadlineError):
            await jobs.receive(1.0)
        await jobs.close()
        assert tries == {b"7": 3, b"13": 1}
        letters: dict[bytes, DeadLetter | None] = {}
        async with await client.subscribe(f"{topic}-jobs-DLQ", "look") as aside:
            while len(letters) < len(poison):
                message = await aside.receive(_WAIT_S)
                letters[message.value] = DeadLetter.of(message)
                assert message.key == b"k%d" % int(message.value)
        spent, rejected = letters[b"7"], letters[b"13"]
        assert spent is not None
        assert rejected is not None
        assert [each.error for each in spent.attempts] == ["try 1", "try 2", "try 3"]
        assert (spent.deliveries, spent.reason) == (3, "deliveries")
        assert (spent.topic, spent.subscription) == (f"topic://{topic}", "jobs")
        assert (rejected.error, rejected.reason) == ("unlucky", "rejected")

    run_on(cluster, body)


def test_a_message_released_for_later_comes_later_and_holds_up_no_other(
    cluster: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        topic = f"topic://{topic}"
        await _send(client, topic, _COUNT)
        async with await client.subscribe_queue(topic, "jobs") as jobs:
            done: set[bytes] = set()
            released = at = 0.0
            while len(done) < _COUNT:
                job = await jobs.receive(_WAIT_S)
                if job.value == b"30" and not released:
                    released = time.monotonic()
                    assert jobs.release(job, delay_s=5.0)
                    continue
                if job.value == b"30":
                    at = time.monotonic()
                    assert job.delivery_count == 2
                    assert len(done) == _COUNT - 1, "the others did not wait for it"
                assert jobs.acknowledge(job)
                done.add(job.value)
        assert at - released >= 5.0

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
