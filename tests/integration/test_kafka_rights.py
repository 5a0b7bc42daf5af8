"""Kafka refuses a node, or a client, a right: the error names it; once it is given, all goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from anabranch.client import Client, DeliveryError, Producer
from support.secured_kafka import LIMITED, SecuredKafka, rights_of_a_node
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S, eventually


@pytest.fixture(scope="module")
def prefix(secured_kafka: SecuredKafka) -> str:
    name = "limited."
    secured_kafka.allow(*rights_of_a_node(name))
    return name


@pytest.fixture(scope="module")
def nodes(
    secured_kafka: SecuredKafka, prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    file = secured_kafka.properties_file(secured_kafka.security(LIMITED))
    with topic_cluster(secured_kafka, prefix, folder, f"kafkaPropertiesFile={file}") as running:
        yield running


async def test_without_the_right_to_create_a_split_is_given_up_and_with_it_done(
    secured_kafka: SecuredKafka, prefix: str, nodes: TopicCluster
) -> None:
    topic, other = "public/default/kept", "public/default/other"
    create = ("topics", prefix, "CREATE")
    await nodes.create(topic)
    secured_kafka.forbid(create)
    for refused in (nodes.split(topic, 0), nodes.create(other)):
        with pytest.raises(AssertionError, match=r"undone.*Authorization failed.*Create"):
            await refused
    assert await nodes.active(topic) == [0]
    secured_kafka.allow(create)
    await nodes.split_any(topic)

    async def is_split() -> bool:  # the node that is asked may be behind
        return len(await nodes.active(topic)) == 2

    await eventually(is_split, WAIT_S)
    await nodes.create(other)


async def _sent_at_last(producer: Producer, value: bytes) -> None:
    """Sends it until it is taken: the client of Kafka remembers a refusal for a while."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            await producer.send(value, "key")
        except DeliveryError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_client_without_a_right_is_told_which_topic_and_goes_on_with_it(
    secured_kafka: SecuredKafka, prefix: str, nodes: TopicCluster
) -> None:
    topic = "public/default/read-only"
    write = ("topics", prefix, "WRITE")
    await nodes.create(topic)
    async with Client(nodes.url, kafka=secured_kafka.security(LIMITED)) as client:
        producer = await client.create_producer(topic)
        secured_kafka.forbid(write)
        try:
            with pytest.raises(DeliveryError, match=r"[Aa]uthorization failed"):
                await producer.send(b"0", "key")
        finally:
            secured_kafka.allow(write)
        await _sent_at_last(producer, b"1")
        shown = await client.peek(topic, timeout_s=WAIT_S)  # it has no right on any group
        assert [message.value for message in shown] == [b"1"]
        async with await client.subscribe_queue(topic, "queue") as queue:
            assert (await queue.receive(WAIT_S)).value == b"1"
