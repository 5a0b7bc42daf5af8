"""Nodes, SDK and commands on a Kafka that asks for TLS and a password, and that refuses."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch.client import (
    Client,
    ClientError,
    KafkaReadError,
    Producer,
    QueueConsumer,
    StreamConsumer,
)
from support.hand_made_topic import HandMadeTopic
from support.processes import COMMAND, free_ports
from support.secured_kafka import PASSWORDS, SCRAM, SecuredKafka, make_certificates
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster
from support.traffic import Traffic, stored, wrong
from support.waiting import until

pytestmark = pytest.mark.integration

_KEYS = [b"key-%d" % number for number in range(40)]
_WAIT_S = 60.0
_WRONG = "wrong-word-73"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def nodes(
    secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    file = secured.properties_file(secured.security())
    with topic_cluster(
        secured, f"{folder.name}.", folder, f"kafkaPropertiesFile={file}"
    ) as running:
        yield running


def run_in(cluster: TopicCluster, body: Callable[[], Awaitable[None]]) -> None:
    """Runs it, and looks for passwords in what the nodes have logged."""
    asyncio.run(asyncio.wait_for(body(), TEST_S))
    for node in cluster.nodes:
        logged = node.log_file.read_text(errors="replace")
        assert not [word for word in (*PASSWORDS.values(), _WRONG) if word in logged]


def test_producers_and_consumers_of_each_kind_pass_splits_over_tls_with_a_password(
    secured: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/secured"

    async def body() -> None:
        await nodes.create(topic, 2)
        async with Client(nodes.url, kafka=secured.security()) as client:
            producer = await client.create_producer(topic)
            stream = await client.subscribe(topic, "stream")
            queue = await client.subscribe_queue(topic, "queue")
            traffic = Traffic(producer, _KEYS)
            await nodes.split(topic, 0)
            await nodes.merge(topic, 2, 3)
            sent = await traffic.stop()
            total = sum(map(len, sent.values()))
            found = await asyncio.to_thread(
                stored, secured.bootstrap_servers, producer.layout, secured.security()
            )
            assert wrong(found, sent) == []
            seen: set[tuple[bytes | None, bytes]] = set()
            while len(seen) < total:
                batch = await stream.receive_many(timeout_s=_WAIT_S)
                seen |= {(message.key, message.value) for message in batch}
                stream.acknowledge(batch)
            taken: set[tuple[bytes | None, bytes]] = set()
            while len(taken) < total:
                for message in await queue.receive_many(timeout_s=_WAIT_S):
                    taken.add((message.key, message.value))
                    queue.acknowledge(message)

    run_in(nodes, body)


def test_nodes_and_clients_log_in_by_scram(
    secured: SecuredKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic, sent = "public/default/scrammed", {b"%d" % number for number in range(20)}
    security = secured.security(mechanism=SCRAM)

    async def body() -> None:
        await running.create(topic)
        async with Client(running.url, kafka=security) as client:
            producer = await client.create_producer(topic)
            stream = await client.subscribe(topic, "stream")
            queue = await client.subscribe_queue(topic, "queue")
            await running.split(topic, 0)
            await producer.send_many((value, value) for value in sent)
            await producer.flush()
            read = [await stream.receive(_WAIT_S) for _ in sent]
            assert {message.value for message in read} == sent
            taken: set[bytes] = set()
            while taken != sent:
                message = await queue.receive(_WAIT_S)
                queue.acknowledge(message)
                taken.add(message.value)

    file = secured.properties_file(security)
    with topic_cluster(secured, topic_prefix, tmp_path, f"kafkaPropertiesFile={file}") as running:
        run_in(running, body)


def test_what_is_in_doubt_is_settled_by_the_header_where_a_password_is_asked_for(
    secured: SecuredKafka, topic_prefix: str
) -> None:
    async def body() -> None:
        async with (
            HandMadeTopic(
                topic_prefix,
                secured.open_at,
                advertised=secured.bootstrap_servers,
                segments=2,
                buckets=2,
            ) as topic,
            Client(topic.url, kafka=secured.security()) as client,
        ):
            producer = await client.create_producer(topic.name, linger_ms=0)
            sent: dict[bytes, list[bytes]] = {}
            await _send(producer, range(100), sent)
            await producer.flush(_WAIT_S)
            secured.proxy.hold_answers()
            await _send(producer, range(100, 200), sent)
            await until(lambda: _stored(topic) > 100)
            children = topic.layout.split_children(0)
            topic.begin((0,), children)
            await topic.make(children)
            ends = await topic.seal()
            secured.proxy.cut()
            secured.proxy.let_answers_through()
            topic.start_sealing()
            topic.commit(ends)
            await _send(producer, range(200, 250), sent)
            await producer.flush(_WAIT_S)
            assert wrong(topic.by_key(), sent) == []

    try:
        asyncio.run(body())
    finally:
        secured.proxy.let_answers_through()


async def _send(producer: Producer, numbers: range, sent: dict[bytes, list[bytes]]) -> None:
    for number in numbers:
        key, value = b"key-%d" % (number % 40), b"%d" % number
        await producer.post(value, key)
        sent.setdefault(key, []).append(value)


def _stored(topic: HandMadeTopic) -> int:
    return sum(sum(topic.ends(part)) for part in topic.layout.segments.values())


def command(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def at_once(*commands: tuple[str, ...], lines: str = "") -> list[subprocess.CompletedProcess[str]]:
    """Each of them, all at the same time: they wait for long before they say that it is in vain."""
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(lambda words: command(*words, lines=lines), commands))


def test_the_commands_produce_and_consume_take_the_same_properties(
    secured: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/by-hand"
    asyncio.run(nodes.create(topic))
    right = ("--kafka-properties", str(secured.properties_file(secured.security())))
    at = ("--service-url", nodes.url)
    sent = command("topics", "produce", topic, *at, *right, lines="a\t1\nb\t2\n")
    assert (sent.returncode, sent.stderr) == (0, "")
    read = command(
        "topics", "consume", topic, "--subscription", "billing", "--max", "2", *at, *right
    )
    assert read.returncode == 0, read.stderr
    assert {line.split("\t")[-1] for line in read.stdout.splitlines()} == {"1", "2"}


def node_at(secured: SecuredKafka, file: Path, data_dir: Path) -> tuple[str, ...]:
    """The command of one node."""
    return (
        *("node", "--bootstrap-servers", secured.bootstrap_servers, "--http-port"),
        *(str(free_ports(1)), "--service-port", "0", "--data-dir", str(data_dir)),
        *("--set", f"kafkaPropertiesFile={file}", "--set", "replicationFactor=1"),
        *("--set", "minInsyncReplicas=1"),
    )


def test_a_wrong_password_is_told_by_the_node_and_what_reads_the_log_and_no_password_is(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    file = secured.properties_file(secured.security(password=_WRONG))
    at = ("--bootstrap-servers", secured.bootstrap_servers, "--kafka-properties", str(file))
    commands = (
        node_at(secured, file, tmp_path),
        ("log", "tail", "--no-follow", *at),
        ("audit", *at),
        ("archive", "--archive-dir", "a", *at),
    )
    for words, found in zip(commands, at_once(*commands), strict=True):
        assert found.returncode == 2, (words, found.stdout)
        last = found.stderr.strip().splitlines()[-1]
        assert "does not let this client in" in last, words
        assert "Authentication failed" in last, words
        assert "kafkaPropertiesFile (--kafka-properties): sasl.username, sasl.password" in last
        assert _WRONG not in found.stdout + found.stderr, words


async def shut_out(nodes: TopicCluster, topic: str, kafka: dict[str, str]) -> tuple[str, str, str]:
    """What a producer, a stream and a queue consumer are told whom Kafka does not let in."""
    await nodes.create(topic)
    async with Client(nodes.url, kafka=kafka) as client:
        producer = await client.create_producer(topic, delivery_timeout_s=8)

        async def send() -> str:
            with pytest.raises(ClientError) as told:
                await producer.send(b"0", "key")
            return str(told.value)

        async def receive(opening: Awaitable[StreamConsumer | QueueConsumer]) -> str:
            with pytest.raises(KafkaReadError) as told:
                async with await opening as consumer:
                    await consumer.receive(_WAIT_S)
            return str(told.value)

        stream = receive(client.subscribe(topic, "billing"))
        queue = receive(client.subscribe_queue(topic, "queue"))
        return await asyncio.gather(send(), stream, queue)


def test_a_wrong_password_is_told_by_producers_and_consumers(
    secured: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/locked"

    async def body() -> None:
        sent, *told = await shut_out(nodes, topic, secured.security(password=_WRONG))
        assert "Authentication failed" in sent
        assert all("does not let this client in" in said for said in told)
        assert all("sasl.password" in said for said in told)
        assert not [said for said in (sent, *told) if _WRONG in said]

    run_in(nodes, body)


def test_a_wrong_password_is_told_by_the_commands_that_produce_and_consume(
    secured: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/locked-too"
    asyncio.run(nodes.create(topic))
    file = secured.properties_file(secured.security(password=_WRONG))
    at = ("--service-url", nodes.url, "--kafka-properties", str(file))
    consume = ("topics", "consume", topic, "--subscription", "billing", *at)
    for found in at_once(consume, ("topics", "produce", topic, *at), lines="a\t1\n"):
        assert (found.returncode, found.stdout) == (2, "")
        assert "does not let this client in" in found.stderr
        assert "kafkaPropertiesFile (--kafka-properties)" in found.stderr
        assert _WRONG not in found.stdout + found.stderr


@pytest.fixture(scope="module")
def distrustful(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Properties of a client that trusts somebody else's authority."""
    folder = tmp_path_factory.mktemp("elsewhere")
    make_certificates(folder)
    return secured.security() | {"ssl.ca.location": str(folder / "ca.pem")}


