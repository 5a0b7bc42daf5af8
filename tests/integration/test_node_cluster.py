import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import StartError
from anabranch.broker.node import Node
from anabranch.broker.operations import Operations
from anabranch.broker.startup import check_not_in_use
from anabranch.channel.errors import KafkaUnreachableError, NewerSchemaError, WrongTopicError
from anabranch.channel.heartbeats import KafkaHeartbeats
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.channel.log.kafka_log import KafkaLogWriter
from anabranch.channel.snapshots.compactor import Compactor
from anabranch.core.bundles.unit import UnitState
from anabranch.core.names import Namespace, parse_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.projections.errors import ViewLogError
from support.channel import archive_to
from support.kafka_cluster import WAIT_S, KafkaCluster, first_offset, kafka_cluster
from support.memory_cluster import until

pytestmark = pytest.mark.integration

HOME = Namespace("public/default")
UNIT = "public/default/0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT

Cluster = Callable[..., None]


@pytest.fixture
def cluster(kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path) -> Cluster:
    """Runs a test's body on a cluster of its own."""

    def run(body: Callable[[KafkaCluster], Coroutine[Any, Any, None]], count: int = 3) -> None:
        async def whole() -> None:
            async with kafka_cluster(kafka, topic_prefix, tmp_path, count) as nodes:
                await body(nodes)

        asyncio.run(whole())

    return run


async def look_up(node: Node, topic: str = TOPIC) -> Located:
    return await node.operations.lookups.lookup(*parse_topic(topic))


async def look_up_all(node: Node, home: str = HOME, count: int = 200) -> set[str]:
    found = await asyncio.gather(*(look_up(node, f"{home}/t{n}") for n in range(count)))
    return {located.broker for located in found}


async def owns_nothing(node: Node, broker: str) -> None:
    await until(lambda: not node.operations.owned(broker), WAIT_S)


def named(node: Node) -> str:
    return node.settings.broker_id


