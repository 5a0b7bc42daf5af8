"""What is counted of unloads, splits and assignments, on nodes that share a log in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from anabranch.broker.balance.counts import BalanceCounts
from anabranch.broker.node.balancing import build_counts
from anabranch.core.balance.counters import BalanceResult, UnloadReason
from anabranch.core.bundles import propose
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import Cause
from anabranch.core.names import parse_topic
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster
from support.world import FIRST, HALVES, UNIT, A, B, World

TOPIC, HOME = parse_topic("persistent://public/default/orders")
_DONE, _FAILED = BalanceResult.SUCCESS, BalanceResult.FAILURE


class Counted:
    """A cluster whose nodes are counted, and a bundle that one of them owns."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.counts = {n.id: build_counts(n.operations, n.runtime) for n in cluster.nodes}
        self.unit = ""

    async def look_up(self) -> tuple[MemoryNode, MemoryNode]:
        """The bundle's owner, and another node."""
        located = await self.cluster.nodes[0].operations.lookups.lookup(TOPIC, HOME)
        owner = next(n for n in self.cluster.nodes if n.id == located.broker)
        self.unit = owner.operations.owned(owner.id)[0][0]
        return owner, next(n for n in self.cluster.nodes if n is not owner)

    def of(self, node: MemoryNode) -> BalanceCounts:
        return self.counts[node.id]


@asynccontextmanager
async def counting() -> AsyncIterator[Counted]:
    async with memory_cluster(2) as cluster:
        yield Counted(cluster)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    found = [
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


async def test_a_transfer_by_hand_is_counted_by_who_asked_and_timed_at_both_ends() -> None:
    async with counting() as counted:
        owner, other = await counted.look_up()
        before = value(other.metrics.registry, "brk_lb_assign_latency_count")
        await other.operations.unload(counted.unit, other.id)
        asked, gave = counted.of(other), counted.of(owner)
        assert (asked.unloads, asked.brokers_unloaded) == ({(_DONE, UnloadReason.ADMIN): 1}, 1)
        assert not gave.unloads
        shown = owner.metrics.registry
        assert value(shown, "brk_lb_unload_latency_count") == 1
        assert value(shown, "brk_lb_release_latency_count") == 1
        assert value(shown, "brk_lb_disconnect_latency_count") == 1
        assert value(other.metrics.registry, "brk_lb_assign_latency_count") == (before or 0) + 1
        shown = other.metrics.registry
        admin = {"result": "Success", "reason": "Admin"}
        assert value(shown, "brk_lb_unload_broker_breakdown_total", **admin) == 1
        assert value(shown, "brk_lb_unload_bundle_total") == 1
        assert value(shown, "brk_sunit_state_chn_owned_su_total") == 1
        unloads = {"event": "Unload", "result": "Total"}
        assert value(shown, "brk_sunit_state_chn_event_publish_ops_total", **unloads) == 1
        asked.shed(None, 0.4, 0.3)
        stats = {"feature": "max_ema", "stat": "std"}
        assert value(shown, "brk_lb_resource_usage_stats", **stats) == 0.3


def test_a_broker_is_counted_once_a_round_also_if_the_next_one_begins_meanwhile() -> None:
    world = World(A, B)
    counts = BalanceCounts(A, CollectorRegistry())

    def tell(what: Move, by: str, unit: str = UNIT, **fields: object) -> None:
        counts.folded([world.fold(world.move(what, by, unit, **fields))])

    for what, fields in (
        (Move.ASSIGN, {"broker": A}),
        (Move.OWN, {}),
        (Move.SPLIT, {"children": HALVES}),
        (Move.SPLIT_COMMIT, {}),
    ):
        tell(what, A, **fields)
    halves = [f"{FIRST}/{half}" for half in HALVES]
    for half in halves:
        tell(Move.RELEASE, A, half, broker=B, cause=Cause.OVERLOADED)
    counts.shed((BalanceResult.SKIP, UnloadReason.HIT_COUNT), 0.5, 0.2)
    for half in halves:
        tell(Move.HAND_OVER, A, half)
        tell(Move.OWN, B, half)
    skipped = (BalanceResult.SKIP, UnloadReason.HIT_COUNT)
    assert counts.unloads == {skipped: 1, (_DONE, UnloadReason.OVERLOADED): 2}
    assert (counts.brokers_unloaded, counts.deviation) == (1, (0.5, 0.2))


async def test_a_release_that_is_rejected_is_a_failure() -> None:
    async with counting() as counted:
        owner, _ = await counted.look_up()
        core = owner.runtime.core
        record = propose.move(
            *(core.actor(), counted.unit, owner.view.unit(counted.unit), Move.RELEASE),
            *(owner.runtime.proposals.new_id(), Cause.UNDERLOADED),
            broker="nobody:1",
        )
        await owner.runtime.proposals.propose(record, owner.runtime.proposals.deadline(5))
        assert counted.of(owner).unloads == {(_FAILED, UnloadReason.UNKNOWN): 1}
        failures = {"event": "Unload", "result": "Failure"}
        shown = owner.metrics.registry
        assert value(shown, "brk_sunit_state_chn_event_publish_ops_total", **failures) == 1


async def test_assignments_are_counted_by_what_came_of_a_look_up() -> None:
    async with counting() as counted:
        await counted.look_up()
        first = counted.cluster.nodes[0]
        await first.operations.lookups.lookup(TOPIC, HOME)
        shown, name = first.metrics.registry, "brk_lb_assign_broker_breakdown_total"
        assert value(shown, name, result="Success") == 1
        assert (value(shown, name, result="Skip") or 0) >= 1
        assert value(shown, name, result="Failure") == 0
        free = {"state": "Free", "result": "Total"}
        assert value(shown, "brk_sunit_state_chn_owner_lookup_total", **free) == 1