def test_a_node_that_does_not_trust_kafka_names_the_property_to_correct(
    secured: SecuredKafka, distrustful: dict[str, str], tmp_path: Path
) -> None:
    file = secured.properties_file(distrustful)
    found = command(*node_at(secured, file, tmp_path))
    assert found.returncode != 0
    last = found.stderr.strip().splitlines()[-1]
    assert "certificate verify failed" in last
    assert "ssl.ca.location for whom we trust" in last


def test_producers_and_consumers_that_do_not_trust_kafka_name_the_property_to_correct(
    nodes: TopicCluster, distrustful: dict[str, str]
) -> None:
    topic = "public/default/distrusted"

    async def body() -> None:
        told = await shut_out(nodes, topic, distrustful)
        assert all("certificate verify failed" in said for said in told), told
        assert all("ssl.ca.location" in said for said in told), told

    run_in(nodes, body)


@pytest.mark.spark
def test_spark_takes_the_same_properties(
    secured: SecuredKafka, nodes: TopicCluster, tmp_path: Path
) -> None:
    file = secured.properties_file(secured.security())
    prefix = nodes.prefix
    at = (
        *("--bootstrap-servers", secured.bootstrap_servers, "--archive-dir", str(tmp_path)),
        *("--set", f"kafkaPropertiesFile={file}", "--set", f"topicPrefix={prefix}"),
    )
    found = command("archive", "--once", *at)
    assert found.returncode == 0, found.stderr
    assert not [word for word in PASSWORDS.values() if word in found.stdout + found.stderr]
