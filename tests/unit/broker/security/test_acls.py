"""The leader keeps Kafka's ACLs: when Kafka fails, when another node leads, when hands were at it.

With a real Kafka: tests/integration/test_kafka_acls.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.security.acls import AclReconciler
from anabranch.core.names import Namespace
from anabranch.core.security.acls import Acl, AclResource, PrincipalMapping
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.core.topics.tasks import MakeSegments
from support import steady
from support.kafka_rules import allows
from support.memory_acls import MemoryAcls
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster, until

HOME = Namespace("public/default")
PREFIX = "anabranch."
STEM = f"{PREFIX}segment.public.default."
WRITE = Acl("User:ada", AclResource.TOPIC, STEM, True, "WRITE")
READ = Acl("User:ada", AclResource.TOPIC, STEM, True, "READ")
LONG_S = 1e6


class Scene:
    """Nodes in memory, each with a reconciler of one Kafka's ACLs."""

    def __init__(self, cluster: MemoryCluster, interval_s: float) -> None:
        self.cluster = cluster
        self.kafka = MemoryAcls()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.reconcilers: dict[str, AclReconciler] = {}
        for node in cluster.nodes:
            made = AclReconciler(
                node.runtime,
                PREFIX,
                PrincipalMapping("User:{role}"),
                interval_s,
                lambda: self.kafka,
            )
            self.reconcilers[node.id] = made
            self.tasks[node.id] = asyncio.create_task(made.run())

    @property
    def leader(self) -> MemoryNode:
        return next(node for node in self.cluster.nodes if node.runtime.core.is_leader())

    @property
    def of_leader(self) -> AclReconciler:
        return self.reconcilers[self.leader.id]

    async def grant(self, *words: str) -> None:
        await self.cluster.nodes[-1].operations.permissions.grant(HOME, "ada", words)

    async def revoke(self) -> None:
        await self.cluster.nodes[-1].operations.permissions.revoke(HOME, "ada")

    async def has(self, *acls: Acl) -> None:
        """Waits until Kafka has these of the two that tests look at, and the leader knows it."""
        await until(
            lambda: (
                self.kafka.acls & {READ, WRITE} == set(acls)
                and self.of_leader.offset == self.leader.view.next_offset
            )
        )


@asynccontextmanager
async def scene(count: int, interval_s: float) -> AsyncIterator[Scene]:
    async with memory_cluster(count) as cluster:
        made = Scene(cluster, interval_s)
        try:
            yield made
        finally:
            for task in made.tasks.values():
                task.cancel()
            await asyncio.gather(*made.tasks.values(), return_exceptions=True)


def with_scene(
    test: Callable[[Scene], Awaitable[None]], count: int = 1, interval_s: float = LONG_S
) -> None:
    async def body() -> None:
        async with scene(count, interval_s) as now:
            await test(now)

    steady.run(body())


def test_a_change_is_told_at_once_and_kafka_not_asked_again_for_it() -> None:
    async def test(now: Scene) -> None:
        await now.has()
        took: list[float] = []
        now.of_leader.observe = took.append
        asked = now.kafka.asked
        await now.grant("produce")
        await now.has(WRITE)
        await now.grant("consume")
        await now.has(READ)
        await now.revoke()
        await now.has()
        assert not now.kafka.acls
        assert now.kafka.asked == asked
        assert len(took) == len(now.kafka.carried_out) == 3
        # What does not matter here costs nothing.
        done = now.of_leader.results["ok"]
        await now.leader.operations.tenancy.create_namespace(Namespace("public/other"))
        await now.has()
        assert now.of_leader.results["ok"] == done + 1  # names may have met
        assert len(now.kafka.carried_out) == 3

    with_scene(test)


def test_while_kafka_is_away_it_is_a_concern_and_then_all_is_made_up_for() -> None:
    async def test(now: Scene) -> None:
        await now.has()
        now.kafka.is_away = True
        await now.grant("produce")
        await until(lambda: now.of_leader.results["failed"] > 1)
        told = [said for said in now.leader.operations.concerns() if "ACLs" in said]
        assert told == ["Kafka's ACLs are not what was granted: Kafka did not answer in time"]
        assert now.of_leader.offset < now.leader.view.next_offset
        await now.grant("consume")
        now.kafka.is_away = False
        await now.has(READ)
        assert not [said for said in now.leader.operations.concerns() if "ACLs" in said]

    with_scene(test)


