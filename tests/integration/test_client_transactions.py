"""Transactions of plain Kafka producers in segments: their ends have offsets, but no messages."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from anabranch.broker.errors import ConflictError
from anabranch.broker.topics.subscriptions.open_transactions import KafkaTransactions
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.client import CheckpointConsumer, Client, QueueConsumer
from anabranch.client._consumer.stream import OrderedConsumer
from support.commands import run_here
from support.hand_made_batches import append, transactional_batch
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


_LIVES_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
_HANGING = 4_711_000  # producers' ids that Kafka has given to nobody


@pytest.fixture
def unverified(connection: KafkaConnection) -> Iterator[None]:
    """Kafka stores what belongs to no transaction that its coordinator knows, as before 3.6."""
    admin = connection.admin()
    (number,) = admin.list_topics(timeout=WAIT_S).brokers

    def verify(value: str, how: AlterConfigOpType) -> None:
        name = "transaction.partition.verification.enable"
        entry = ConfigEntry(name, value, incremental_operation=how)
        of = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
        admin.incremental_alter_configs([of])[of].result(WAIT_S)

    verify("false", AlterConfigOpType.SET)
    yield
    verify("", AlterConfigOpType.DELETE)


def hang(servers: str, topic: str, bucket: int, producer_id: int, ago_ms: int = 0) -> None:
    """Begins a transaction that no coordinator knows, and so nobody will end."""
    host, _, port = servers.rpartition(":")
    batch = transactional_batch(producer_id, round(time.time() * 1000) - ago_ms)

    def stored() -> bool:
        return append((host, int(port)), topic, bucket, batch, f"{topic}.hangs") == 0

    deadline = time.monotonic() + WAIT_S  # a broker may not have read that it is not to look
    while not stored():
        assert time.monotonic() < deadline


@pytest.mark.usefixtures("unverified")
async def test_open_transactions_in_a_sealed_segment_are_named_and_ended_by_command(
    cluster: TopicCluster,
    client: Client,
    topic: str,
    connection: KafkaConnection,
    tmp_path: Path,
) -> None:
    (segment,) = (await client.watch(topic)).layout.active
    consumer = await client.subscribe(topic, "billing")
    producer = await client.create_producer(topic)
    writer = await asyncio.to_thread(begun, cluster.kafka, segment.kafka_topic, 0)
    await asyncio.to_thread(
        hang, cluster.kafka, segment.kafka_topic, 1, _HANGING, _LIVES_MS + 60_000
    )
    await cluster.split_any(topic)
    await producer.send(b"of a child", "key")

    async def command(*words: str) -> str:
        done = await asyncio.to_thread(run_here, *words, "--url", cluster.nodes[0].url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def held() -> list[Any]:
        stats = json.loads(await command("topics", "stats", topic, "--json"))
        assert stats["openTransactionsUnknown"] == ""
        found: list[Any] = stats["segments"]["0"]["openTransactions"]
        return found

    known, hanging = await held()
    assert (known["bucket"], known["transactionalId"]) == (0, f"{segment.kafka_topic}.(0,)")
    assert (known["state"], known["startOffset"], known["timeoutMs"]) == ("Ongoing", 0, 60_000)
    assert (hanging["bucket"], hanging["producerId"]) == (1, _HANGING)
    assert (hanging["transactionalId"], hanging["state"], hanging["unknown"]) == ("", "", "")
    config = tmp_path / "node.toml"
    config.write_text(
        f'topicPrefix = "{cluster.prefix}"\nreplicationFactor = 1\nminInsyncReplicas = 1\n'
    )
    seen = ("doctor", "--config", str(config), "--bootstrap-servers", cluster.kafka, "--json")
    examined = await asyncio.to_thread(run_here, *seen)
    finding = {each["check"]: each for each in json.loads(examined.stdout)}["transactions"]
    for who in (known["transactionalId"], f"producer {_HANGING}"):
        assert who in await command("topics", "stats", topic)
        assert (finding["ok"], who in finding["found"]) == (False, True)
    abort = ("segments", "abort-transaction", topic, "0", "--yes")
    await command(*abort, "--producer", str(known["producerId"]))
    with pytest.raises(KafkaException, match="fenced"):
        await asyncio.to_thread(end, writer, commits=True)
    assert [each["producerId"] for each in await held()] == [_HANGING]
    refused = await asyncio.to_thread(run_here, *abort, "--url", cluster.nodes[0].url)
    assert "may let one live for 900 s" in refused.stderr, "it was sealed a moment ago"
    later_ms = round(time.time() * 1000) + _LIVES_MS
    with closing(KafkaTransactions(connection, connection.admin())) as transactions:
        found = transactions.find({(segment.kafka_topic, 1): 1}, WAIT_S)
        transactions.abort(found, 0, later_ms, WAIT_S)
    assert await held() == []
    assert await take(consumer, 1) == [b"of a child"]


@pytest.mark.usefixtures("unverified")
def test_what_no_coordinator_shows_is_called_hanging_only_when_kafka_lets_none_live_so_long(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topic, admin = f"{topic_prefix}hanging", connection.admin()
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT_S)
    hang(connection.bootstrap_servers, topic, 0, _HANGING + 1)
    now_ms = round(time.time() * 1000)
    with closing(KafkaTransactions(connection, admin)) as transactions:
        assert transactions.find({(topic, 0): 0, (f"{topic}.gone", 0): 9}, WAIT_S) == []
        (found,) = transactions.find({(topic, 0): 1}, WAIT_S)
        unasked = KafkaConnection(connection.bootstrap_servers, {"ssl.ca.location": "probe"})
        with closing(KafkaTransactions(unasked, admin)) as others:
            (untold,) = others.find({(topic, 0): 1}, WAIT_S)
        assert (untold.start, untold.producer) == (found.start, None)
        assert "kafka-transactions.sh" in untold.unknown
        half_ms, full_ms = now_ms + _LIVES_MS // 2, now_ms + _LIVES_MS
        for sealed_ms, at_ms in ((0, half_ms), (half_ms, full_ms)):  # or its messages are of old
            with pytest.raises(ConflictError, match="may let one live for 900 s"):
                transactions.abort([found], sealed_ms, at_ms, WAIT_S)
        assert transactions.find({(topic, 0): 1}, WAIT_S) == [found]
        transactions.abort([found], now_ms, full_ms, WAIT_S)
        assert transactions.find({(topic, 0): 1}, WAIT_S) == []
