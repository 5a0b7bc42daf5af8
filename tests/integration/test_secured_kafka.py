"""Nodes, SDK and commands on a Kafka that asks for TLS and a password, and that refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from anabranch import client as sdk
from anabranch.broker.node.startup import connect
from anabranch.broker.settings import load_settings
from anabranch.channel.kafka.topics import check_kafka
from anabranch.core.errors import AnabranchError
from support.authority import Authority
from support.hand_made_topic import HandMadeTopic
from support.kafka_cluster import KafkaCluster
from support.local_topic import local_topic
from support.processes import run
from support.secured_kafka import LIMITED, PASSWORDS, SCRAM, SecuredKafka
from support.topic_cluster import TEST_S, TopicCluster, topic_cluster
from support.traffic import Traffic, post, stored, wrong
from support.waiting import WAIT_S, until

_KEYS = [b"key-%d" % number for number in range(40)]
_WRONG = "wrong-word-73"


@pytest.fixture(scope="module")
def nodes(
    secured_kafka: SecuredKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    file = secured_kafka.javas_file()
    with topic_cluster(
        secured_kafka, f"{folder.name}.", folder, f"kafkaPropertiesFile={file}"
    ) as running:
        yield running


def run_in(cluster: TopicCluster, body: Callable[[], Awaitable[None]]) -> None:
    """Runs it, and looks for passwords in what the nodes have logged."""
    asyncio.run(asyncio.wait_for(body(), TEST_S))
    for node in cluster.nodes:
        logged = node.log_file.read_text(errors="replace")
        assert not [word for word in (*PASSWORDS.values(), _WRONG) if word in logged]


def test_producers_and_consumers_of_each_kind_pass_splits_over_tls_with_a_password(
    secured_kafka: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/secured"

    async def body() -> None:
        await nodes.create(topic, 2)
        async with sdk.Client(nodes.url, kafka=secured_kafka.security()) as client:
            producer = await client.create_producer(topic)
            stream = await client.subscribe(topic, "stream")
            queue = await client.subscribe_queue(topic, "queue")
            traffic = Traffic(producer, _KEYS)
            await nodes.split(topic, 0)
            await nodes.merge(topic, 2, 3)
            sent = await traffic.stop()
            total = sum(map(len, sent.values()))
            await until(lambda: not producer.layout.children)  # the watch may be behind
            found = await asyncio.to_thread(
                stored, secured_kafka.bootstrap_servers, producer.layout, secured_kafka.security()
            )
            assert wrong(found, sent) == []
            seen: set[tuple[bytes | None, bytes]] = set()
            while len(seen) < total:
                batch = await stream.receive_many(timeout_s=WAIT_S)
                seen |= {(message.key, message.value) for message in batch}
                stream.acknowledge(batch)
            taken: set[tuple[bytes | None, bytes]] = set()
            while len(taken) < total:
                for message in await queue.receive_many(timeout_s=WAIT_S):
                    taken.add((message.key, message.value))
                    queue.acknowledge(message)

    run_in(nodes, body)


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
async def test_a_sealed_segment_of_a_queue_goes_though_its_consumers_come_and_go(
    secured_kafka: SecuredKafka, topic_prefix: str, tmp_path: Path, mechanism: str
) -> None:
    """What its consumers have seen tells nothing then: Kafka itself must be asked."""
    security = secured_kafka.security(mechanism=mechanism)
    settings: dict[str, object] = {
        "kafkaPropertiesFile": secured_kafka.properties_file(security),
        "scalableTopicSurveyIntervalSeconds": 0.2,
        "scalableTopicRetentionSeconds": 0,
        "scalableTopicSealedRetentionSeconds": 0,
    }
    async with local_topic(secured_kafka, topic_prefix, tmp_path, 1, **settings) as at:
        topics = at.node.operations.topics
        async with sdk.Client(at.node.settings.service_url, kafka=security) as client:
            async with await client.create_producer(at.topic) as producer:
                await producer.send(b"job", b"key")
            async with await client.subscribe_queue(at.topic, "jobs") as queue:
                await topics.split(at.topic, 0)
                assert queue.acknowledge(await queue.receive(WAIT_S))
            await until(lambda: topics.topic(at.topic).segment(0) is None, WAIT_S)


def test_what_is_in_doubt_is_settled_by_the_header_where_a_password_is_asked_for(
    secured_kafka: SecuredKafka, topic_prefix: str
) -> None:
    async def body() -> None:
        async with (
            HandMadeTopic(
                topic_prefix,
                secured_kafka.open_at,
                advertised=secured_kafka.bootstrap_servers,
                segments=2,
                buckets=2,
            ) as topic,
            sdk.Client(topic.url, kafka=secured_kafka.security()) as client,
        ):
            producer = await client.create_producer(topic.name, linger_ms=0)
            sent: dict[bytes, list[bytes]] = {}
            await post(producer, range(100), sent)
            await producer.flush(WAIT_S)
            secured_kafka.proxy.hold_answers()
            await post(producer, range(100, 200), sent)
            await until(lambda: topic.stored() > 100)
            ends = await topic.split_unanswered(secured_kafka.proxy)
            topic.start_sealing()
            topic.commit(ends)
            await post(producer, range(200, 250), sent)
            await producer.flush(WAIT_S)
            assert wrong(topic.by_key(), sent) == []

    try:
        asyncio.run(body())
    finally:
        secured_kafka.proxy.let_answers_through()


def test_a_letter_waits_for_the_right_to_write_it_and_the_consumer_goes_on(
    secured_kafka: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/limited"

    async def body() -> None:
        await nodes.create(topic)
        async with (
            sdk.Client(nodes.url, kafka=secured_kafka.security(LIMITED)) as client,
            sdk.Client(nodes.url, kafka=secured_kafka.security()) as master,
            await master.create_producer(topic) as producer,
        ):
            (segment,) = producer.layout.active
            groups = [("groups", nodes.prefix, each) for each in ("READ", "DESCRIBE_CONFIGS")]
            secured_kafka.allow(("topics", segment.kafka_topic, "READ"), *groups)
            policy = sdk.DeadLetterPolicy()
            jobs = await client.subscribe_queue(topic, "jobs", dead_letter=policy)
            await producer.send(b"bad")
            assert jobs.reject(await jobs.receive(WAIT_S))
            await until(lambda: jobs.dead_letters_waiting == 1)
            await producer.send(b"good")
            while (job := await jobs.receive(WAIT_S)).value == b"bad":
                assert jobs.reject(job)
            assert jobs.acknowledge(job)
            (letters,) = (await master.watch(f"{topic}-jobs-DLQ")).layout.active
            secured_kafka.allow(("topics", letters.kafka_topic, "WRITE"))
            async with await master.subscribe(f"{topic}-jobs-DLQ", "look") as look:
                assert (await look.receive(WAIT_S)).value == b"bad"
            await until(lambda: jobs.dead_letters_waiting == 0)
            await jobs.close()

    run_in(nodes, body)


def test_the_commands_produce_and_consume_take_a_file_of_java(
    secured_kafka: SecuredKafka, nodes: TopicCluster
) -> None:
    topic = "public/default/by-hand"
    asyncio.run(nodes.create(topic))
    right = ("--kafka-properties", str(secured_kafka.javas_file()))
    at = ("--service-url", nodes.url)
    sent = run("topics", "produce", topic, *at, *right, lines="a\t1\nb\t2\n")
    assert (sent.returncode, sent.stderr) == (0, "")
    read = run("topics", "consume", topic, "--subscription", "billing", "--max", "2", *at, *right)
    assert read.returncode == 0, read.stderr
    assert {line.split("\t")[-1] for line in read.stdout.splitlines()} == {"1", "2"}


def test_a_node_finds_kafka_by_its_file_alone(secured_kafka: SecuredKafka) -> None:
    settings = load_settings(None, {}, {"kafkaPropertiesFile": secured_kafka.javas_file()})
    assert settings.bootstrap_servers == secured_kafka.bootstrap_servers
    assert check_kafka(connect(settings), WAIT_S) == 1


async def told_at_start(secured_kafka: SecuredKafka, folder: Path, kafka: dict[str, str]) -> str:
    """What a node ends with whom Kafka does not let in."""
    nodes = KafkaCluster(secured_kafka, "shut-out.", folder)
    file = secured_kafka.properties_file(kafka)
    with pytest.raises(AnabranchError) as told:
        await nodes.start(nodes.settings(kafkaPropertiesFile=str(file)))
    return str(told.value)


async def shut_out(nodes: TopicCluster, topic: str, kafka: dict[str, str]) -> tuple[str, str, str]:
    """What a producer, a stream and a queue consumer are told whom Kafka does not let in."""
    await nodes.create(topic)
    async with sdk.Client(nodes.url, kafka=kafka) as client:
        producer = await client.create_producer(topic, delivery_timeout_s=8)

        async def send() -> str:
            with pytest.raises(sdk.ClientError) as told:
                await producer.send(b"0", "key")
            return str(told.value)

        async def receive(opening: Awaitable[sdk.StreamConsumer | sdk.QueueConsumer]) -> str:
            with pytest.raises(sdk.KafkaReadError) as told:
                async with await opening as consumer:
                    await consumer.receive(WAIT_S)
            return str(told.value)

        stream = receive(client.subscribe(topic, "billing"))
        queue = receive(client.subscribe_queue(topic, "queue"))
        return await asyncio.gather(send(), stream, queue)


def test_a_wrong_password_and_distrust_are_told_by_node_and_clients_and_no_password_is(
    secured_kafka: SecuredKafka, nodes: TopicCluster, tmp_path: Path
) -> None:
    """Beside each other, because they wait most of the time."""

    async def wrong_password() -> None:
        wrong_one = secured_kafka.security(password=_WRONG)
        node, (sent, *told) = await asyncio.gather(
            told_at_start(secured_kafka, tmp_path, wrong_one),
            shut_out(nodes, "public/default/locked", wrong_one),
        )
        assert "kafkaPropertiesFile (--kafka-properties): sasl.username, sasl.password" in node
        assert all("Authentication failed" in said for said in (node, sent))
        assert all("does not let this client in" in said for said in (node, *told))
        assert all("sasl.password" in said for said in told)
        assert not [said for said in (node, sent, *told) if _WRONG in said]

    async def distrust() -> None:
        authority = Authority(tmp_path)
        distrustful = secured_kafka.security() | {"ssl.ca.location": str(authority.file)}
        node, told = await asyncio.gather(
            told_at_start(secured_kafka, tmp_path, distrustful),
            shut_out(nodes, "public/default/distrusted", distrustful),
        )
        assert "ssl.ca.location for whom we trust" in node
        sent, *received = told
        assert all("certificate verify failed" in said for said in (node, *received)), told
        assert "certificate is not trusted" in sent
        assert all("ssl.ca.location" in said for said in told), told

    async def body() -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(wrong_password())
            both.create_task(distrust())

    run_in(nodes, body)
