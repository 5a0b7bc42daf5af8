import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.broker.errors import UnavailableError
from anabranch.broker.node import Node
from anabranch.channel.errors import LogTrimmedError
from anabranch.core.bundles.unit import UnitState
from anabranch.core.names import Namespace, parse_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.kafka_cluster import kafka_cluster
from support.memory_cluster import until
from support.waiting import WAIT_S

HOME = Namespace("public/default")
TOPIC, NAMESPACE = parse_topic("persistent://public/default/topic-1")


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
        known = await node.operations.lookups.lookup(TOPIC, NAMESPACE)
        await cluster.caught_up()
        await asyncio.to_thread(own_kafka.stop)

        await until(lambda: {mode(n) for n in nodes} == {"safe"}, WAIT_S)
        for other in nodes:
            stale = await other.operations.lookups.lookup(TOPIC, NAMESPACE)
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
        assert (await node.operations.lookups.lookup(TOPIC, NAMESPACE)) == known
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
        known = await node.operations.lookups.lookup(TOPIC, NAMESPACE)
        reader = node._reader
        await asyncio.to_thread(own_kafka.stop)
        assert node._wal is not None
        node._wal.stop()  # as a feed that has failed
        node._failed(LogTrimmedError("rebuild.wal", 1, 2))
        await until(lambda: mode(node) == "safe", WAIT_S)
        stale = await node.operations.lookups.lookup(TOPIC, NAMESPACE)
        assert (stale.stale, stale.broker) == (True, known.broker)

        await asyncio.to_thread(own_kafka.start)
        await until(lambda: mode(node) == "serving", WAIT_S)
        assert node._reader is not reader
        assert not node.runtime.ended.done()
        assert (await node.operations.lookups.lookup(TOPIC, NAMESPACE)).broker == known.broker


@pytest.mark.long
async def test_a_stop_while_kafka_is_away_ends_at_its_deadline(
    own_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    async with kafka_cluster(own_kafka, "stop.", tmp_path, count=0) as cluster:
        node = await cluster.start(cluster.settings(brokerShutdownTimeoutMs=500))
        await node.operations.lookups.lookup(TOPIC, NAMESPACE)
        await asyncio.to_thread(own_kafka.stop)
        ended = await node.stop()
        await asyncio.to_thread(own_kafka.start)
        assert not ended.clean
        assert "1 bundles were not handed over within brokerShutdownTimeoutMs" in ended.reason
