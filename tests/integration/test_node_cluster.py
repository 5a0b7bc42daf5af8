import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.broker.bundles.lookups import Located
from anabranch.broker.errors import StartError, UnavailableError
from anabranch.broker.node.node import Node
from anabranch.broker.node.startup import check_not_in_use
from anabranch.channel.errors import LogTrimmedError, NewerSchemaError
from anabranch.channel.heartbeats import KafkaHeartbeats
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.channel.log.kafka_log import KafkaLogWriter
from anabranch.channel.snapshots.compactor import Compactor
from anabranch.core.entities.unit import UnitState
from anabranch.core.names import Namespace, parse_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.projections.errors import ViewLogError
from support.kafka_cluster import KafkaCluster, kafka_cluster
from support.memory_cluster import until
from support.there import there
from support.waiting import WAIT_S

HOME = Namespace("public/default")
UNIT = "public/default/0x00000000_0x40000000"
TOPIC = "persistent://public/default/topic-1"  # in UNIT


async def look_up(node: Node, topic: str = TOPIC) -> Located:
    return await node.operations.lookups.lookup(*parse_topic(topic))


async def look_up_all(node: Node) -> set[str]:
    found = await asyncio.gather(*(look_up(node, f"{HOME}/t{n}") for n in range(200)))
    return {located.broker for located in found}


def named(node: Node) -> str:
    return node.settings.broker_id


@pytest.mark.parametrize("count", [1])
async def test_a_second_node_of_the_same_broker_id_does_not_start(
    nodes: KafkaCluster, tmp_path: Path
) -> None:
    node = nodes.nodes[0]
    twin = nodes.settings(
        webServicePort=node.settings.web_service_port, dataDir=str(tmp_path / "twin")
    )
    with pytest.raises(StartError, match=f"broker id {named(node)} is in use"):
        await nodes.start(twin)
    assert not node.runtime.ended.done()


@pytest.mark.parametrize("count", [1])
async def test_a_predecessor_with_an_open_session_is_waited_for_as_long_as_its_lease(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    node = nodes.nodes[0]
    connection = KafkaConnection(kafka.bootstrap_servers)
    elsewhere = Topics(f"{topic_prefix}other.")
    await asyncio.to_thread(ensure_topics, connection, elsewhere, TopicSettings(), WAIT_S)
    quiet = KafkaHeartbeats(connection, elsewhere)
    assert node._view is not None
    asked = time.monotonic()
    assert check_not_in_use(named(node), node._view, quiet, 1.0, asked) == []
    assert time.monotonic() - asked >= 1.0
    assert check_not_in_use("nobody:1", node._view, quiet, 60.0, time.monotonic()) == []
    quiet.close()


@pytest.mark.parametrize("count", [1])
async def test_a_view_of_another_log_is_refused_at_the_start(
    nodes: KafkaCluster, topic_prefix: str
) -> None:
    node = nodes.nodes[0]
    await look_up(node)
    await nodes.crash(node)
    settings = node.settings.but({"topic_prefix": f"{topic_prefix}other."})
    with pytest.raises(ViewLogError, match=r"topic id .* has topic id .*delete the folder"):
        await nodes.start(settings)
    await nodes.start(node.settings)


@pytest.mark.parametrize("count", [2])
async def test_a_node_with_a_damaged_view_puts_it_aside_and_builds_the_state_of_the_others(
    nodes: KafkaCluster,
) -> None:
    node, witness = nodes.nodes
    await look_up_all(witness)
    for files in ("MANIFEST-*", "CURRENT", "*.log", "*.sst", "LOCK"):
        there(node._view)._store.flush()
        await node.stop()
        await nodes.crash(node)
        for file in (node.settings.view_dir / "view-000000").glob(files):
            file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))
        node = await nodes.start(node.settings)
        await look_up(node)
        await nodes.caught_up()
        positions = [each.operations.position() for each in nodes.nodes]
        assert positions[0].digest == positions[1].digest
    kept = sorted(path.name for path in node.settings.data_dir.iterdir())
    # Bytes of RocksDB's log count for nothing from the damaged one on, and LOCK has none.
    assert kept == ["view", "view.damaged-2", "view.damaged-3"]


