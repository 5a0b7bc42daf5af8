"""Kafka discards what it gave out too often: no message may go that way that nobody received."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from anabranch.client import (
    Client,
    DeadLetter,
    DeadLetterPolicy,
    DeadlineError,
    MessageTooLargeError,
    QueueConsumer,
)
from anabranch.client._producer.batch import OVERHEAD_BYTES
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.kafka.settings import Differences
from support.there import there
from support.topic_cluster import TopicCluster, run_on, topic_cluster
from support.waiting import WAIT_S, until

_COUNT = 60
_LOCK_S = 6
# A Kafka that gives a message out twice, and refuses the ten times that we would like.
_SHORT = Differences(
    server={
        "group.share.min.record.lock.duration.ms": f"{_LOCK_S}000",
        "group.share.record.lock.duration.ms": f"{_LOCK_S}000",
        "group.share.max.delivery.count.limit": "5",
        "group.share.delivery.count.limit": "2",
    }
)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCluster]:
    """Two nodes on that Kafka."""
    folder = tmp_path_factory.mktemp("hasty")
    with (
        EmbeddedKafka(folder / "kafka", differences=_SHORT) as kafka,
        topic_cluster(kafka, f"{folder.name}.", folder) as running,
    ):
        yield running


async def _send(client: Client, topic: str, keys: int) -> None:
    async with await client.create_producer(topic) as producer:
        for number in range(_COUNT):
            await producer.post(b"%d" % number, f"k{number % keys}")


async def _do_rest(consumer: QueueConsumer, done: set[bytes]) -> None:
    """Until all are received and acknowledged in time, or nothing comes any more."""
    while len(done) < _COUNT:
        try:
            message = await consumer.receive(WAIT_S)
        except DeadlineError:
            return
        if consumer.acknowledge(message):
            done.add(message.value)


@pytest.mark.long
async def test_no_message_is_lost_to_workers_that_take_one_and_go(
    client: Client, topic: str
) -> None:
    await _send(client, topic, _COUNT)
    done: set[bytes] = set()
    for _ in range(14):
        async with await client.subscribe_queue(topic, "jobs") as worker:
            message = await worker.receive(WAIT_S)
            assert worker.acknowledge(message)
            done.add(message.value)
    async with await client.subscribe_queue(topic, "jobs") as consumer:
        await _do_rest(consumer, done)
    assert len(done) == _COUNT


async def test_what_cannot_be_processed_is_kept_with_its_history_and_nothing_else_is(
    client: Client, topic: str
) -> None:
    poison = {b"7", b"13"}
    await _send(client, f"topic://{topic}", _COUNT)
    policy = DeadLetterPolicy(deliveries_max=3)
    jobs = await client.subscribe_queue(topic, "jobs", dead_letter=policy)
    assert jobs.dead_letter == DeadLetterPolicy(deliveries_max=3, topic=f"topic://{topic}-jobs-DLQ")
    done: set[bytes] = set()
    tries: Counter[bytes] = Counter()
    while len(done) < _COUNT - len(poison) or tries.total() < 3 + 1:
        job = await jobs.receive(WAIT_S)
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
            message = await aside.receive(WAIT_S)
            letters[message.value] = DeadLetter.of(message)
            assert message.key == b"k%d" % int(message.value)
    spent, rejected = letters[b"7"], letters[b"13"]
    assert spent is not None
    assert rejected is not None
    assert (spent.deliveries, spent.reason, spent.error) == (3, "deliveries", "try 3")
    assert (spent.topic, spent.subscription) == (f"topic://{topic}", "jobs")
    assert (rejected.error, rejected.reason) == ("unlucky", "rejected")


async def test_the_largest_message_that_can_be_sent_fits_into_a_letter(
    client: Client, topic: str
) -> None:
    jobs = await client.subscribe_queue(topic, "jobs", dead_letter=DeadLetterPolicy())
    async with await client.create_producer(topic) as producer:
        size = producer.layout.max_message_bytes - OVERHEAD_BYTES - len("kh") - len("x") - 8
        with pytest.raises(MessageTooLargeError):
            await producer.send(b"v" * (size + 1), "k", headers={"h": "x"})
        await producer.send(b"v" * size, "k", headers={"h": "x"})
    assert jobs.reject(await jobs.receive(WAIT_S), error="x" * 1_000)
    async with await client.subscribe(f"{topic}-jobs-DLQ", "look") as aside:
        letter = await aside.receive(WAIT_S)
    assert (len(letter.value), letter.key, letter.headers) == (size, b"k", [("h", b"x")])
    await jobs.close()


async def _goes_on(client: Client, topic: str, jobs: QueueConsumer) -> None:
    """Others than the bad one are given out, which may come again and again."""
    async with await client.create_producer(topic) as producer:
        await producer.send(b"good")
    while (job := await jobs.receive(WAIT_S)).value == b"bad":
        assert jobs.reject(job, error="bad")
    assert jobs.acknowledge(job)


async def _letter_waits_for_its_topic(
    cluster: TopicCluster, client: Client, topic: str, away_s: float = 0.0
) -> None:
    jobs = await client.subscribe_queue(topic, "jobs", dead_letter=DeadLetterPolicy())
    aside = f"{topic}-jobs-DLQ"
    await cluster.call("DELETE", aside)
    async with await client.create_producer(topic) as producer:
        await producer.send(b"bad")
    assert jobs.reject(await jobs.receive(WAIT_S), error="bad")
    back_at = time.monotonic() + away_s
    await _goes_on(client, topic, jobs)
    while time.monotonic() < back_at or jobs.dead_letters_waiting == 0:
        await _goes_on(client, topic, jobs)
    await cluster.create(aside)
    async with await client.subscribe(aside, "look") as look:
        letter = await look.receive(WAIT_S)
    assert (letter.value, there(DeadLetter.of(letter)).error) == (b"bad", "bad")
    await until(lambda: jobs.dead_letters_waiting == 0)
    await _goes_on(client, topic, jobs)
    await jobs.close()


async def test_a_letter_waits_for_its_topic_and_the_consumer_goes_on(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    await _letter_waits_for_its_topic(cluster, client, topic)


@pytest.mark.long
def test_a_letter_outlasts_the_last_delivery_in_the_consumer_that_had_it(
    hasty: TopicCluster,
) -> None:
    run_on(hasty, functools.partial(_letter_waits_for_its_topic, away_s=3 * _LOCK_S))


@pytest.mark.long
def test_no_message_is_lost_to_an_application_that_works_on_one_for_long(
    hasty: TopicCluster,
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await _send(client, topic, 1)
        async with await client.subscribe_queue(topic, "jobs") as consumer:
            first = await consumer.receive(WAIT_S)
            await asyncio.sleep(2.2 * _LOCK_S)  # the work
            assert not consumer.acknowledge(first)
            done: set[bytes] = set()
            await _do_rest(consumer, done)
        assert len(done) == _COUNT

    run_on(hasty, body)
