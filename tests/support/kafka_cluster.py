"""Whole nodes on a real Kafka, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from confluent_kafka import TopicPartition

from anabranch.broker.node.node import Node
from anabranch.broker.settings import Settings, load_settings
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.ports import free_port
from support.memory_cluster import until
from support.topic_cluster import Servers
from support.waiting import WAIT_S

HOST = "127.0.0.1"
# Short, so that a node that is gone is soon missed, but longer than a machine stands still: else a
# node without a lease would refuse what a test asks of it.
TIMES = {"heartbeatIntervalMillis": 200, "leaseMillis": 6_000, "livenessTimeoutMillis": 7_500}
# Nodes of one machine all have its load: chance must not say where bundles go.
EVENLY = {"loadBalancerAverageResourceUsageDifferenceThresholdPercentage": 1000}


class KafkaCluster:
    """Nodes that share a topic prefix; all that still run are closed at the end."""

    def __init__(self, kafka: Servers, prefix: str, data_dir: Path) -> None:
        self._kafka = kafka
        self._prefix = prefix
        self._data_dir = data_dir
        self.nodes: list[Node] = []

    def settings(self, **settings: object) -> Settings:
        """Those of one more node, on a free port, with a data directory of its own."""
        port = settings.pop("webServicePort", free_port(HOST))
        named = {
            "bootstrapServers": self._kafka.bootstrap_servers,
            "topicPrefix": self._prefix,
            "replicationFactor": 1,
            "minInsyncReplicas": 1,
            "advertisedAddress": HOST,
            "webServicePort": port,
            "dataDir": str(self._data_dir / str(port)),
            **TIMES,
            **EVENLY,
            **settings,
        }
        return load_settings(None, {}, named)

    async def start(self, settings: Settings | None = None) -> Node:
        """One more node that serves."""
        node = Node(settings or self.settings())
        await node.start()
        self.nodes.append(node)
        return node

    async def crash(self, node: Node) -> None:
        """The node is gone, and tells nobody."""
        self.nodes.remove(node)
        await node.close()

    async def agreed(self) -> None:
        """Waits until all nodes know each other and the leader."""
        ids = {node.settings.broker_id for node in self.nodes}
        await until(
            lambda: all(
                set(node.operations.brokers()) == ids and node.operations.leader() in ids
                for node in self.nodes
            ),
            WAIT_S,
        )

    async def caught_up(self) -> None:
        """Waits until all nodes have folded as far as any of them has by now."""
        offset = max(node.operations.position().next_offset for node in self.nodes)
        await until(
            lambda: all(n.operations.position().next_offset >= offset for n in self.nodes), WAIT_S
        )


@asynccontextmanager
async def kafka_cluster(
    kafka: EmbeddedKafka, prefix: str, data_dir: Path, count: int = 3, **settings: object
) -> AsyncIterator[KafkaCluster]:
    """`count` nodes that serve and know each other; `settings`: of all of them."""
    cluster = KafkaCluster(kafka, prefix, data_dir)
    try:
        for _ in range(count):
            await cluster.start(cluster.settings(**settings))
        await cluster.agreed()
        yield cluster
    finally:
        await asyncio.gather(*(node.close() for node in cluster.nodes))


def first_offset(kafka: EmbeddedKafka, prefix: str) -> int:
    """Where the log begins."""
    consumer = KafkaConnection(kafka.bootstrap_servers).consumer()
    found = consumer.get_watermark_offsets(TopicPartition(Topics(prefix).wal, 0), WAIT_S)
    consumer.close()
    assert found is not None
    return int(found[0])
