"""A scalable topic is copied into a plain Kafka topic, and groups go on there."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from anabranch.client import Client
from anabranch.core.partitioners import Partitioner, partition_of
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.commands import ran
from support.log_ends import log_end
from support.old_topics import (
    ADOPTABLE,
    KEYS,
    PARTITIONS,
    Sent,
    adopted,
    given,
    group_of,
    make,
    new_name,
    write,
)
from support.quiet import QUIET
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S, eventually


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two nodes whose namespace may adopt what begins with `old-`."""
    folder = tmp_path_factory.mktemp("flattening")
    settings = f"adoptableTopics={ADOPTABLE}"
    with topic_cluster(kafka, f"{folder.name}.", folder, settings) as running:
        yield running


@pytest.fixture
def flat(kafka: EmbeddedKafka) -> str:
    """An empty Kafka topic."""
    name = f"{new_name()}-flat"
    make(kafka.bootstrap_servers, name, 1)
    return name


async def test_a_copy_that_is_killed_and_run_again_has_each_message_once_and_in_order(
    cluster: TopicCluster, client: Client, kafka: EmbeddedKafka, flat: str
) -> None:
    old = new_name()
    make(kafka.bootstrap_servers, old, 1)
    sent = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    words = ["topics", "flatten", topic, "--into", flat]
    copying = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.cli", *words, "--follow"),
        *("--url", cluster.nodes[0].url),
    )
    try:
        await eventually(lambda: _has_some(cluster.kafka, flat), WAIT_S)
        await cluster.prepare(topic, 2)
        await _send(client, topic, sent, 2)
    finally:
        copying.kill()
        await copying.wait()
    await cluster.split_any(topic)
    await cluster.merge_last(topic)
    await _send(client, topic, sent, 2)

    (done,) = await ran(cluster.nodes[1].url, words)

    assert done.exit_code == 0, done
    found = await asyncio.to_thread(_read, cluster.kafka, flat)
    assert found == sent
    (again,) = await ran(cluster.nodes[1].url, words)
    assert again.output == f"0 messages copied to Kafka topic {flat}\n"


async def test_a_group_begins_in_the_copy_with_all_that_its_subscription_has_yet_to_read(
    cluster: TopicCluster, client: Client, flat: str
) -> None:
    topic = f"public/default/{flat}"
    await cluster.create(topic, 2)
    sent = Sent()
    for name in ("all-read", "half-read"):
        await (await client.subscribe(topic, name)).close()
    await _send(client, topic, sent, 2)
    unread = {key: list(values) for key, values in sent.items()}
    async with (
        await client.subscribe(topic, "all-read") as all_read,
        await client.subscribe(topic, "half-read") as half_read,
    ):
        for _ in range(2 * len(KEYS)):
            await all_read.receive(WAIT_S)
        all_read.acknowledge_all()
        for _ in range(len(KEYS)):
            message = await half_read.receive(WAIT_S)
            unread[message.key].remove(message.value)
        half_read.acknowledge_all()
    words = ["topics", "flatten", topic, "--into", flat, "--groups", "all-read,half-read,nobody"]

    (done,) = await ran(cluster.nodes[0].url, words)

    assert done.exit_code == 0, done
    assert "subscription nobody has no position" in done.output
    assert await asyncio.to_thread(_left, cluster.kafka, "all-read", flat) == {}
    with group_of(cluster.kafka, "half-read", flat) as consumer:
        came = await asyncio.to_thread(given, consumer, sum(map(len, unread.values())))
        consumer.commit(asynchronous=False)
    values = {message.value() for message in came.values()}
    assert {value for each in unread.values() for value in each} <= values
    (moved,) = await ran(cluster.nodes[0].url, words)
    assert "group half-read goes on where it is" in moved.output


async def test_a_copy_is_refused_where_it_would_mix_with_other_messages(
    cluster: TopicCluster, flat: str
) -> None:
    topic = f"public/default/{flat}"
    await cluster.create(topic)
    segments = (await cluster.call("GET", f"{topic}/stats"))["segments"]
    (own,) = (each["kafkaTopic"] for each in segments.values())
    await asyncio.to_thread(write, cluster.kafka, flat, 1)
    words = ["topics", "flatten", topic, "--into"]

    into_itself, foreign, missing = await ran(
        cluster.nodes[0].url, [*words, own], [*words, flat], [*words, "no-such-topic"]
    )

    assert "is a part of topic://" in into_itself.errors
    assert "no copies of this topic: name an empty one" in foreign.errors
    assert "make it first" in missing.errors
    assert {each.exit_code for each in (into_itself, foreign, missing)} == {1}


