"""Kafka topics of three brokers, with writers of each kind, become scalable topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JJavaError

from anabranch.channel.segments.sealing import PROBE_HEADER
from anabranch.client import Client
from support.adoption_rounds import REFUSALS, cut_over_under_load
from support.alternation import RefusedError
from support.giving_back import SOON, given_back_under_load
from support.java_clients import java_producer
from support.kafka_brokers import KafkaBrokers
from support.log_ends import log_end
from support.old_topics import PARTITIONS, SETTINGS, adopted, make, new_name, write
from support.plain_writers import KINDS, cause, plain_senders
from support.quiet import QUIET
from support.topic_cluster import TopicCluster, topic_cluster

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(
    brokers: KafkaBrokers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two nodes whose namespace may adopt what begins with `old-`."""
    folder = tmp_path_factory.mktemp("adopting")
    settings = (f"{name}={value}" for name, value in (SETTINGS | SOON).items())
    with topic_cluster(brokers, f"{folder.name}.", folder, *settings) as running:
        yield running


def records_of(kafka: str, topic: str) -> tuple[list[int], int]:
    """The end of each partition, and how many records with the header of a probe it has."""
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        ends = [log_end(consumer, place) for place in places]
        consumer.assign(places)
        probes, left = 0, sum(ends)
        while left:
            for message in consumer.consume(left, 1.0):
                assert message.error() is None
                probes += any(each[0] == PROBE_HEADER for each in message.headers() or ())
                left -= 1
        return ends, probes
    finally:
        consumer.close()


async def test_cut_over_under_load_of_each_kind_of_writer_loses_repeats_and_turns_round_nothing(
    cluster: TopicCluster, client: Client, java: Any
) -> None:
    old = new_name()
    await asyncio.to_thread(make, cluster.kafka, old, 3, min_insync_replicas="2")
    await cut_over_under_load(cluster, client, java, old)


async def test_giving_back_under_load_loses_repeats_and_turns_round_nothing(
    cluster: TopicCluster, client: Client, java: Any
) -> None:
    old = new_name()
    await asyncio.to_thread(make, cluster.kafka, old, 3, min_insync_replicas="2")
    async with plain_senders(java, cluster.kafka, old) as senders:
        await given_back_under_load(cluster, client, old, (8,), senders)


@pytest.mark.parametrize("copies", [1, 3])
async def test_no_probe_is_stored_in_a_topic_that_takes_any_time_stamp(
    cluster: TopicCluster, client: Client, copies: int
) -> None:
    old = new_name()
    unbound = partial(make, message_timestamp_after_max_ms=str((1 << 63) - 1))
    await asyncio.to_thread(unbound, cluster.kafka, old, copies)
    await asyncio.to_thread(write, cluster.kafka, old)
    ends, _ = await asyncio.to_thread(records_of, cluster.kafka, old)
    topic = await adopted(cluster, old)
    await cluster.prepare(topic, 4)
    assert await asyncio.to_thread(records_of, cluster.kafka, old) == (ends, 0)
    assert list((await client.watch(topic)).layout.segments[0].info.end_offsets) == ends


async def test_after_the_cut_over_each_kind_of_plain_client_says_what_the_pages_say(
    cluster: TopicCluster, java: Any
) -> None:
    """With `acks=0` it says nothing, and a batch of Java's in the end says that time is over."""
    old = new_name()
    await asyncio.to_thread(make, cluster.kafka, old, 3)
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    await cluster.prepare(topic, 2)
    before = await asyncio.to_thread(records_of, cluster.kafka, old)
    said = {}
    async with plain_senders(java, cluster.kafka, old) as senders:
        for kind, send in zip(KINDS, senders, strict=True):
            with pytest.raises(RefusedError) as refused:
                await send(b"late", "key")
            said[kind] = str(refused.value)
    assert said == REFUSALS
    async with plain_senders(java, cluster.kafka, old, acks="0") as senders:
        for send in senders:
            await send(b"late", "key")
    said_of_two, splits = await asyncio.to_thread(two_of_java, java, cluster.kafka, old)
    assert said_of_two == {"TimeoutException"}
    assert splits > 1
    assert await asyncio.to_thread(records_of, cluster.kafka, old) == before


def two_of_java(java: Any, kafka: str, topic: str) -> tuple[set[str], float]:
    """How a batch of two messages fails, and how often it was taken apart until then."""
    short = {"delivery.timeout.ms": "1500", "request.timeout.ms": "1000", "linger.ms": "300"}
    producer = java_producer(java, kafka, short)
    producer.partitionsFor(topic)
    record = java.org.apache.kafka.clients.producer.ProducerRecord
    answers = [producer.send(record(topic, b"key", b"late")) for _ in range(2)]
    producer.flush()
    said = set()
    for answer in answers:
        with pytest.raises(Py4JJavaError) as failed:
            answer.get()
        said.add(cause(failed.value))
    splits = next(
        each.metricValue()
        for each in producer.metrics().values()
        if each.metricName().name() == "batch-split-total"
    )
    producer.close()
    return said, splits
