"""The leader keeps Kafka's ACLs: when Kafka fails, when another node leads, when hands were at it.

With a real Kafka: tests/integration/test_kafka_acls.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anabranch.broker.security.acls import AclReconciler
from anabranch.core.log.outcome import Folded
from anabranch.core.names import Namespace
from anabranch.core.security.acls import Acl, AclResource, PrincipalMapping
from support.memory_acls import MemoryAcls
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster, until
from support.waiting import WAIT_S

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
async def scene(count: int = 1, interval_s: float = LONG_S) -> AsyncIterator[Scene]:
    async with memory_cluster(count) as cluster:
        made = Scene(cluster, interval_s)
        try:
            yield made
        finally:
            for task in made.tasks.values():
                task.cancel()
            await asyncio.gather(*made.tasks.values(), return_exceptions=True)


async def test_a_change_is_told_at_once_and_kafka_not_asked_again_for_it() -> None:
    async with scene() as now:
        await now.has()
        took: list[float] = []
        now.of_leader.observe = took.append
        asked = now.kafka.asked
        early: list[int] = []  # what counts, it says, while Kafka is only being told
        now.kafka.before_change = lambda: early.append(now.of_leader.offset)
        first = now.of_leader.offset
        await now.grant("produce")
        await now.has(WRITE)
        await now.grant("consume")
        await now.has(READ)
        await now.revoke()
        await now.has()
        assert not now.kafka.acls
        assert now.kafka.asked == asked
        assert len(took) == len(now.kafka.carried_out) == 3
        assert early[0] <= first
        assert max(early) < now.of_leader.offset
        # What does not matter here costs nothing.
        done = now.of_leader.results["ok"]
        await now.leader.operations.tenancy.create_namespace(Namespace("public/other"))
        await now.has()
        assert now.of_leader.results["ok"] == done + 1  # names may have met
        assert len(now.kafka.carried_out) == 3


async def test_while_kafka_is_away_it_is_a_concern_and_then_all_is_made_up_for() -> None:
    async with scene() as now:
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


async def test_what_hands_have_changed_is_put_right_in_time() -> None:
    async with scene(interval_s=0.5) as now:
        await now.grant("produce")
        await now.has(WRITE)
        now.kafka.acls.discard(WRITE)
        now.kafka.acls.add(READ)
        await now.has(WRITE)


async def test_the_next_leader_asks_kafka_itself_and_finishes_what_was_begun() -> None:
    async with scene(count=3) as now:
        await now.has()
        first = now.leader
        first_of = now.of_leader
        others = [made for made in now.reconcilers.values() if made is not first_of]

        def lost() -> None:
            now.kafka.is_away = True  # before anything is done

        now.kafka.before_change = lost
        now.cluster.nodes.sort(key=lambda node: node is first, reverse=True)
        await now.grant("produce")
        await until(lambda: first_of.results["failed"] > 0)
        assert not any(each.results or each.offset for each in others), "nobody else tells Kafka"
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


async def test_it_ends_when_it_is_told_to_also_if_a_change_comes_in_that_moment() -> None:
    async with scene() as now:
        await now.has()
        task = now.tasks[now.leader.id]

        def end(_folded: Sequence[Folded]) -> None:
            task.cancel()

        now.leader.runtime.listeners.append(end)
        await now.grant("produce")
        await asyncio.wait([task], timeout=WAIT_S)
        assert task.cancelled()


async def test_a_role_that_kafka_cannot_be_told_is_a_concern() -> None:
    async with scene() as now:
        await now.leader.operations.permissions.grant(HOME, "*", ("produce",))
        await now.has()
        assert not now.kafka.acls
        assert any("role '*' has something granted" in c for c in now.leader.operations.concerns())
