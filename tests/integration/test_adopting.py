"""A Kafka topic with writers and readers becomes a scalable topic, and is cut over under load."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from confluent_kafka.serialization import SerializationContext

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client import Client
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.commands import ran
from support.old_topics import (
    ADOPTABLE,
    KEYS,
    PARTITIONS,
    adopted,
    given,
    group_of,
    make,
    new_name,
    read_some,
    settings_of,
    write,
)
from support.plain_writers import LibrdkafkaWriter
from support.quiet import QUIET
from support.several_brokers import Reading
from support.topic_cluster import TopicCluster, topic_cluster
from support.traffic import Traffic, stored, wrong
from support.waiting import WAIT_S, eventually, until


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two nodes whose namespace may adopt what begins with `old-`."""
    folder = tmp_path_factory.mktemp("adopting")
    with topic_cluster(kafka, f"{folder.name}.", folder, f"adoptableTopics={ADOPTABLE}") as running:
        yield running


@pytest.fixture
def old(kafka: EmbeddedKafka) -> str:
    """A Kafka topic that others have made."""
    name = new_name()
    make(kafka.bootstrap_servers, name, 1, retention_ms="86400000")
    return name


async def test_an_adopted_topic_is_cut_over_under_load_and_no_key_loses_its_order(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    """Plain writers do not stop, and are refused; what they were told is stored is delivered."""
    before = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    reading = Reading(await client.subscribe(topic, "billing"), repeats=False)
    plain = LibrdkafkaWriter(cluster.kafka, old, [b"plain-%d" % number for number in range(40)])
    keys = [b"sdk-%d" % number for number in range(40)]
    producers = [await client.create_producer(topic, linger_ms=linger) for linger in (0, 5)]
    traffic = [Traffic(each, keys[place::2], 0.004) for place, each in enumerate(producers)]
    await until(lambda: sum(map(len, plain.acked.values())) > 500, WAIT_S)
    await cluster.prepare(topic, 8)
    late = await client.create_producer(topic)
    traffic.append(Traffic(late, [b"late-%d" % number for number in range(20)], 0.004))
    await cluster.split_any(topic, 1)
    await cluster.split_any(topic, 4)
    await until(lambda: bool(plain.refused), WAIT_S)
    sent = {key: [*values] for key, values in before.items()} | await plain.stop()
    for each in traffic:
        sent |= await each.stop()
    assert {error.code() for error in plain.refused} == {KafkaError.MSG_SIZE_TOO_LARGE}
    layout = max((each.layout for each in producers), key=lambda each: each.age)
    assert wrong(await asyncio.to_thread(stored, cluster.kafka, layout), sent) == []
    assert wrong(await reading.all_of(sent), sent) == []
    with group_of(cluster.kafka, f"{old}-after", old) as consumer:
        assert consumer.list_topics(old, timeout=WAIT_S).topics[old].error is None


async def test_the_sdk_writes_a_key_where_plain_writers_of_the_topic_do(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    async with await client.create_producer(topic) as producer:
        for key in KEYS:
            await producer.send(b"again", key)
    where: dict[bytes, set[int]] = defaultdict(set)
    with group_of(cluster.kafka, f"{old}-looks", old) as consumer:
        messages = await asyncio.to_thread(given, consumer, 960 + len(KEYS))
    for (partition, _), message in messages.items():
        where[message.key() or b""].add(partition)
    assert {len(partitions) for partitions in where.values()} == {1}


async def test_serializers_see_the_kafka_topics_name_before_and_after_its_cut_over(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    """A schema registry has the schemas of its writers by that name."""
    await asyncio.to_thread(write, cluster.kafka, old)
    topic, seen = await adopted(cluster, old), []

    def serializer(value: bytes, context: SerializationContext) -> bytes:
        seen.append(context.topic)
        return value

    async with await client.create_producer(topic, value_serializer=serializer) as producer:
        await producer.send(b"before", KEYS[0])
        await cluster.prepare(topic, 2)
        await producer.send(b"after", KEYS[0])
    await cluster.rest("DELETE", f"/admin/v2/segments/{topic}/0000-ffff-0")  # let go
    async with await client.create_producer(topic, value_serializer=serializer) as producer:
        await producer.send(b"late", KEYS[0])
    assert seen == [old] * 3


async def test_a_topic_that_no_entry_names_is_neither_surveyed_nor_adopted(
    cluster: TopicCluster, kafka: EmbeddedKafka
) -> None:
    with pytest.raises(AssertionError, match="adoptableTopics"):
        await cluster.call("POST", "public/default/x/adopt", params={"kafkaTopic": "other"})
    with pytest.raises(AssertionError, match="adoptableTopics"):
        await cluster.call("GET", "public/default/x/adopt", params={"kafkaTopic": "other"})


async def test_what_was_released_before_its_cut_over_is_in_kafka_as_it_was(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    before = await asyncio.to_thread(settings_of, cluster.kafka, old)
    topic = await adopted(cluster, old)
    consumer = await client.subscribe(topic, "billing")
    await consumer.receive_many(timeout_s=WAIT_S)
    await consumer.close()
    await cluster.call("POST", f"{topic}/release")
    assert await asyncio.to_thread(settings_of, cluster.kafka, old) == before
    await asyncio.to_thread(write, cluster.kafka, old, 10)  # it was not sealed
    await adopted(cluster, old)  # it may be adopted anew


async def test_an_adopted_topic_changes_by_its_cut_over_only_and_is_not_released_after_it(
    cluster: TopicCluster, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    for path in ("split/0", "rebucket/0?bucketCount=4"):
        with pytest.raises(AssertionError, match="cut it over first"):
            await cluster.call("POST", f"{topic}/{path}")
    with pytest.raises(AssertionError, match="has Kafka topic"):
        await cluster.call("POST", "public/default/second/adopt", params={"kafkaTopic": old})
    await cluster.prepare(topic, 2)
    with pytest.raises(AssertionError, match="was cut over"):
        await cluster.call("POST", f"{topic}/release")
    await cluster.call("DELETE", topic)
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    there = await asyncio.to_thread(admin.list_topics, old, timeout=WAIT_S)
    assert len(there.topics[old].partitions) == PARTITIONS


async def test_a_subscription_begins_exactly_where_an_empty_group_has_come_to(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    sent = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    params = {"fromGroup": f"{old}-group"}
    create = partial(cluster.call, "PUT", f"{topic}/subscriptions/billing", params=params)
    with pytest.raises(AssertionError, match="no position in 12 of 12"):
        await create()
    with group_of(cluster.kafka, f"{old}-group", old) as consumer:
        read = await asyncio.to_thread(read_some, consumer, 400)
        with pytest.raises(AssertionError, match="has members"):
            await create()
    await cluster.call(
        "PUT", f"{topic}/subscriptions/billing", params={**params, "missing": "earliest"}
    )
    reading = Reading(await client.subscribe(topic, "billing"), repeats=False)
    rest = {key: values[len(read.get(key, [])) :] for key, values in sent.items()}
    rest = {key: values for key, values in rest.items() if values}
    assert wrong(await reading.all_of(rest), rest) == []


async def test_commands_look_take_a_group_over_and_change_nothing_at_a_wrong_word(
    cluster: TopicCluster, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    url, topic, group = cluster.nodes[0].url, f"public/default/{old}", f"{old}-group"
    with group_of(cluster.kafka, group, old) as consumer:
        await asyncio.to_thread(read_some, consumer, 960)
    adopt = f"topics adopt {old} --as {topic}"

    async def is_empty() -> bool:
        (looked,) = await ran(url, f"{adopt} --dry-run")
        assert "murmur2 explains all of 240 keys" in looked.output
        return f"group {group}: EMPTY" in looked.output

    await eventually(is_empty)
    missing, done, cut, released, again = await ran(
        url,
        f"{adopt} --groups none-such",
        f"{adopt} --groups {group}",
        f"topics prepare {topic} --segments 2",
        f"topics release {topic}",
        f"topics show {topic}",
    )
    assert (missing.exit_code, "group none-such has no offsets" in missing.errors) == (2, True)
    assert "has Kafka topic" not in done.errors  # the wrong word before it has adopted nothing
    assert f"subscription {group} begins where group {group} has come to" in done.output
    assert "say --yes" in cut.errors
    assert "its Kafka topic stays as it is" in released.output
    assert "not found" in again.errors


def test_the_seal_of_an_adopted_topic_may_be_done_twice_and_after_it_is_gone(
    kafka: EmbeddedKafka, old: str
) -> None:
    write(kafka.bootstrap_servers, old)
    with closing(SegmentAdmin(KafkaConnection(kafka.bootstrap_servers), SegmentSettings())) as to:
        part = SegmentTopic(old, PARTITIONS, is_legacy=True)
        ends = to.seal([part], WAIT_S)
        assert sum(ends[old]) == 960
        assert to.seal([part], WAIT_S) == ends
        to.delete([old], WAIT_S)
        assert to.seal([part], WAIT_S) == {old: (0,) * PARTITIONS}


async def test_an_adopted_topic_that_was_made_a_compacted_one_is_not_cut_over(
    cluster: TopicCluster, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    await asyncio.to_thread(_compact, cluster.kafka, old)
    with pytest.raises(AssertionError, match="it is compacted"):
        await cluster.prepare(topic, 2)
    await asyncio.to_thread(write, cluster.kafka, old, 10)


def _compact(kafka: str, topic: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([asked])[asked].result(WAIT_S)


async def test_partitions_added_since_its_adoption_undo_the_cut_over(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    admin = AdminClient({**QUIET, "bootstrap.servers": cluster.kafka})
    await asyncio.to_thread(_grow, admin, old)
    with pytest.raises(AssertionError, match="had 12 partitions at its adoption and has 13"):
        await cluster.prepare(topic, 2)
    await asyncio.to_thread(write, cluster.kafka, old, 10)  # it was not sealed


def _grow(admin: AdminClient, topic: str) -> None:
    admin.create_partitions([NewPartitions(topic, 13)])[topic].result(WAIT_S)
