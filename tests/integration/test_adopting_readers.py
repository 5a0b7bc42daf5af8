"""Transactions and groups of others in a Kafka topic of three brokers that is adopted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from anabranch.client import Client
from support.kafka_brokers import KafkaBrokers
from support.old_topics import (
    KEYS,
    SETTINGS,
    Sent,
    adopted,
    group_of,
    make,
    new_name,
    read_some,
    write,
)
from support.quiet import QUIET
from support.several_brokers import Reading
from support.topic_cluster import TopicCluster, topic_cluster
from support.traffic import Traffic, wrong
from support.transactions import COUNT, begun, end
from support.waiting import WAIT_S, eventually, until

pytestmark = pytest.mark.long

_TIMEOUT_MS = 12_000  # longer than a cut-over takes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCluster]:
    """Two nodes whose namespace may adopt what begins with `old-`."""
    folder = tmp_path_factory.mktemp("readers")
    settings = (f"{name}={value}" for name, value in SETTINGS.items())
    brokers = KafkaBrokers(
        folder / "kafka", 3, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    )
    with brokers, topic_cluster(brokers, f"{folder.name}.", folder, *settings) as running:
        yield running


@pytest.fixture
def old(cluster: TopicCluster) -> str:
    """A Kafka topic that others have made, with a copy on each broker."""
    name = new_name()
    make(cluster.kafka, name, 3)
    return name


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "timed out"])
async def test_a_transaction_that_is_open_at_the_cut_over_ends_and_holds_no_reader_for_good(
    cluster: TopicCluster, client: Client, old: str, commits: bool
) -> None:
    sent = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    consumer = await client.subscribe(topic, "billing")
    timeout = {"transaction.timeout.ms": _TIMEOUT_MS}
    writer = await asyncio.to_thread(partial(begun, cluster.kafka, old, 0, 1, **timeout))
    behind = await asyncio.to_thread(write, cluster.kafka, old)
    await cluster.prepare(topic, 4)
    stats = await cluster.call("GET", f"{topic}/stats")
    assert len(stats["segments"]["0"]["openTransactions"]) == 2
    async with await client.create_producer(topic) as producer:
        await producer.send(b"of a child", "key")
    if commits:
        await asyncio.to_thread(partial(end, writer, commits=True))
    count = sum(map(len, (*sent.values(), *behind.values()))) + 2 * COUNT * commits
    taken = []
    for _ in range(count + 1):
        message = await consumer.receive(WAIT_S)
        consumer.acknowledge(message)
        taken.append(message.value)
    assert taken[-1] == b"of a child"
    with group_of(cluster.kafka, f"{old}-plain", old) as plain:  # it reads what is committed
        read = await asyncio.to_thread(read_some, plain, count)
    assert len(read.pop(b"key", [])) == 2 * COUNT * commits
    assert read == {key: sent[key] + behind[key] for key in sent}


async def test_a_transaction_that_begins_after_the_cut_over_is_refused_and_holds_nobody(
    cluster: TopicCluster, client: Client, old: str
) -> None:
    sent = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    await cluster.prepare(topic, 2)
    other = f"{old}-other"
    await asyncio.to_thread(make, cluster.kafka, other, 3)
    writer = Producer(
        {**QUIET, "bootstrap.servers": cluster.kafka, "transactional.id": f"{old}-late"}
    )
    said: list[KafkaError | None] = []

    def told(error: KafkaError | None, _: Message) -> None:
        said.append(error)

    def transact() -> None:
        writer.init_transactions(WAIT_S)
        for name in (old, other):
            writer.begin_transaction()
            writer.produce(name, b"late", b"key", on_delivery=told)
            writer.flush(WAIT_S)
            if said[-1] is None:
                writer.commit_transaction(WAIT_S)
            else:
                writer.abort_transaction(WAIT_S)

    await asyncio.to_thread(transact)
    assert [each and each.code() for each in said] == [KafkaError.MSG_SIZE_TOO_LARGE, None]
    for name, count in ((old, sum(map(len, sent.values()))), (other, 1)):
        with group_of(cluster.kafka, f"{name}-plain", name) as plain:
            await asyncio.to_thread(read_some, plain, count)
    reading = Reading(await client.subscribe(topic, "billing"), repeats=False)
    assert wrong(await reading.all_of(sent), sent) == []


@pytest.mark.parametrize(
    ("protocol", "cut_first", "kind"),
    [
        ("classic", False, "STREAM"),
        ("consumer", True, "STREAM"),
        ("consumer", False, "QUEUE"),
        ("classic", True, "QUEUE"),
    ],
)
async def test_a_subscription_goes_on_exactly_where_a_group_has_left_while_writers_go_on(
    cluster: TopicCluster, client: Client, old: str, protocol: str, cut_first: bool, kind: str
) -> None:
    """The group leaves before the cut-over, or after it."""
    sent = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    producer = await client.create_producer(topic, linger_ms=5)
    traffic = Traffic(producer, [b"sdk-%d" % number for number in range(40)], 0.01)
    cut = partial(cluster.prepare, topic, 4)
    group = f"{old}-group"

    async def take_over() -> None:
        with group_of(cluster.kafka, group, old, protocol) as consumer:
            read.update(await asyncio.to_thread(read_some, consumer, len(KEYS)))
        params = {"fromGroup": group, "missing": "earliest", "type": kind}
        path = f"{topic}/subscriptions/billing"
        await eventually(partial(_is_taken, partial(cluster.call, "PUT", path, params=params)))

    read: Sent = {}
    for step in (cut, take_over) if cut_first else (take_over, cut):
        await step()
    late = await asyncio.to_thread(len, traffic.sent)
    await until(lambda: sum(map(len, traffic.sent.values())) > late)
    sent |= await traffic.stop()
    rest = {key: values[len(read.get(key, ())) :] for key, values in sent.items()}
    rest = {key: values for key, values in rest.items() if values}
    assert all(sent[key][: len(values)] == values for key, values in read.items())
    if kind == "STREAM":
        reading = Reading(await client.subscribe(topic, "billing"), repeats=False)
        assert wrong(await reading.all_of(rest), rest) == []
    else:
        found: Sent = defaultdict(list)
        queue = await client.subscribe_queue(topic, "billing")
        for _ in range(sum(map(len, rest.values()))):
            message = await queue.receive(WAIT_S)
            found[message.key or b""].append(bytes(message.value))
            queue.acknowledge(message)
        assert {key: sorted(each) for key, each in found.items()} == {
            key: sorted(each) for key, each in rest.items()
        }
        await queue.close()
    await producer.close()


async def _is_taken(ask: Callable[[], Awaitable[Any]]) -> bool:
    """Kafka may be told a little later that the group is empty."""
    try:
        await ask()
    except AssertionError as error:
        if "has members" not in str(error):
            raise
        return False
    return True