@pytest.mark.parametrize("count", [0])
async def test_a_compactor_that_is_fenced_does_no_harm_to_its_node(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    node = await nodes.start(nodes.settings(snapshotIntervalSeconds=0.2))
    await look_up(node)
    await until(lambda: node.operations.position().horizon > 0, WAIT_S)
    rival = Compactor(KafkaConnection(kafka.bootstrap_servers), Topics(topic_prefix))
    await asyncio.to_thread(rival.begin)
    await node.operations.unload(UNIT)
    registry = node.metrics.registry
    await until(
        lambda: bool(registry.get_sample_value("anabranch_snapshots_total", {"result": "fenced"})),
        WAIT_S,
    )
    assert (await look_up(node)).broker == named(node)
    rival.close()


@pytest.mark.parametrize("count", [1])
async def test_an_entry_of_a_newer_schema_stops_the_node_with_the_remedy(
    nodes: KafkaCluster, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
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
    offset = int(there(re.search(r"offset (\d+) of the log", ended.reason))[1])
    await nodes.crash(node)
    again = await nodes.start(nodes.settings(passedOverLogOffsets=f"7000,{offset}"))
    assert again.runtime.view.next_offset > offset


# --- without Kafka --------------------------------------------------------------------------------


KNOWN, NAMESPACE = parse_topic("persistent://public/default/topic-1")


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One that a test may stop, and starts again."""
    with EmbeddedKafka(tmp_path_factory.mktemp("own")) as node:
        yield node


def mode(node: Node) -> str:
    return node.operations.position().mode


async def test_without_kafka_nodes_answer_in_safe_mode_and_recover_when_it_is_back(
    own_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    async with kafka_cluster(own_kafka, "outage.", tmp_path) as cluster:
        nodes = cluster.nodes
        node = nodes[0]
        await node.operations.tenancy.create_namespace(Namespace("public/idle"), 4)
        known = await node.operations.lookups.lookup(KNOWN, NAMESPACE)
        await cluster.caught_up()
        await asyncio.to_thread(own_kafka.stop)

        await until(lambda: {mode(n) for n in nodes} == {"safe"}, WAIT_S)
        for other in nodes:
            stale = await other.operations.lookups.lookup(KNOWN, NAMESPACE)
            assert stale.stale
            assert stale.broker == known.broker
            with pytest.raises(UnavailableError, match="safe mode"):
                await other.operations.lookups.lookup(
                    *parse_topic("persistent://public/idle/topic")
                )
            with pytest.raises(UnavailableError, match="safe mode"):
                await other.operations.tenancy.create_tenant("acme", [], ["standalone"])
        before = node.operations.bundles(HOME)

        await asyncio.to_thread(own_kafka.start)
        await until(lambda: {mode(n) for n in nodes} == {"serving"}, WAIT_S)
        await cluster.agreed()
        # Nothing was moved because of the outage: every owner came back.
        assert node.operations.bundles(HOME) == before
        assert (await node.operations.lookups.lookup(KNOWN, NAMESPACE)) == known
        await node.operations.tenancy.create_tenant("acme", [], ["standalone"])
        await node.operations.unload_namespace(HOME)
        assert {unit.state for _, unit in node.operations.bundles(HOME)} == {UnitState.FREE}
        assert all(not n.runtime.ended.done() for n in nodes)


@pytest.mark.long
async def test_a_view_that_is_rebuilt_while_kafka_is_away_waits_for_it(
    own_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    async with kafka_cluster(own_kafka, "rebuild.", tmp_path, count=1) as cluster:
        node = cluster.nodes[0]
        known = await node.operations.lookups.lookup(KNOWN, NAMESPACE)
        reader = node._reader
        await asyncio.to_thread(own_kafka.stop)
        assert node._wal is not None
        node._wal.stop()  # as a feed that has failed
        node._failed(LogTrimmedError("rebuild.wal", 1, 2))
        await until(lambda: mode(node) == "safe", WAIT_S)
        stale = await node.operations.lookups.lookup(KNOWN, NAMESPACE)
        assert (stale.stale, stale.broker) == (True, known.broker)

        await asyncio.to_thread(own_kafka.start)
        await until(lambda: mode(node) == "serving", WAIT_S)
        assert node._reader is not reader
        assert not node.runtime.ended.done()
        assert (await node.operations.lookups.lookup(KNOWN, NAMESPACE)).broker == known.broker


@pytest.mark.long
async def test_a_stop_while_kafka_is_away_ends_at_its_deadline(
    own_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    async with kafka_cluster(own_kafka, "stop.", tmp_path, count=0) as cluster:
        node = await cluster.start(cluster.settings(brokerShutdownTimeoutMs=500))
        await node.operations.lookups.lookup(KNOWN, NAMESPACE)
        await asyncio.to_thread(own_kafka.stop)
        ended = await node.stop()
        await asyncio.to_thread(own_kafka.start)
        assert not ended.clean
        assert "1 bundles were not handed over within brokerShutdownTimeoutMs" in ended.reason
