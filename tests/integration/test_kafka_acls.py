"""Grants count on Kafka: for clients of Kafka's own, which ask no node, and at nodes with the least
rights that docs/topics.md names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from anabranch.broker.node.node import Node
from anabranch.broker.settings import Settings
from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.kafka.acls import KafkaAcls
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.names import Namespace
from anabranch.core.security.acls import Acl, AclDifference, AclResource
from anabranch.core.topics.kafka_names import kafka_topic, segments_head
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.kafka_cluster import KafkaCluster
from support.memory_cluster import until
from support.opening import Opening
from support.quiet import QUIET
from support.secured_kafka import LIMITED, NODE, SecuredKafka, rights_of_a_leader
from support.there import there
from support.tokens import secret_file
from support.waiting import WAIT_S

HOME = Namespace("acme/shop")
TOPIC = "acme/shop/orders"
WHO = f"User:{LIMITED}"
DENIED = ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")


class Scene:
    """Nodes that may do the least, and a client of Kafka's own that may do what was granted."""

    def __init__(
        self, secured_kafka: SecuredKafka, cluster: KafkaCluster, settings: Settings
    ) -> None:
        self.secured = secured_kafka
        self.cluster = cluster
        self.settings = settings
        self.prefix = settings.topic_prefix
        self.rules = KafkaAcls(
            KafkaConnection(secured_kafka.open_at), f"{self.prefix}wal"
        )  # as anybody's who may do all

    @property
    def node(self) -> Node:
        return self.cluster.nodes[0]

    @property
    def leader(self) -> Node:
        name = self.node.operations.leader()
        return next(node for node in self.cluster.nodes if node.settings.broker_id == name)

    async def at(self, topic: str) -> Node:
        """The node that controls it."""
        found = await self.node.operations.topics.access.find_controller(topic)
        return next(node for node in self.cluster.nodes if node.settings.broker_id == found.broker)

    async def make(self, topic: str) -> None:
        if self.node.runtime.view.namespace(HOME) is None:
            await self.node.operations.tenancy.create_tenant("acme", (), ("standalone",))
            await self.node.operations.tenancy.create_namespace(HOME)
        await (await self.at(topic)).operations.topics.create(topic, 1, {})
        await self.cluster.caught_up()

    async def grant(self, scope: str, *words: str) -> None:
        await self.node.operations.permissions.grant(scope, LIMITED, words)

    def segment(self, topic: str) -> str:
        """The Kafka topic of its newest active segment."""
        found = there(self.node.runtime.view.topic(topic))
        part = [each for each in found.segments if each.is_active][-1]
        return kafka_topic(self.prefix, topic, found.incarnation, part)

    async def split(self, topic: str) -> None:
        found = there(self.node.runtime.view.topic(topic))
        first = next(each for each in found.segments if each.is_active)
        await (await self.at(topic)).operations.topics.split(topic, first.segment_id)

    async def said(self, ask: Callable[..., str], topic: str, expected: str) -> None:
        """Asks with new clients until that is the answer."""
        deadline, said = time.monotonic() + WAIT_S, "nothing"
        while said != expected:
            assert time.monotonic() < deadline, f"{said}, not {expected}"
            said = await asyncio.to_thread(ask, self.segment(topic))

    def write(self, segment: str) -> str:
        """What a message was answered with; "" for well."""
        answers: list[str] = []

        def answered(error: KafkaError | None, _: Message) -> None:
            answers.append(error.name() if error is not None else "")

        producer = Producer({**self._client(), "message.timeout.ms": 20_000})
        producer.produce(segment, b"x", partition=0, on_delivery=answered)
        assert producer.flush(WAIT_S) == 0
        return answers[0]

    def read(self, segment: str) -> str:
        """What a fetch was answered with; "" for well."""
        consumer = Consumer({**self._client(), "group.id": "some", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(segment, 0, 0)])
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:
                found = consumer.poll(1.0)
                error = found.error() if found is not None else None
                if error is not None and error.name() in DENIED[:1]:
                    return error.name()
                if found is not None and error is None:
                    return ""
            return "silence"
        finally:
            consumer.close()

    def _client(self) -> dict[str, Any]:
        return {
            **QUIET,
            "bootstrap.servers": self.secured.bootstrap_servers,
            **self.secured.security(LIMITED),
        }

    def join_group(self, group: str, segment: str) -> str:
        """What a consumer that would join this group was answered with; "" for well.

        An administrator's question would do, but crashes while the coordinator is not ready.
        """
        joined: list[object] = []
        own = {"group.id": group, "enable.auto.commit": False}
        consumer = Consumer({**self._client(), **own})
        try:
            consumer.subscribe([segment], on_assign=lambda *told: joined.append(told))
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline and not joined:
                found = consumer.poll(1.0)
                error = found.error() if found is not None else None
                if error is not None and error.name() in DENIED:
                    return error.name()
            return "" if joined else "silence"
        finally:
            consumer.close()

    def found(self) -> set[Acl]:
        """The rules of the limited user, which are on names of this cluster."""
        return {
            each
            for each in self.rules.find(WAIT_S)
            if each.principal == WHO and each.name.startswith(self.prefix)
        }


