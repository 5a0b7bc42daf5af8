import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import (
    ConflictError,
    DeadlineExceededError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from anabranch.channel.errors import AppendFailedError
from anabranch.core.balance.policies import IsolationPolicy
from anabranch.core.bundles.unit import UnitState
from anabranch.core.names import Namespace, parse_topic
from support import steady
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster, until

HOME = Namespace("public/default")
UNIT = "public/default/0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT


def run(test: Callable[[MemoryCluster], Coroutine[Any, Any, None]], **settings: object) -> None:
    async def body() -> None:
        async with memory_cluster(3, **settings) as cluster:
            await test(cluster)

    steady.run(body())


async def look_up(node: MemoryNode, topic: str = TOPIC) -> Located:
    return await node.operations.lookups.lookup(*parse_topic(topic))


async def caught_up(node: MemoryNode, cluster: MemoryCluster) -> None:
    await until(lambda: node.view.next_offset == len(cluster.entries))


def owner_of(node: MemoryNode, unit: str = UNIT) -> str:
    found = node.view.unit(unit)
    return found.broker if found is not None and found.state is UnitState.OWNED else ""


def test_the_topic_of_these_tests_falls_into_their_unit() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await look_up(cluster.nodes[0])
        assert owner_of(cluster.nodes[0])

    run(test)


def test_a_lookup_assigns_a_free_bundle_and_all_nodes_agree_on_the_owner() -> None:
    async def test(cluster: MemoryCluster) -> None:
        first = await look_up(cluster.nodes[0])
        answers = [await look_up(node) for node in cluster.nodes]
        assert {answer.broker for answer in answers} == {first.broker}
        assert first.web_url == f"http://{first.broker}"
        assert not first.stale

    run(test)


def test_lookups_of_one_bundle_at_the_same_time_make_one_owner() -> None:
    async def test(cluster: MemoryCluster) -> None:
        answers = await asyncio.gather(
            *(look_up(node) for node in cluster.nodes for _ in range(50))
        )
        assert len({answer.broker for answer in answers}) == 1
        # However many ask, a node proposes one assignment, and with it, if to itself, to own it.
        assert len([e for e in cluster.entries if e.key == UNIT.encode()]) <= 3 * 2

    run(test)


def test_bundles_looked_up_together_are_spread_evenly() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        home = Namespace("public/many")
        await node.operations.tenancy.create_namespace(home, 60)
        await asyncio.gather(*(look_up(node, f"{home}/t{n}") for n in range(600)))
        counts = [len(node.operations.owned(broker)) for broker in node.operations.brokers()]
        assert max(counts) - min(counts) <= 3

    run(test)


def test_a_transfer_gives_the_bundle_to_the_destination() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        owner = (await look_up(node)).broker
        target = next(b for b in node.operations.brokers() if b != owner)
        await node.operations.unload(UNIT, target)
        assert (await look_up(node)).broker == target
        await node.operations.unload(UNIT, target)  # it is there already
        assert owner_of(node) == target

    run(test)


def test_unload_frees_the_bundle_and_does_nothing_to_a_free_one() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await node.operations.unload(UNIT)
        await look_up(node)
        await node.operations.unload(UNIT)
        unit = node.view.unit(UNIT)
        assert unit is not None
        assert unit.state is UnitState.FREE

    run(test)


def test_a_destination_that_does_not_take_part_is_a_conflict() -> None:
    async def test(cluster: MemoryCluster) -> None:
        with pytest.raises(ConflictError, match="inactive destination broker: b9:1 is not one of"):
            await cluster.nodes[0].operations.unload(UNIT, "b9:1")

    run(test)


def test_a_destination_that_drains_is_a_conflict() -> None:
    async def test(cluster: MemoryCluster) -> None:
        leaving, node = cluster.nodes[2], cluster.nodes[0]
        leaving.runtime.drain()
        await until(lambda: leaving.id not in node.operations.brokers())
        with pytest.raises(ConflictError, match="inactive destination broker"):
            await node.operations.unload(UNIT, leaving.id)

    run(test)


@pytest.mark.parametrize(
    ("unit", "error", "words"),
    [
        (
            "public/none/0x00000000_0x40000000",
            NotFoundError,
            "Namespace public/none does not exist",
        ),
        ("public/default/0x00000000_0x10000000", PreconditionError, "Cannot find bundle 0x00"),
        ("public/default/zero", PreconditionError, "Cannot find bundle zero"),
    ],
)
def test_a_bundle_that_is_not_there_is_named(unit: str, error: type, words: str) -> None:
    async def test(cluster: MemoryCluster) -> None:
        for operation in (cluster.nodes[0].operations.unload, cluster.nodes[0].operations.split):
            with pytest.raises(error, match=words):
                await operation(unit)

    run(test)


def test_a_split_makes_two_bundles_of_one_even_if_nobody_owned_it() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        children = await node.operations.split(UNIT)
        assert children == (
            "public/default/0x00000000_0x20000000",
            "public/default/0x20000000_0x40000000",
        )
        ranges = [part for part, _ in node.operations.bundles(HOME)]
        assert ranges[:2] == ["0x00000000_0x20000000", "0x20000000_0x40000000"]
        assert len(ranges) == 5
        for other in cluster.nodes:
            await caught_up(other, cluster)
            assert (await look_up(other)).broker == owner_of(node, children[1])

    run(test)


def test_a_split_at_positions_with_unload_leaves_the_children_free() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        children = await node.operations.split(UNIT, [0x100, 0x200], unload=True)
        units = [node.view.unit(child) for child in children]
        assert [unit.state for unit in units if unit] == [UnitState.FREE] * 3

    run(test)


def test_a_split_outside_the_bundle_or_of_a_single_hash_is_refused() -> None:
    async def test(cluster: MemoryCluster) -> None:
        operations = cluster.nodes[0].operations
        with pytest.raises(PreconditionError, match="cuts must ascend"):
            await operations.split(UNIT, [0x50000000])
        first, _ = await operations.split(UNIT, [1])
        with pytest.raises(PreconditionError, match="single hash"):
            await operations.split(first)

    run(test)


def test_unloading_a_namespace_unloads_every_bundle_of_it() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await asyncio.gather(
            *(look_up(node, f"persistent://public/default/t{n}") for n in range(100))
        )
        await node.operations.unload_namespace(HOME)
        assert all(unit.state is UnitState.FREE for _, unit in node.operations.bundles(HOME))
        with pytest.raises(NotFoundError, match="Namespace public/none does not exist"):
            await node.operations.unload_namespace(Namespace("public/none"))

    run(test)


def test_tenants_are_created_changed_and_deleted_with_pulsars_answers() -> None:
    async def test(cluster: MemoryCluster) -> None:
        operations = cluster.nodes[0].operations
        await operations.tenancy.create_tenant("acme", ["admin"], ["standalone"])
        with pytest.raises(ConflictError, match="already exists"):
            await operations.tenancy.create_tenant("acme", [], ["standalone"])
        await operations.tenancy.update_tenant("acme", ["a", "b"], ["standalone"])
        assert operations.tenancy.tenant("acme").admin_roles == ("a", "b")
        await operations.tenancy.create_namespace(Namespace("acme/orders"))
        with pytest.raises(ConflictError, match="active namespaces"):
            await operations.tenancy.delete_tenant("acme")
        await operations.delete_namespace(Namespace("acme/orders"))
        await operations.tenancy.delete_tenant("acme")
        assert operations.tenancy.tenants() == ["public"]
        for operation in (operations.tenancy.delete_tenant("acme"), operations.tenancy.tenant):
            with pytest.raises(NotFoundError, match="Tenant acme does not exist"):
                await operation if asyncio.iscoroutine(operation) else operation("acme")
        with pytest.raises(PreconditionError, match="Clusters can not be empty"):
            await operations.tenancy.create_tenant("acme", [], [])
        with pytest.raises(PreconditionError, match=r"Clusters \[other\] do not exist"):
            await operations.tenancy.create_tenant("acme", [], ["other"])

    run(test)


def test_namespaces_are_created_with_their_bundles_and_deleted_even_if_owned() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        home = Namespace("public/orders")
        await node.operations.tenancy.create_namespace(home, 7)
        assert len(node.operations.bundles(home)) == 7
        with pytest.raises(ConflictError, match="already exists"):
            await node.operations.tenancy.create_namespace(home)
        with pytest.raises(NotFoundError, match="Tenant none does not exist"):
            await node.operations.tenancy.create_namespace(Namespace("none/orders"))
        with pytest.raises(PreconditionError, match="Invalid number of bundles"):
            await node.operations.tenancy.create_namespace(Namespace("public/big"), 100_000)
        await look_up(node, f"{home}/t")
        await node.operations.delete_namespace(home)
        assert node.operations.tenancy.namespaces("public") == ["public/default"]
        with pytest.raises(NotFoundError, match="Namespace public/orders does not exist"):
            await look_up(node, f"{home}/t")

    run(test)


def test_a_dead_owner_is_not_named_and_its_bundles_go_to_others() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await asyncio.gather(
            *(look_up(node, f"persistent://public/default/t{n}") for n in range(100))
        )
        dead = next(n for n in cluster.nodes if n.id == owner_of(node))
        living = [n for n in cluster.nodes if n is not dead]
        dead.connected = False
        await until(lambda: not living[0].operations.owned(dead.id))
        for other in living:
            await caught_up(other, cluster)
            assert (await look_up(other)).broker != dead.id
            assert dead.id not in other.operations.brokers()

    run(test)


def test_without_the_log_known_owners_are_answered_as_stale_and_the_rest_is_refused() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        known = await look_up(node)
        node.connected = False
        await until(lambda: node.operations.position().mode == "safe")
        assert (await look_up(node)).stale
        assert (await look_up(node)).broker == known.broker
        free = next(
            f"persistent://public/default/t{n}" for n in range(100) if not _located(node, n)
        )
        with pytest.raises(UnavailableError, match="safe mode"):
            await look_up(node, free)
        for target in ("", node.id):
            with pytest.raises(UnavailableError, match="safe mode"):
                await node.operations.unload(UNIT, target)
        with pytest.raises(UnavailableError, match="safe mode"):
            await node.operations.tenancy.create_tenant("acme", [], ["standalone"])
        node.connected = True
        await until(lambda: node.operations.position().mode == "serving")
        assert not (await look_up(node, free)).stale

    run(test)


def _located(node: MemoryNode, number: int) -> Located | None:
    topic, home = parse_topic(f"persistent://public/default/t{number}")
    return node.operations.lookups.locate_cached(topic, home)


def test_a_failed_append_is_repeated_and_counted_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        node.failing = 1
        await node.operations.tenancy.create_tenant("acme", [], ["standalone"])
        assert [e for e in cluster.entries if e.key == b"tenant:acme"].__len__() == 1

    run(test)


def test_a_lookup_that_nobody_can_answer_ends_at_its_deadline() -> None:
    async def test(cluster: MemoryCluster) -> None:
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

    run(test, lookupTimeoutMillis=1_000, leaseMillis=6_000, livenessTimeoutMillis=9_000)


def test_a_lookup_says_that_policies_leave_no_broker() -> None:
    async def test(cluster: MemoryCluster) -> None:
        operations = cluster.nodes[0].operations
        nobody = IsolationPolicy(("public/.*",), ("not-here",))
        await operations.placements.set_isolation("gold", nobody)
        topic, home = parse_topic(TOPIC)
        left = "of 3 that are in service broker_isolation_policies_filter leaves none"
        with pytest.raises(DeadlineExceededError, match=left):
            await operations.lookups.lookup(topic, home)

    run(test, lookupTimeoutMillis=500)


def test_a_graceful_stop_gives_everything_away_before_it_ends() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node, leaving = cluster.nodes[0], cluster.nodes[1]
        await asyncio.gather(
            *(look_up(node, f"persistent://public/default/t{n}") for n in range(100))
        )
        leaving.runtime.drain()
        ended = await asyncio.wait_for(leaving.runtime.ended, WAIT_S)
        assert ended.clean
        assert not node.operations.owned(leaving.id)
        bundles = node.operations.bundles(HOME)
        assert all(unit.state is UnitState.OWNED for _, unit in bundles)

    run(test)


def test_an_unreadable_entry_changes_nothing_and_is_counted_by_every_node() -> None:
    async def test(cluster: MemoryCluster) -> None:
        digest = cluster.nodes[0].view.digest
        cluster.append_raw(b"junk", b"\x00junk")
        name = "anabranch_unreadable_records_total"
        await until(
            lambda: all(n.metrics.registry.get_sample_value(name) == 1 for n in cluster.nodes)
        )
        assert cluster.nodes[0].view.digest == digest

    run(test)


def test_a_second_process_of_one_broker_ends_the_first() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.start(cluster.node(1))
        ended = await asyncio.wait_for(cluster.nodes[0].runtime.ended, WAIT_S)
        assert not ended.clean
        assert "fenced" in ended.reason

    run(test)


def test_a_node_with_other_settings_than_the_cluster_ends_and_names_them() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.node(4, clusterName="other", leaseMillis=1_510)
        cluster.nodes.append(node)
        node.pump()
        node.runtime.joined()
        ended = await asyncio.wait_for(node.runtime.ended, WAIT_S)
        assert "clusterName is 'standalone', not 'other'" in ended.reason
        assert "leaseMillis is 1500, not 1510" in ended.reason

    run(test)


def test_nodes_whose_states_differ_raise_the_alarm() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        node.view.digest = type(node.view.digest)(1)
        await node.operations.tenancy.create_tenant("acme", [], ["standalone"])
        name = "anabranch_digest_mismatch_total"
        await until(lambda: bool(node.metrics.registry.get_sample_value(name)))

    run(test)


def test_a_record_that_the_log_cannot_take_is_answered_at_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        node.failing, node.failure = 1, AppendFailedError("the message is too large")
        with pytest.raises(UnavailableError, match="too large"):
            await node.operations.tenancy.create_tenant("acme", [], ["standalone"])

    run(test)
