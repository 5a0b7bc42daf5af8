"""A Kafka topic that was adopted and cut over is given back to its own writers, under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.client import Client, StreamConsumer
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.commands import ran
from support.giving_back import SOON, give_back, given_back_under_load
from support.kafka_tools import group_tool
from support.old_topics import (
    ADOPTABLE,
    KEYS,
    PARTITIONS,
    adopted,
    given,
    group_of,
    make,
    new_name,
    settings_of,
    write,
)
from support.several_brokers import Reading
from support.topic_cluster import TopicCluster, topic_cluster
from support.traffic import wrong
from support.waiting import WAIT_S, eventually


@pytest.fixture(scope="module")
def cluster(
    kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    """Two nodes whose namespace may adopt what begins with `old-`."""
    folder = tmp_path_factory.mktemp("giving_back")
    settings = (f"{name}={value}" for name, value in {"adoptableTopics": ADOPTABLE, **SOON}.items())
    with topic_cluster(kafka, f"{folder.name}.", folder, *settings) as running:
        yield running


@pytest.fixture
def old(kafka: EmbeddedKafka) -> str:
    """A Kafka topic that others have made, with a setting of their own that a seal replaces."""
    name = new_name()
    make(kafka.bootstrap_servers, name, 1, max_message_bytes="2000000", retention_ms="86400000")
    return name


async def test_keys_keep_their_order_when_the_kafka_topic_is_given_back_and_cut_over_again(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    await given_back_under_load(cluster, client, old, (4, 2))


async def test_the_kafka_topic_has_its_own_settings_again_and_its_consumers_go_on(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    before = await asyncio.to_thread(settings_of, cluster.kafka, old)
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    await cluster.prepare(topic, 2)
    own = (await cluster.call("GET", f"{topic}/stats"))["ownSettings"]
    assert own["max.message.bytes"] == "2000000"
    async with await client.create_producer(topic) as producer:
        for key in KEYS:
            await producer.send(b"between", key)
    with group_of(cluster.kafka, f"{old}-group", old) as consumer:
        assert len(await asyncio.to_thread(given, consumer, 960)) == 960
        await give_back(cluster, topic)
        assert await asyncio.to_thread(settings_of, cluster.kafka, old) == before
        await asyncio.to_thread(write, cluster.kafka, old, len(KEYS))
        after = await asyncio.to_thread(given, consumer, len(KEYS))
    assert {message.value() for message in after.values()} == {b"%d" % n for n in range(len(KEYS))}
    assert await asyncio.to_thread(settings_of, cluster.kafka, old) == before


async def test_a_subscription_that_begins_later_reads_on_from_where_the_kafka_topic_went_on(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    await cluster.prepare(topic, 2)
    sent = {key: [b"between", b"after"] for key in KEYS}
    async with await client.create_producer(topic) as producer:
        for value in (b"between", b"after"):
            for key in KEYS:
                await producer.send(value, key)
            if value == b"between":
                await give_back(cluster, topic)
    late = await client.subscribe(topic, "late")
    assert wrong(await Reading(late, repeats=False).all_of(sent), sent) == []
    queue = await client.subscribe_queue(topic, "jobs")
    found: set[tuple[bytes | None, bytes]] = set()
    while len(found) < 2 * len(KEYS):
        for message in await queue.receive_many(timeout_s=WAIT_S):
            queue.acknowledge(message)
            found.add((message.key, bytes(message.value)))
    assert {value for _, value in found} == {b"between", b"after"}
    await queue.close()


async def test_what_somebody_has_yet_to_read_is_not_given_back(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    with pytest.raises(AssertionError, match="was not cut over"):
        await cluster.call("POST", f"{topic}/give-back")
    await cluster.prepare(topic, 2)
    with pytest.raises(AssertionError, match="Give the Kafka topic back first"):
        await cluster.call("POST", f"{topic}/release")
    await cluster.call("PUT", f"{topic}/subscriptions/billing")
    with pytest.raises(AssertionError, match="is still to be read by subscription billing"):
        await cluster.call("POST", f"{topic}/give-back")
    await cluster.call("DELETE", f"{topic}/subscriptions/billing")
    queue = await client.subscribe_queue(topic, "jobs")
    await queue.close()
    with pytest.raises(AssertionError, match="is a queue"):
        await cluster.call("POST", f"{topic}/give-back")
    await cluster.call("DELETE", f"{topic}/subscriptions/jobs")
    async with await client.create_producer(topic) as producer:
        await producer.send(b"between", KEYS[0])
    with pytest.raises(AssertionError, match=r"1 messages of .* lie in segments"):
        await cluster.call("POST", f"{topic}/give-back")
    await cluster.create("public/default/ours")
    with pytest.raises(AssertionError, match="was not adopted: there is nothing to give back"):
        await cluster.call("POST", "public/default/ours/give-back")


async def test_the_command_gives_back_and_forgets_a_topic_with_nothing_between(
    cluster: TopicCluster, old: str
) -> None:
    await asyncio.to_thread(write, cluster.kafka, old)
    topic, url = await adopted(cluster, old), cluster.nodes[0].url
    await cluster.prepare(topic, 2)
    command = f"topics release {topic} --give-back"
    wrongly, early = await ran(url, f"topics release {topic} --leave-middle", command)
    assert "--leave-middle goes with --give-back" in wrongly.errors
    assert "was sealed just now" in early.errors
    found: list[str] = []

    async def is_given_back() -> bool:
        found[:] = [each.output for each in await ran(url, command, command)]
        return all(found)

    await eventually(is_given_back)
    assert found[0] == found[1]
    assert f"is Kafka topic {old} again, from its old ends on" in found[0]
    await asyncio.to_thread(write, cluster.kafka, old, 10)
    early, *_ = await ran(url, f"topics release {topic}")
    assert "release it once these are pruned" in early.errors


async def test_kafkas_own_tool_lets_a_group_go_on_where_a_subscription_has_come_to(
    cluster: TopicCluster, client: Client, old: str, tmp_path: Path
) -> None:
    """The group of the subscription has its offsets in the Kafka topic that was given back."""
    await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    async with await client.subscribe(topic, "billing") as consumer:
        await _take(consumer, 4 * len(KEYS))
        await cluster.prepare(topic, 2)
        await give_back(cluster, topic)
        async with await client.create_producer(topic) as producer:
            for key in KEYS:
                await producer.send(b"after", key)
        await _take(consumer, len(KEYS) // 2)
    ours = (await cluster.call("GET", f"{topic}/stats"))["subscriptions"]["billing"]["groupId"]
    offsets = tmp_path / "offsets.csv"
    reset = ["--topic", old, "--reset-offsets"]
    told = await group_tool(
        cluster.kafka, "--group", ours, *reset, "--to-current", "--dry-run", "--export"
    )
    offsets.write_text("".join(f"{line}\n" for line in told.splitlines() if f"{old}" in line))
    given_on = ("--group", f"{old}-group", "--from-file", str(offsets), "--execute")
    await group_tool(cluster.kafka, *reset, *given_on)
    with group_of(cluster.kafka, f"{old}-group", old) as plain:
        left = await asyncio.to_thread(given, plain, len(KEYS) - len(KEYS) // 2)
    assert {message.value() for message in left.values()} == {b"after"}


async def _take(consumer: StreamConsumer, count: int) -> None:
    for _ in range(count):
        consumer.acknowledge(await consumer.receive(timeout_s=WAIT_S))
    await consumer.flush()


def test_a_kafka_topic_may_be_opened_twice_and_after_it_is_gone(
    kafka: EmbeddedKafka, old: str
) -> None:
    before = settings_of(kafka.bootstrap_servers, old)
    with closing(SegmentAdmin(KafkaConnection(kafka.bootstrap_servers), SegmentSettings())) as to:
        own = to.own_settings(old, WAIT_S)
        assert own == {"max.message.bytes": "2000000"}
        to.seal([SegmentTopic(old, PARTITIONS, is_legacy=True)], WAIT_S)
        sealed = settings_of(kafka.bootstrap_servers, old)
        to.must_open(old, own, WAIT_S)
        with pytest.raises(KafkaRefusedError, match="to open topic"):
            to.must_open(old, {"max.message.bytes": "-1"}, WAIT_S)
        assert settings_of(kafka.bootstrap_servers, old) == sealed
        for _ in range(2):
            to.open_again(old, own, WAIT_S)
            assert settings_of(kafka.bootstrap_servers, old) == before
        write(kafka.bootstrap_servers, old, 10)
        to.delete([old], WAIT_S)
        to.open_again(old, own, WAIT_S)
        assert to.own_settings(old, WAIT_S) == {}