@asynccontextmanager
async def scene(
    secured_kafka: SecuredKafka, prefix: str, folder: Path, count: int, elsewhere: str
) -> AsyncIterator[Scene]:
    await asyncio.to_thread(lambda: secured_kafka.allow(*rights_of_a_leader(prefix), user=NODE))
    cluster = KafkaCluster(secured_kafka, prefix, folder)
    named = {
        "kafkaPropertiesFile": str(secured_kafka.properties_file(secured_kafka.security(NODE))),
        "authenticationEnabled": True,
        "authenticationProviders": "token",
        "tokenSecretKey": secret_file(folder),
        "authorizationEnabled": True,
        "kafkaAclsEnabled": True,
        "kafkaAclsIntervalSeconds": 1,
        "kafkaAclsOwnedElsewhere": elsewhere,
    }
    try:
        for _ in range(count):
            await cluster.start(cluster.settings(**named))
        await cluster.agreed()
        yield Scene(secured_kafka, cluster, cluster.settings(**named))
    finally:
        await asyncio.gather(*(node.close() for node in cluster.nodes))


@pytest.fixture
def count() -> int:
    """So many nodes."""
    return 1


@pytest.fixture
def elsewhere() -> str:
    """The roles whose ACLs are not the nodes'."""
    return ""


@pytest.fixture
def now(
    secured_kafka: SecuredKafka, topic_prefix: str, tmp_path: Path, count: int, elsewhere: str
) -> Opening:
    return Opening(lambda: scene(secured_kafka, topic_prefix, tmp_path, count, elsewhere))


async def test_who_may_produce_can_on_kafka_also_after_a_split_and_not_once_it_is_revoked(
    now: Scene,
) -> None:
    await now.make(TOPIC)
    await now.make("acme/shop/others")
    await now.said(now.write, TOPIC, DENIED[0])
    await now.grant(TOPIC, "produce")
    await now.said(now.write, TOPIC, "")
    assert await asyncio.to_thread(now.read, now.segment(TOPIC)) == DENIED[0]
    assert await asyncio.to_thread(now.write, now.segment("acme/shop/others")) == DENIED[0]
    before = now.found()
    await now.split(TOPIC)
    # At once, and by no rule of its own.
    assert await asyncio.to_thread(now.write, now.segment(TOPIC)) == ""
    assert now.found() == before
    await now.node.operations.permissions.revoke(TOPIC, LIMITED)
    await now.said(now.write, TOPIC, DENIED[0])
    await until(lambda: not now.found(), WAIT_S)


