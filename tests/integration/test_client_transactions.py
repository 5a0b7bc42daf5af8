"""Transactions of plain Kafka producers in segments: their ends have offsets, but no messages."""

from __future__ import annotations

import asyncio
import json
import multiprocessing

import pytest

from anabranch.client import CheckpointConsumer, Client, QueueConsumer
from anabranch.client._consumer.ordered import OrderedConsumer
from support.commands import run_here
from support.topic_cluster import TopicCluster
from support.transactions import COUNT, begin_and_stay, begun, end
from support.waiting import WAIT_S, until

_WAITS = "consumer.waits_for_transaction"


def transact(servers: str, topic: str, bucket: int, *, commits: bool) -> None:
    """One transaction of three messages, ended in either way."""
    end(begun(servers, topic, bucket), commits=commits)


async def take(consumer: OrderedConsumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(count):
        message = await consumer.receive(WAIT_S)
        values.append(message.value)
        if isinstance(consumer, CheckpointConsumer):
            consumer.saved(consumer.checkpoint())
        else:
            consumer.acknowledge(message)  # type: ignore[attr-defined]
    return values


@pytest.mark.parametrize(
    ("makes", "early"),
    [("subscribe", False), ("subscribe_checkpoint", True)],
    ids=["acknowledged, once sealed", "saved, while active"],
)
async def test_a_transaction_keeps_nobody_from_the_children_whichever_way_it_ended(
    cluster: TopicCluster, makes: str, early: bool, client: Client, topic: str
) -> None:
    (segment,) = (await client.watch(topic)).layout.active
    for bucket, commits in ((0, True), (1, False)):
        await asyncio.to_thread(
            transact, cluster.kafka, segment.kafka_topic, bucket, commits=commits
        )
    consumer: OrderedConsumer | None = None
    if early:
        consumer = await getattr(client, makes)(topic, "billing")
        assert await take(consumer, COUNT) == [b"0", b"1", b"2"]
    await cluster.split_any(topic)
    producer = await client.create_producer(topic)
    await producer.send(b"of a child", "key")
    if consumer is None:
        consumer = await getattr(client, makes)(topic, "billing")
        assert await take(consumer, COUNT) == [b"0", b"1", b"2"]
    assert await take(consumer, 1) == [b"of a child"]
    served = consumer
    await until(lambda: all(segment_id != 0 for segment_id, _ in served.buckets))


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("makes", ["subscribe", "subscribe_checkpoint", "subscribe_queue"])
async def test_a_transaction_that_was_open_at_the_seal_ends_and_nothing_behind_it_is_kept(
    cluster: TopicCluster,
    client: Client,
    topic: str,
    makes: str,
    commits: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (segment,) = (await client.watch(topic)).layout.active
    consumer = await getattr(client, makes)(topic, "billing")
    producer = await client.create_producer(topic)
    writer = await asyncio.to_thread(begun, cluster.kafka, segment.kafka_topic, 0, 1)
    await cluster.split_any(topic)
    await producer.send(b"of a child", "key")
    if not commits and not isinstance(consumer, QueueConsumer):
        await until(lambda: any(getattr(each, "event", "") == _WAITS for each in caplog.records))
    await asyncio.to_thread(end, writer, commits=commits)
    expected = [b"0", b"1", b"2"] * 2 * commits + [b"of a child"]
    taken: list[bytes] = []
    while len(taken) < len(expected):
        message = await consumer.receive(WAIT_S)
        taken.append(message.value)
        if isinstance(consumer, CheckpointConsumer):
            consumer.saved(consumer.checkpoint())
        else:
            consumer.acknowledge(message)
    assert sorted(taken) == sorted(expected)
    if not isinstance(consumer, QueueConsumer):
        assert taken[-1] == b"of a child"
        served = consumer
        await until(lambda: all(segment_id > 0 for segment_id, _ in served.buckets))


async def test_a_transaction_that_nobody_ends_after_the_seal_keeps_nobody_for_longer_than_it_may(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    """Kafka gives it up after a second, and looks for such ones every ten."""
    (segment,) = (await client.watch(topic)).layout.active
    processes = multiprocessing.get_context("spawn")
    began = processes.Event()
    where = (cluster.kafka, segment.kafka_topic)
    process = processes.Process(target=begin_and_stay, args=(*where, 1_000, began))
    process.start()
    assert await asyncio.to_thread(began.wait, WAIT_S)
    process.kill()
    process.join(WAIT_S)
    await cluster.split_any(topic)
    producer = await client.create_producer(topic)
    await producer.send(b"of a child", "key")
    consumer = await client.subscribe(topic, "billing")
    assert await take(consumer, 1) == [b"of a child"]


_HANGING = 4_711_000  # producers' ids that Kafka has given to nobody


async def test_open_transactions_in_a_sealed_segment_are_told_by_statistics(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    (segment,) = (await client.watch(topic)).layout.active
    await client.subscribe(topic, "billing")
    writer = await asyncio.to_thread(begun, cluster.kafka, segment.kafka_topic, 0)
    await cluster.split_any(topic)

    async def command(*words: str) -> str:
        done = await asyncio.to_thread(run_here, *words, "--url", cluster.nodes[0].url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    stats = json.loads(await command("topics", "stats", topic, "--json"))
    assert stats["openTransactionsUnknown"] == ""
    assert stats["segments"]["0"]["openTransactions"] == [{"bucket": 0, "startOffset": 0}]
    assert "segment 0, bucket 0: read up to 0 only" in await command("topics", "stats", topic)
    await asyncio.to_thread(end, writer, commits=True)
