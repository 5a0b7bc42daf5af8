import asyncio

import pytest

from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import ConflictError, DeadlineExceededError, UnavailableError
from anabranch.channel.errors import AppendFailedError
from anabranch.core.balance.policies import IsolationPolicy
from anabranch.core.names import parse_topic
from support.memory_cluster import MemoryNode, memory_cluster, until

UNIT = "public/default/0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT


async def look_up(node: MemoryNode, topic: str = TOPIC) -> Located:
    return await node.operations.lookups.lookup(*parse_topic(topic))


async def test_lookups_of_one_bundle_at_the_same_time_make_one_owner() -> None:
    async with memory_cluster(3) as cluster:
        answers = await asyncio.gather(
            *(look_up(node) for node in cluster.nodes for _ in range(50))
        )
        assert len({answer.broker for answer in answers}) == 1
        # However many ask, a node proposes one assignment, and with it, if to itself, to own it.
        assert len([e for e in cluster.entries if e.key == UNIT.encode()]) <= 3 * 2


async def test_a_destination_that_does_not_take_part_or_drains_is_a_conflict() -> None:
    async with memory_cluster(3) as cluster:
        leaving, node = cluster.nodes[2], cluster.nodes[0]
        leaving.runtime.drain()
        await until(lambda: leaving.id not in node.operations.brokers())
        for target in (leaving.id, "b9:1"):
            said = f"inactive destination broker: {target} is not one of"
            with pytest.raises(ConflictError, match=said):
                await node.operations.unload(UNIT, target)


async def test_a_lookup_that_nobody_can_answer_ends_at_its_deadline() -> None:
    async with memory_cluster(
        3, lookupTimeoutMillis=1_000, leaseMillis=6_000, livenessTimeoutMillis=9_000
    ) as cluster:
        node = cluster.nodes[0]
        owner = next(n for n in cluster.nodes if n is not node)
        await look_up(node)
        await node.operations.unload(UNIT, owner.id)
        owner.connected = False  # for less than its session lasts
        topic, home = parse_topic(TOPIC)
        release = asyncio.create_task(node.operations.unload(UNIT))
        await until(lambda: node.operations.lookups.locate_cached(topic, home) is None)
        with pytest.raises(DeadlineExceededError, match="is releasing"):
            await node.operations.lookups.lookup(topic, home)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)


async def test_a_lookup_says_that_policies_leave_no_broker() -> None:
    async with memory_cluster(3, lookupTimeoutMillis=500) as cluster:
        operations = cluster.nodes[0].operations
        nobody = IsolationPolicy(("public/.*",), ("not-here",))
        await operations.placements.set_isolation("gold", nobody)
        topic, home = parse_topic(TOPIC)
        left = "broker_isolation_policies_filter leaves none of 3 that are in service"
        with pytest.raises(DeadlineExceededError, match=left):
            await operations.lookups.lookup(topic, home)


async def test_nodes_whose_states_differ_raise_the_alarm() -> None:
    async with memory_cluster(3) as cluster:
        node = cluster.nodes[0]
        node.view.digest = type(node.view.digest)(1)
        await node.operations.tenancy.create_tenant("acme", [], ["standalone"])
        name = "anabranch_digest_mismatch_total"
        await until(lambda: bool(node.metrics.registry.get_sample_value(name)))


async def test_a_record_that_the_log_cannot_take_is_answered_at_once() -> None:
    async with memory_cluster(3) as cluster:
        node = cluster.nodes[0]
        node.failing, node.failure = 1, AppendFailedError("the message is too large")
        with pytest.raises(UnavailableError, match="too large"):
            await node.operations.tenancy.create_tenant("acme", [], ["standalone"])
