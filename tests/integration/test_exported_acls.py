"""On a Kafka that had none, the ACLs that `anabranch acls` prints are enough: for nodes that make
none themselves, and for a client with grants.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from anabranch import client as sdk
from anabranch.admin import Admin
from anabranch.channel.kafka.acls import KafkaAcls
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.security.acls import Acl, AclDifference, AclResource
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.commands import run_here
from support.kafka_tools import kafka_tool
from support.secured_kafka import LIMITED, NODE, SecuredKafka
from support.tokens import secret_file, token
from support.topic_cluster import TopicCluster, topic_cluster
from support.waiting import WAIT_S, eventually

PREFIX = "exported."
ROOT = "root"
TOPIC = "acme/shop/orders"
DEAD = "acme/shop/dead"
_TOOL = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A Kafka without any ACL, whose authorizer refuses all but superusers."""
    with SecuredKafka(tmp_path_factory.mktemp("empty")) as kafka:
        assert not rules(kafka)
        yield kafka


def keeper(kafka: SecuredKafka) -> KafkaAcls:
    return KafkaAcls(KafkaConnection(kafka.open_at), f"{PREFIX}wal")


def rules(kafka: SecuredKafka) -> frozenset[Acl]:
    return keeper(kafka).find(WAIT_S)


def printed(kafka: SecuredKafka, form: str, *more: str) -> str:
    """What the command prints with the nodes' own rights."""
    file = kafka.properties_file(kafka.security(NODE))
    found = run_here(
        *("acls", "--format", form, "--node-principal", f"User:{NODE}"),
        *("--bootstrap-servers", kafka.bootstrap_servers, "--kafka-properties", str(file)),
        *("--set", f"topicPrefix={PREFIX}", *more),
    )
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


