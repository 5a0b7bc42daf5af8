"""Transactions of plain Kafka producers in segments: their ends have offsets, but no messages."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from anabranch.client import CheckpointConsumer, Client
from anabranch.client._consumer.stream import OrderedConsumer
from support.quiet import QUIET
from support.topic_cluster import TopicCluster, run_on
from support.waiting import until

pytestmark = pytest.mark.integration

_WAIT_S = 40.0
_COUNT = 3


def transact(servers: str, topic: str, bucket: int, *, commits: bool) -> None:
    """One transaction of three messages, ended in either way."""
    producer = Producer(
        {**QUIET, "bootstrap.servers": servers, "transactional.id": f"{topic}.{bucket}"}
    )
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    for number in range(_COUNT):
        producer.produce(topic, b"%d" % number, b"key", partition=bucket)
    assert producer.flush(_WAIT_S) == 0
    (producer.commit_transaction if commits else producer.abort_transaction)(_WAIT_S)


async def take(consumer: OrderedConsumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(count):
        message = await consumer.receive(_WAIT_S)
        values.append(message.value)
        if isinstance(consumer, CheckpointConsumer):
            assert consumer.saved(consumer.checkpoint())
        else:
            consumer.acknowledge(message)  # type: ignore[attr-defined]
    return values


@pytest.mark.parametrize("makes", ["subscribe", "subscribe_checkpoint"])
@pytest.mark.parametrize("early", [True, False], ids=["while active", "once sealed"])
def test_a_transaction_keeps_nobody_from_the_children_whichever_way_it_ended(
    cluster: TopicCluster, makes: str, early: bool
) -> None:
    async def body(cluster: TopicCluster, client: Client, name: str) -> None:
        topic = f"topic://{name}"
        (segment,) = (await client.watch(topic)).layout.active
        for bucket, commits in ((0, True), (1, False)):
            await asyncio.to_thread(
                transact, cluster.kafka, segment.kafka_topic, bucket, commits=commits
            )
        consumer: OrderedConsumer | None = None
        if early:
            consumer = await getattr(client, makes)(topic, "billing")
            assert await take(consumer, _COUNT) == [b"0", b"1", b"2"]
        await cluster.split_any(name)
        producer = await client.create_producer(topic)
        await producer.send(b"of a child", "key")
        if consumer is None:
            consumer = await getattr(client, makes)(topic, "billing")
            assert await take(consumer, _COUNT) == [b"0", b"1", b"2"]
        assert await take(consumer, 1) == [b"of a child"]
        served = consumer
        await until(lambda: all(segment_id != 0 for segment_id, _ in served.buckets))

    run_on(cluster, body)