async def test_a_copy_goes_on_though_kafka_has_forgotten_how_far_it_went(
    cluster: TopicCluster, client: Client, flat: str
) -> None:
    topic, sent = f"public/default/{flat}", Sent()
    await cluster.create(topic, 2)
    words = ["topics", "flatten", topic, "--into", flat]
    given_up = Producer(
        {**QUIET, "bootstrap.servers": cluster.kafka, "transactional.id": "one that ended early"}
    )
    given_up.init_transactions(WAIT_S)
    given_up.begin_transaction()
    given_up.produce(flat, b"never committed", KEYS[0])
    assert given_up.flush(WAIT_S) == 0
    given_up.abort_transaction(WAIT_S)
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    for _ in range(2):
        await _send(client, topic, sent, 1)
        (done,) = await ran(cluster.nodes[0].url, words)
        assert done.exit_code == 0, done
        assert await asyncio.to_thread(_read, cluster.kafka, flat) == sent
        known = admin.list_consumer_groups().result(WAIT_S).valid or ()
        for group in [each.group_id for each in known if each.group_id.startswith("flatten-")]:
            admin.delete_consumer_groups([group])[group].result(WAIT_S)
    await cluster.call("DELETE", f"{topic}/subscriptions/flatten-{flat}")
    (bare,) = await ran(cluster.nodes[0].url, words)
    assert "messages may be gone" in bare.errors


async def test_a_copy_is_refused_if_keys_would_find_other_partitions_than_before(
    cluster: TopicCluster, client: Client, flat: str
) -> None:
    topic, sent = f"public/default/{flat}", Sent()
    await cluster.create(topic)
    await _send(client, topic, sent, 1)
    words = ["topics", "flatten", topic, "--into", flat]
    done, other = await ran(cluster.nodes[0].url, words, [*words, "--partitioner", "crc32"])
    assert done.exit_code == 0, done
    assert "keys would lose their order" in other.errors
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    admin.create_partitions([NewPartitions(flat, PARTITIONS + 1)])[flat].result(WAIT_S)
    (more,) = await ran(cluster.nodes[0].url, words)
    assert "keys would lose their order" in more.errors


async def test_a_group_goes_back_with_its_subscription_and_a_small_topic_takes_small_messages(
    cluster: TopicCluster, client: Client, kafka: EmbeddedKafka
) -> None:
    flat, sent = f"{new_name()}-flat", Sent()
    make(kafka.bootstrap_servers, flat, 1, max_message_bytes="20000", retention_ms="-1")
    topic = f"public/default/{flat}"
    await cluster.create(topic)
    async with await client.subscribe(topic, flat) as consumer:
        await _send(client, topic, sent, 2)
        for _ in range(2 * len(KEYS)):
            await consumer.receive(WAIT_S)
        consumer.acknowledge_all()
    words = ["topics", "flatten", topic, "--into", flat, "--groups", flat]
    (done,) = await ran(cluster.nodes[0].url, words)
    assert (done.exit_code, done.errors) == (0, ""), done
    assert await asyncio.to_thread(_left, cluster.kafka, flat, flat) == {}
    seek = f"{topic}/subscriptions/{flat}/seek"
    await cluster.call("POST", seek, params={"position": "earliest"})
    (done,) = await ran(cluster.nodes[0].url, words)
    assert done.exit_code == 0, done
    assert await asyncio.to_thread(_left, cluster.kafka, flat, flat) == sent


async def _send(client: Client, topic: str, sent: Sent, rounds: int) -> None:
    """Numbered messages of each key, which are added to those sent."""
    async with await client.create_producer(topic) as producer:
        for number in range(rounds):
            for key in KEYS:
                value = b"sdk-%d-%d" % (number, len(sent.get(key, ())))
                sent.setdefault(key, []).append(value)
                await producer.send(value, key)


async def _has_some(kafka: str, topic: str) -> bool:
    return bool(await asyncio.to_thread(_read, kafka, topic))


def _read(kafka: str, topic: str) -> Sent:
    """Committed messages by key; fails if one is not where Java's producer would put it."""
    found: Sent = defaultdict(list)
    for message in _messages(kafka, "nobody", topic, committed=False):
        key = message.key() or b""
        assert message.partition() == partition_of(Partitioner.MURMUR2, key, PARTITIONS)
        found[key].append(message.value() or b"")
    return dict(found)


def _left(kafka: str, group: str, topic: str) -> Sent:
    """What a group has yet to read."""
    found: Sent = defaultdict(list)
    for message in _messages(kafka, group, topic, committed=True):
        found[message.key() or b""].append(message.value() or b"")
    return dict(found)


def _messages(kafka: str, group: str, topic: str, *, committed: bool) -> Iterator[Any]:
    consumer = Consumer({**QUIET, "bootstrap.servers": kafka, "group.id": group})
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    if committed:
        places = consumer.committed(places, timeout=WAIT_S)
        assert all(each.offset >= 0 for each in places)
    consumer.assign(places)
    ends = {each.partition: log_end(consumer, each) for each in places}
    try:
        while any(each.offset < ends[each.partition] for each in _reached(consumer, places)):
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None
                yield message
    finally:
        consumer.close()


def _reached(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """Where it goes on, a partition that it has not read from included."""
    at = {each.partition: each.offset for each in consumer.position(places) if each.offset >= 0}
    return [
        TopicPartition(each.topic, each.partition, at.get(each.partition, each.offset))
        for each in places
    ]