def test_what_hands_have_changed_is_put_right_in_time() -> None:
    async def test(now: Scene) -> None:
        await now.grant("produce")
        await now.has(WRITE)
        now.kafka.acls.discard(WRITE)
        now.kafka.acls.add(READ)
        await now.has(WRITE)

    with_scene(test, interval_s=0.5)


def test_the_next_leader_asks_kafka_itself_and_finishes_what_was_begun() -> None:
    async def test(now: Scene) -> None:
        await now.has()
        first = now.leader
        first_of = now.of_leader

        def lost() -> None:
            now.kafka.is_away = True  # before anything is done

        now.kafka.before_change = lost
        now.cluster.nodes.sort(key=lambda node: node is first, reverse=True)
        await now.grant("produce")
        await until(lambda: first_of.results["failed"] > 0)
        now.kafka.before_change = lambda: None
        first.connected = False
        await until(
            lambda: any(n.runtime.core.is_leader() for n in now.cluster.nodes if n is not first)
        )
        now.tasks[first.id].cancel()
        now.cluster.nodes.remove(first)
        now.kafka.is_away = False
        await now.has(WRITE)
        assert now.leader is not first

    with_scene(test, count=3)


def test_nobody_but_the_leader_tells_kafka() -> None:
    async def test(now: Scene) -> None:
        await now.grant("produce")
        await now.has(WRITE)
        for node in now.cluster.nodes:
            if node is not now.leader:
                assert not now.reconcilers[node.id].results
                assert now.reconcilers[node.id].offset == 0

    with_scene(test, count=3)


def test_a_role_that_kafka_cannot_be_told_is_a_concern() -> None:
    async def test(now: Scene) -> None:
        await now.leader.operations.permissions.grant(HOME, "*", ("produce",))
        await now.has()
        assert not now.kafka.acls
        assert any("role '*' has something granted" in c for c in now.leader.operations.concerns())

    with_scene(test)


def test_what_lets_in_where_names_meet_goes_before_the_new_segment_is_made() -> None:
    async def test(now: Scene) -> None:
        node = now.leader
        topics, permissions = node.operations.topics, node.operations.permissions
        await topics.create("public/default/x", 1, {})
        await permissions.grant("public/default/x", "ada", ("produce",))
        outer = kafka_name(node, "public/default/x")

        def may(name: str) -> bool:
            return allows(now.kafka.acls, "User:ada", AclResource.TOPIC, name, "WRITE")

        await until(lambda: may(outer))
        # Nobody but the node that makes the segment is there to see to it.
        now.tasks[node.id].cancel()
        await topics.create("public/default/x.eu", 1, {})
        inner = node.view.topic("public/default/x.eu")
        assert inner is not None
        task = MakeSegments("public/default/x.eu", inner.incarnation, inner.segments)
        await asyncio.to_thread(now.reconcilers[node.id].cover, task, 60.0)
        assert may(outer)
        assert not may(kafka_name(node, "public/default/x.eu"))
        (change,) = now.kafka.carried_out[-1:]
        assert change.replaced
        assert not change.revoked
        await asyncio.to_thread(now.reconcilers[node.id].cover, task, 60.0)
        assert now.kafka.carried_out[-1] is change  # once is enough

    with_scene(test)


def kafka_name(node: MemoryNode, topic: str) -> str:
    """The Kafka topic of its first segment."""
    known = node.view.topic(topic)
    assert known is not None
    return kafka_topic(PREFIX, topic, known.incarnation, known.segments[0])


@pytest.mark.parametrize("again", ["public/default/x", "public/default/x.eu"])
def test_a_rule_of_what_was_deleted_lets_nobody_into_what_is_made_of_its_name(again: str) -> None:
    async def test(now: Scene) -> None:
        node = now.leader
        topics, permissions = node.operations.topics, node.operations.permissions
        await topics.create("public/default/x", 1, {})
        await permissions.grant("public/default/x", "ada", ("consume",))

        def may(name: str) -> bool:
            return allows(now.kafka.acls, "User:ada", AclResource.TOPIC, name, "READ")

        former = kafka_name(node, "public/default/x")
        await until(lambda: may(former))
        now.tasks[node.id].cancel()  # as where Kafka refuses for a while, or the leader is slow
        await topics.delete("public/default/x")
        await until(lambda: node.view.topic("public/default/x") is None)
        await topics.create(again, 1, {})
        made = node.view.topic(again)
        assert made is not None
        assert may(kafka_name(node, again))  # by the former one's prefix
        task = MakeSegments(again, made.incarnation, made.segments)
        await asyncio.to_thread(now.reconcilers[node.id].cover, task, 60.0)
        assert not may(kafka_name(node, again))

    with_scene(test)