def test_every_node_assigns_and_all_answer_the_same(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        for number, node in enumerate(nodes.nodes):
            first = await look_up(node, f"public/default/each-{number}")
            for other in nodes.nodes:
                assert await look_up(other, f"public/default/each-{number}") == first

    cluster(body)


def test_what_one_node_has_just_made_every_other_node_knows_at_once(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        first, *others = nodes.nodes
        for number in range(20):
            home = Namespace(f"public/made-{number}")
            await first.operations.tenancy.create_namespace(home, 1)
            for other in others:

                async def bundles(at: Operations = other.operations, ns: Namespace = home) -> int:
                    return len(at.bundles(ns))

                assert await other.operations.decided(bundles) == 1

    cluster(body)


def test_a_transfer_reaches_every_node(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        for target in [*map(named, nodes.nodes), *map(named, nodes.nodes)]:
            await look_up(node)
            await node.operations.unload(UNIT, target)
            await nodes.caught_up()
            assert {(await look_up(other)).broker for other in nodes.nodes} == {target}

    cluster(body)


def test_a_split_and_an_unload_reach_every_node(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[1]
        children = await node.operations.split(UNIT)
        await node.operations.unload(children[0])
        done = dict(node.operations.bundles(HOME))
        assert len(done) == 5
        assert done["0x00000000_0x20000000"].state is UnitState.FREE
        assert done["0x20000000_0x40000000"].state is UnitState.OWNED
        await until(
            lambda: all(dict(other.operations.bundles(HOME)) == done for other in nodes.nodes),
            WAIT_S,
        )

    cluster(body)


def test_the_bundles_of_a_node_that_vanishes_are_served_elsewhere(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        await nodes.nodes[0].operations.tenancy.create_namespace(Namespace("public/many"), 90)
        await look_up_all(nodes.nodes[0], "public/many", 900)
        await nodes.caught_up()
        leader = nodes.nodes[0].operations.leader()
        victim = next(node for node in nodes.nodes if named(node) != leader)
        await nodes.crash(victim)
        for node in nodes.nodes:
            await owns_nothing(node, named(victim))
            assert named(victim) not in await look_up_all(node, "public/many", 900)

    cluster(body)


def test_another_node_leads_when_the_leader_vanishes(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        await look_up_all(nodes.nodes[0])
        await nodes.caught_up()
        leader = nodes.nodes[0].operations.leader()
        victim = next(node for node in nodes.nodes if named(node) == leader)
        await nodes.crash(victim)
        node = nodes.nodes[0]
        await until(lambda: node.operations.leader() in map(named, nodes.nodes), WAIT_S)
        await owns_nothing(node, leader)
        assert leader not in await look_up_all(node)

    cluster(body)


def test_a_graceful_stop_hands_every_bundle_over_first(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        await look_up_all(nodes.nodes[0])
        leaving = nodes.nodes[0]
        ended = await leaving.stop()
        assert ended.clean
        await nodes.crash(leaving)
        await nodes.caught_up()
        node = nodes.nodes[0]
        owners = {unit.broker for _, unit in node.operations.bundles(HOME)}
        assert named(leaving) not in owners
        assert all(unit.state is UnitState.OWNED for _, unit in node.operations.bundles(HOME))
        await until(lambda: node.operations.leader() in map(named, nodes.nodes), WAIT_S)

    cluster(body)


def test_a_node_that_starts_again_goes_on_with_its_view(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        await look_up_all(node)
        ended = await node.stop()
        assert ended.clean
        await nodes.crash(node)
        again = await nodes.start(node.settings)
        await nodes.agreed()
        await nodes.caught_up()
        await until(
            lambda: (
                again.operations.position().digest == nodes.nodes[0].operations.position().digest
            ),
            WAIT_S,
        )
        assert await look_up_all(again)

    cluster(body)


def test_a_second_node_of_the_same_broker_id_does_not_start(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        twin = nodes.settings(
            webServicePort=node.settings.web_service_port, dataDir=str(tmp_path / "twin")
        )
        with pytest.raises(StartError, match=f"broker id {named(node)} is in use"):
            await nodes.start(twin)
        assert not node.runtime.ended.done()

    cluster(body, 1)


def test_a_predecessor_with_an_open_session_is_waited_for_as_long_as_its_lease(
    cluster: Cluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        connection = KafkaConnection(kafka.bootstrap_servers)
        elsewhere = Topics(f"{topic_prefix}other.")
        await asyncio.to_thread(ensure_topics, connection, elsewhere, TopicSettings(), WAIT_S)
        quiet = KafkaHeartbeats(connection, elsewhere)
        assert node._view is not None
        asked = time.monotonic()
        heard = check_not_in_use(named(node), node._view, quiet, 1.0, asked)
        assert heard == []
        assert time.monotonic() - asked >= 1.0
        assert check_not_in_use("nobody:1", node._view, quiet, 60.0, time.monotonic()) == []
        quiet.close()

    cluster(body, 1)


def test_a_view_of_another_log_is_refused_at_the_start(cluster: Cluster, topic_prefix: str) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        await look_up(node)
        await nodes.crash(node)
        settings = node.settings.model_copy(update={"topic_prefix": f"{topic_prefix}other."})
        with pytest.raises(ViewLogError, match=r"topic id .* has topic id .*delete the folder"):
            await nodes.start(settings)
        await nodes.start(node.settings)

    cluster(body, 1)


def test_a_node_of_another_cluster_on_the_same_prefix_does_not_start(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        with pytest.raises(StartError, match="clusterName is 'standalone', not 'other'"):
            await nodes.start(nodes.settings(clusterName="other"))

    cluster(body, 1)


def test_a_data_directory_in_use_is_named(cluster: Cluster) -> None:
    async def body(nodes: KafkaCluster) -> None:
        taken = str(nodes.nodes[0].settings.data_dir)
        with pytest.raises(Exception, match="is in use by another process"):
            await nodes.start(nodes.settings(dataDir=taken))

    cluster(body, 1)


def test_a_snapshot_lets_the_log_be_trimmed_and_a_new_node_start_from_it(
    cluster: Cluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        quick = nodes.settings(snapshotIntervalRecords=50, snapshotIntervalSeconds=0.5)
        node = await nodes.start(quick)
        for number in range(60):
            await node.operations.tenancy.create_tenant(f"t{number}", [], ["standalone"])
        before = node.operations.position().next_offset
        archive_to(kafka, Topics(topic_prefix), before)
        await until(lambda: node.operations.position().horizon >= before, WAIT_S)
        # The next one trims what this one made trimmable at the latest.
        await node.operations.tenancy.create_tenant("last", [], ["standalone"])
        await until(lambda: first_offset(kafka, topic_prefix) >= before, WAIT_S)
        fresh = await nodes.start()
        assert fresh.operations.position().horizon >= before
        await until(
            lambda: fresh.operations.position().digest == node.operations.position().digest,
            WAIT_S,
        )
        assert "t59" in fresh.operations.tenancy.tenants()

    cluster(body, 0)


def test_without_an_archive_nothing_is_trimmed(
    cluster: Cluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2))
        await look_up_all(node)
        written = node.metrics.registry
        name = "anabranch_snapshots_total"
        await until(
            lambda: (written.get_sample_value(name, {"result": "written"}) or 0) >= 1, WAIT_S
        )
        assert first_offset(kafka, topic_prefix) == 0

    cluster(body, 0)


def test_a_compactor_that_is_fenced_does_no_harm_to_its_node(
    cluster: Cluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2))
        await look_up(node)
        await until(lambda: node.operations.position().horizon > 0, WAIT_S)
        connection = KafkaConnection(kafka.bootstrap_servers)
        rival = Compactor(connection, Topics(topic_prefix))
        await asyncio.to_thread(rival.begin)
        await node.operations.unload(UNIT)
        registry = node.metrics.registry
        await until(
            lambda: bool(
                registry.get_sample_value("anabranch_snapshots_total", {"result": "fenced"})
            ),
            WAIT_S,
        )
        assert (await look_up(node)).broker == named(node)
        rival.close()

    cluster(body, 0)


def test_an_entry_of_a_newer_schema_stops_the_node_with_the_remedy(
    cluster: Cluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        writer = KafkaLogWriter(KafkaConnection(kafka.bootstrap_servers), Topics(topic_prefix).wal)
        value = b"\xc3\x01" + b"\x07" * 8 + b"body"
        writer.append("cluster", value, ("anabranch-schema", b"unit-move/99"), lambda _: None)
        await asyncio.to_thread(writer.close)
        ended = await asyncio.wait_for(node.wait_ended(), WAIT_S)
        assert not ended.clean
        assert "upgrade this one" in ended.reason
        with pytest.raises(NewerSchemaError, match=r"upgrade this one.*passedOverLogOffsets"):
            await nodes.start()
        found = re.search(r"offset (\d+) of the log", ended.reason)
        assert found is not None
        offset = int(found[1])
        await nodes.crash(node)
        again = await nodes.start(nodes.settings(passedOverLogOffsets=f"7000,{offset}"))
        assert again.runtime.view.next_offset > offset

    cluster(body, 1)


def test_an_unreadable_entry_is_counted_and_passed_over(
    cluster: Cluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body(nodes: KafkaCluster) -> None:
        node = nodes.nodes[0]
        writer = KafkaLogWriter(KafkaConnection(kafka.bootstrap_servers), Topics(topic_prefix).wal)
        writer.append("junk", b"junk", ("x", b""), lambda _: None)
        value = b"\xc3\x01" + b"\x07" * 8 + b"body"
        writer.append("junk", value, ("anabranch-schema", b"a-strangers/1"), lambda _: None)
        await asyncio.to_thread(writer.close)
        name = "anabranch_unreadable_records_total"
        await until(lambda: node.metrics.registry.get_sample_value(name) == 2, WAIT_S)
        assert (await look_up(node)).broker == named(node)

    cluster(body, 1)


def test_an_unreachable_kafka_is_named_at_the_start(tmp_path: Path, kafka: EmbeddedKafka) -> None:
    async def body() -> None:
        nodes = KafkaCluster(kafka, "unused.", tmp_path)
        with pytest.raises(KafkaUnreachableError, match=r"127\.0\.0\.1:1 did not answer"):
            await nodes.start(nodes.settings(bootstrapServers="127.0.0.1:1"))

    asyncio.run(body())


def test_a_log_with_several_partitions_is_refused_at_the_start(
    tmp_path: Path, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    async def body() -> None:
        from confluent_kafka.cimpl import NewTopic

        admin = KafkaConnection(kafka.bootstrap_servers).admin()
        admin.create_topics([NewTopic(f"{topic_prefix}wal", 3, 1)])[f"{topic_prefix}wal"].result(30)
        nodes = KafkaCluster(kafka, topic_prefix, tmp_path)
        with pytest.raises(WrongTopicError, match="has 3 partitions, not 1"):
            await nodes.start()

    asyncio.run(body())