def run_in_a_shell(script: str, folder: Path) -> None:
    """Runs the commands with Kafka's own tool."""
    tool = folder / "kafka-acls.sh"
    tool.write_text(f'#!/bin/sh\nexec {shlex.join(kafka_tool(_TOOL))} "$@"\n')
    tool.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(
        ["/bin/sh", "-e"],
        input=script,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=5 * WAIT_S,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr


def apply(kafka: SecuredKafka, bindings: list[dict[str, str]]) -> None:
    """Makes the bindings as another program would, from the fields alone."""
    told = [
        Acl(
            *(each["principal"], AclResource(each["resourceType"]), each["name"]),
            *(each["patternType"] == "PREFIXED", each["operation"], each["host"]),
        )
        for each in bindings
    ]
    keeper(kafka).carry_out(AclDifference(missing=tuple(told)), WAIT_S)


@pytest.fixture(scope="module")
def nodes(empty: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCluster]:
    folder = tmp_path_factory.mktemp("nodes")
    script = printed(empty, "kafka-acls", "--nodes-only")
    run_in_a_shell(script.replace(empty.bootstrap_servers, empty.open_at), folder)
    settings = (
        f"kafkaPropertiesFile={empty.properties_file(empty.security(NODE))}",
        *("authenticationEnabled=true", "authenticationProviders=token"),
        f"tokenSecretKey={secret_file(folder)}",
        *("authorizationEnabled=true", f"superuserRoles={ROOT}", "snapshotIntervalSeconds=1"),
    )
    with topic_cluster(empty, PREFIX, folder, *settings) as running:
        yield running


def test_without_a_log_it_is_said_at_once(kafka: EmbeddedKafka) -> None:
    for command in (["acls"], ["log", "tail", "--no-follow"]):
        where = ("--bootstrap-servers", kafka.bootstrap_servers, "--set", "topicPrefix=nowhere.")
        found = run_here(*command, *where)
        assert found.returncode == 2
        assert "shows no topic nowhere.wal: start a node" in found.stderr


async def use(client: sdk.Client, split: Callable[[], None]) -> None:
    """Each kind of part, on both sides of a split."""
    for is_repeat in (False, True):
        options: sdk.ProducerOptions = {"name": "orders-db", "deduplicate": True}
        async with await client.create_producer(TOPIC, **options) as named:
            assert (await named.send(b"0", "k0", sequence=0)).is_repeat is is_repeat
            await named.send(b"%d" % (1 + is_repeat), "k1", sequence=1 + is_repeat)
    producer = await client.create_producer(TOPIC, linger_ms=0)
    await producer.send_many((f"k{n}", b"%d" % n) for n in range(3, 10))
    await producer.flush()
    await asyncio.to_thread(split)
    await producer.send_many((f"k{n}", b"%d" % n) for n in range(10, 20))
    await producer.flush()
    wanted = {b"%d" % number for number in range(20)}
    async with await client.subscribe(TOPIC, "stream") as stream:
        read: set[bytes] = set()
        while read != wanted:
            read.add((await stream.receive(WAIT_S)).value)
            stream.acknowledge_all()
    dead_letter = sdk.DeadLetterPolicy(topic=DEAD, deliveries_max=2)
    async with await client.subscribe_queue(TOPIC, "queue", dead_letter=dead_letter) as queue:
        taken: set[bytes] = set()
        while taken != wanted:
            message = await queue.receive(WAIT_S)
            taken.add(message.value)
            if message.value == b"7":
                queue.reject(message)
            else:
                queue.acknowledge(message)
        async with await client.subscribe(DEAD, "look") as look:
            assert (await look.receive(WAIT_S)).value == b"7"
    async with await client.subscribe_checkpoint(TOPIC, "files") as positions:
        seen: set[bytes] = set()
        while seen != wanted:
            seen |= set((await positions.receive_many(timeout_s=WAIT_S)).values())
            positions.saved(positions.checkpoint())
    assert {each.value for each in await client.peek(TOPIC, 20, start="earliest")} == wanted


async def snapshot_is_there(kafka: SecuredKafka) -> bool:
    """Whether a node has written one, in a transaction."""
    consumer = KafkaConnection(kafka.open_at).consumer()
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(f"{PREFIX}snapshot", 0), WAIT_S)
        return end > 0
    finally:
        consumer.close()


async def test_they_are_enough_for_nodes_and_for_a_client_that_does_everything(
    empty: SecuredKafka, nodes: TopicCluster
) -> None:
    url = ",".join(node.url for node in nodes.nodes)
    with Admin(url, credentials=sdk.Token(token(ROOT))) as admin:
        admin.tenants.create_tenant("acme", ["standalone"], [])
        admin.namespaces.create_namespace("acme/shop")
        for name in (TOPIC, DEAD):
            admin.scalable_topics.create_scalable_topic(name, 1)
        admin.namespaces.grant_permission_on_namespace("acme/shop", LIMITED, ["consume", "produce"])
        before = rules(empty)
        bindings: list[dict[str, str]] = json.loads(printed(empty, "json"))
        ours = [each for each in bindings if each["principal"] == f"User:{LIMITED}"]
        assert ours
        assert len(bindings) - len(ours) == len(before), "the nodes' are as they were made"
        apply(empty, bindings)
        credentials = sdk.Token(token(LIMITED))
        security = empty.security(LIMITED)
        service = admin.brokers.get_status().service_url
        async with sdk.Client(service, credentials=credentials, kafka=security) as client:
            await use(client, lambda: admin.scalable_topics.split_segment(TOPIC, 0))
        await eventually(lambda: snapshot_is_there(empty), WAIT_S)
        admin.scalable_topics.delete_subscription(TOPIC, "stream", force=True)
        admin.scalable_topics.delete_scalable_topic(DEAD, force=True)
    assert len(rules(empty)) == len(before) + len(ours), "nodes make none here"
    told = "".join(node.log_file.read_text(errors="replace") for node in nodes.nodes)
    assert "uthorization failed" not in told