async def test_who_may_consume_can_read_and_use_groups_and_not_write(now: Scene) -> None:
    await now.make(TOPIC)
    await now.grant(HOME, "consume", "produce")
    await now.said(now.write, TOPIC, "")
    await now.grant(HOME, "consume")
    await now.said(now.read, TOPIC, "")
    await now.said(now.write, TOPIC, DENIED[0])
    # A topic that is made later is covered from the start.
    await now.make("acme/shop/later")
    assert await asyncio.to_thread(now.write, now.segment("acme/shop/later")) == DENIED[0]
    group = f"{now.prefix}subscription.acme.shop.orders.billing.1"
    segment = now.segment(TOPIC)
    assert await asyncio.to_thread(now.join_group, group, segment) == ""
    elsewhere = f"{now.prefix}subscription.acme.store.orders.billing.1"
    assert await asyncio.to_thread(now.join_group, elsewhere, segment) == DENIED[1]


async def test_what_is_changed_by_hand_is_put_right_and_what_is_not_ours_stays(now: Scene) -> None:
    topic = AclResource.TOPIC
    foreign = (
        Acl(WHO, topic, "elsewhere.", True, "READ"),
        Acl(WHO, topic, now.prefix, True, "DESCRIBE_CONFIGS"),
        Acl(WHO, topic, segments_head(now.prefix), True, "DESCRIBE_CONFIGS"),
        Acl("Group:staff", topic, f"{segments_head(now.prefix)}acme.", True, "READ"),
    )
    strange = Acl(WHO, topic, f"{segments_head(now.prefix)}acme.", True, "READ")
    now.rules.carry_out(AclDifference(missing=(*foreign, strange)), WAIT_S)
    await now.make(TOPIC)
    await now.grant(TOPIC, "produce")
    await now.said(now.write, TOPIC, "")
    await until(lambda: strange not in now.found(), WAIT_S)
    ours = now.found() - set(foreign)
    now.rules.carry_out(AclDifference(surplus=tuple(ours), missing=(strange,)), WAIT_S)
    await until(lambda: now.found() - set(foreign) == ours, WAIT_S)
    await now.said(now.write, TOPIC, "")
    assert set(foreign) <= now.rules.find(WAIT_S)
    now.rules.carry_out(AclDifference(surplus=foreign), WAIT_S)


@pytest.mark.parametrize("elsewhere", ["robot, lim*"])
async def test_the_rules_of_a_role_with_another_owner_stay_and_none_are_added(now: Scene) -> None:
    topic, head = AclResource.TOPIC, segments_head(now.prefix)
    theirs = Acl(WHO, topic, f"{head}acme.", True, "READ")
    strange = Acl("User:stranger", topic, f"{head}acme.", True, "READ")
    eves = Acl("User:eve", topic, f"{head}acme.shop.orders.", True, "READ")
    await now.make(TOPIC)
    await now.grant(TOPIC, "produce")
    for _ in range(2):  # once as it is found, once more after a change of grants
        now.rules.carry_out(AclDifference(missing=(theirs, strange)), WAIT_S)
        await until(lambda: theirs in now.found(), WAIT_S)
        # The leader takes all away that it may, and both came at once: it has looked at both.
        await until(lambda: strange not in now.rules.find(WAIT_S), WAIT_S)
        assert now.found() == {theirs}
        await now.node.operations.permissions.revoke(TOPIC, LIMITED)
        await now.grant(TOPIC, "consume")
        await now.node.operations.permissions.grant(TOPIC, "eve", ["consume"])
        await until(lambda: eves in now.rules.find(WAIT_S), WAIT_S)
        assert now.found() == {theirs}
    await now.node.operations.permissions.revoke(TOPIC, "eve")
    now.rules.carry_out(AclDifference(surplus=(theirs,)), WAIT_S)


def test_a_kafka_that_asks_nobody_for_rights_is_named(kafka: EmbeddedKafka) -> None:
    rules = KafkaAcls(KafkaConnection(kafka.bootstrap_servers), "wal")
    wanted = AclDifference(missing=(Acl(WHO, AclResource.TOPIC, "orders.", True, "READ"),))
    with pytest.raises(KafkaRefusedError, match="asks nobody for rights: set authorizer"):
        rules.carry_out(wanted, WAIT_S)
