"""Queue consumers on real nodes and a real Kafka; and what becomes of consumers without nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.client import (
    Backoff,
    BucketLostError,
    Client,
    ClosedError,
    DeadlineError,
    QueueConsumer,
    QueueMessage,
    Work,
)
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.topic_cluster import TopicCluster, run_on, topic_cluster
from support.waiting import WAIT_S, until


async def send(client: Client, topic: str, first: int, count: int, pause_s: float = 0.0) -> None:
    producer = await client.create_producer(topic)
    for number in range(first, first + count):
        await producer.post(b"%d" % number, f"k{number % 50}")
        if pause_s:
            await asyncio.sleep(pause_s)
    await producer.close()


async def work(consumer: QueueConsumer, seen: Counter[int], until: Callable[[], bool]) -> None:
    """Receives and acknowledges until then, or until the consumer is closed."""
    while not until():
        try:
            message = await consumer.receive(0.2)
        except DeadlineError:
            continue
        except ClosedError:
            return
        seen[int(message.value)] += 1
        assert consumer.acknowledge(message)


@pytest.mark.parametrize("segments", [2])
async def test_consumers_share_the_messages_and_each_is_processed_once(
    client: Client, topic: str
) -> None:
    await send(client, topic, 0, 2_000)  # before anybody subscribes: from the beginning
    consumers = [await client.subscribe_queue(topic, "jobs") for _ in range(2)]
    seen: Counter[int] = Counter()
    await asyncio.gather(*(work(each, seen, lambda: len(seen) == 2_000) for each in consumers))
    assert set(seen.values()) == {1}
    for each in consumers:
        await each.close()
    async with await client.subscribe_queue(topic, "jobs") as late:
        with pytest.raises(DeadlineError):
            await late.receive(1.0)


@pytest.mark.parametrize("segments", [2])
async def test_released_messages_come_again_and_rejected_ones_do_not(
    client: Client, topic: str
) -> None:
    await send(client, topic, 0, 2)
    async with await client.subscribe_queue(topic, "jobs") as consumer:
        came = []
        for _ in range(3):  # what was released may come again before the other comes at all
            message = await consumer.receive(WAIT_S)
            came.append((message.value, message.delivery_count))
            match came[-1]:
                case (b"0", 1):
                    assert consumer.release(message)
                case (b"0", _):
                    assert consumer.acknowledge(message)
                case _:
                    assert consumer.reject(message)
        assert sorted(came) == [(b"0", 1), (b"0", 2), (b"1", 1)]
        with pytest.raises(DeadlineError):
            await consumer.receive(0.5)


@pytest.mark.parametrize("segments", [2])
async def test_handlers_of_two_consumers_share_the_messages_and_each_is_processed_once(
    client: Client, topic: str
) -> None:
    await send(client, topic, 0, 500)
    seen: Counter[int] = Counter()
    failed: set[int] = set()

    async def handle(message: QueueMessage, work: Work) -> None:
        number = int(message.value)
        if number % 50 == 0 and number not in failed:
            failed.add(number)
            raise ValueError("once")
        await asyncio.sleep(0.01)
        seen[number] += 1

    consumers = [await client.subscribe_queue(topic, "jobs") for _ in range(2)]
    delay_s = Backoff(first=0.05, most=0.1)
    runs = [asyncio.create_task(each.run(handle, delay_s=delay_s)) for each in consumers]
    await until(lambda: len(seen) == 500, WAIT_S)
    for each in consumers:
        await each.stop()
    await asyncio.gather(*runs)
    assert set(seen.values()) == {1}
    async with await client.subscribe_queue(topic, "jobs") as late:
        with pytest.raises(DeadlineError):
            await late.receive(1.0)


@pytest.mark.parametrize("segments", [2])
async def test_what_a_closed_consumer_did_not_settle_goes_to_another(
    client: Client, topic: str
) -> None:
    await send(client, topic, 0, 100)
    one = await client.subscribe_queue(topic, "jobs")
    batch = await one.receive_many(WAIT_S)
    done = {int(message.value) for message in batch[: len(batch) // 2]}
    for message in batch[: len(batch) // 2]:
        one.acknowledge(message)
    await one.close()
    assert not one.acknowledge(batch[-1])
    seen: Counter[int] = Counter()
    async with await client.subscribe_queue(topic, "jobs") as two:
        await work(two, seen, lambda: len(seen) == 100 - len(done))
    assert seen == Counter(set(range(100)) - done)


@pytest.mark.parametrize("segments", [2])
async def test_the_lock_is_what_kafka_says_and_another_one_is_refused(
    client: Client, topic: str
) -> None:
    with pytest.raises(InvalidInputError, match=r"lock_s is 0.5, and Kafka's .* is 30000"):
        await client.subscribe_queue(topic, "jobs", lock_s=0.5)
    async with await client.subscribe_queue(topic, "jobs", lock_s=30.0) as consumer:
        with pytest.raises(DeadlineError):
            await consumer.receive(0.1)


@pytest.mark.long
def test_a_queue_follows_splits_and_merges_and_leaves_what_is_drained(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        consumers = [await client.subscribe_queue(topic, "jobs") for _ in range(2)]
        seen: Counter[int] = Counter()
        tasks = [asyncio.create_task(work(each, seen, lambda: False)) for each in consumers]
        sending = asyncio.create_task(send(client, topic, 0, 2_000, 0.002))
        for _ in range(2):
            await cluster.split_any(topic)
            await cluster.merge_last(topic)
        await sending
        deadline = time.monotonic() + 3 * WAIT_S
        while len(seen) < 2_000 or any(len(each.segments) > 1 for each in consumers):
            assert time.monotonic() < deadline, (len(seen), [c.segments for c in consumers])
            await asyncio.sleep(0.02)
        assert set(seen.values()) == {1}
        assert consumers[0].segments == consumers[1].segments
        number = 2_000
        while any(len(each._sources) > 1 for each in consumers):  # two deliveries later they go
            assert time.monotonic() < deadline, [list(each._sources) for each in consumers]
            await send(client, topic, number, 1)
            number += 1
        for each in consumers:
            await each.close()
        await asyncio.gather(*tasks)

    soon = "scalableTopicSurveyIntervalSeconds=1"
    with topic_cluster(kafka, topic_prefix, tmp_path, soon) as running:
        run_on(running, body)


@pytest.mark.long
def test_a_consumer_that_reaches_no_controller_stops_until_it_does_and_a_queue_s_does_not(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = (
        "scalableTopicConsumerSessionTimeoutSeconds=9",
        "scalableTopicConsumerSessionGracePeriodSeconds=90",
    )

    async def body(cluster: TopicCluster, client: Client, topic: str) -> None:
        await send(client, topic, 0, 100)
        consumer = await client.subscribe(topic, "billing", "one")
        for _ in range(50):
            consumer.acknowledge(await consumer.receive(WAIT_S))
        await consumer.flush()
        held = await consumer.receive(WAIT_S)
        jobs = await client.subscribe_queue(topic, "jobs")
        worked: Counter[int] = Counter()
        pids = [node.pid for node in cluster.nodes if node.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + WAIT_S
            while consumer.buckets:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            with pytest.raises(BucketLostError, match="no controller answered"):
                consumer.acknowledge(held)
            with pytest.raises(DeadlineError):
                await consumer.receive(0.5)  # though some of it had been read already
            await work(jobs, worked, lambda: len(worked) == 100)
            assert set(worked.values()) == {1}
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        again = [await consumer.receive(WAIT_S) for _ in range(50)]
        assert held.value in {message.value for message in again}
        time.sleep(4.0)  # noqa: ASYNC251 - work that keeps the event loop from running
        consumer.acknowledge(again[-1])
        await until(lambda: "loop_blocked" in caplog.text)

    with topic_cluster(kafka, topic_prefix, tmp_path, *session) as running:
        run_on(running, body, segments=2)
