"""A node in the test's process, a topic, and nodes beside it that end at a point of their work."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.node import Node
from anabranch.core.bundles.guards import controller_of
from anabranch.devkit.ports import free_port
from anabranch.wire.server.server import serve
from support import doomed_node
from support.doomed_node import Point
from support.kafka_cluster import HOST, KafkaCluster
from support.memory_cluster import until
from support.node_process import NodeProcess, node_process
from support.topic_cluster import Servers
from support.waiting import WAIT_S


class LocalTopic:
    """A node in this process with a topic, and one that will end at its point."""

    topic = "public/default/orders"

    def __init__(self, cluster: KafkaCluster, node: Node) -> None:
        self.node = node
        self._cluster = cluster

    @asynccontextmanager
    async def controller(self, point: Point) -> AsyncIterator[NodeProcess]:
        """The doomed node, which controls the topic."""
        settings = self._cluster.settings(brokerServicePort=0)
        # Beside the file are modules named like those of the standard library.
        context = node_process(settings, (sys.executable, "-P", doomed_node.__file__, point.name))
        process = await asyncio.to_thread(context.__enter__)
        try:
            await until(lambda: process.id in self.node.operations.brokers(), WAIT_S)
            unit, holder = controller_of(self.node.runtime.view, self.topic)
            if holder != process.id:
                await self.node.operations.unload(unit, process.id)
            yield process
        finally:
            await asyncio.to_thread(process.kill)

    async def asked(self, point: Point, method: str, path: str = "") -> None:
        """Asks the doomed node for it, and waits until the process has ended and the work is done
        all the same.
        """
        view = self.node.runtime.view
        async with self.controller(point) as victim, httpx.AsyncClient(timeout=WAIT_S) as http:
            request = asyncio.create_task(
                http.request(method, f"{victim.url}/admin/v2/scalable/{self.topic}{path}")
            )
            await until(lambda: victim.process.poll() is not None, WAIT_S)
            await asyncio.gather(request, return_exceptions=True)

        def rests() -> bool:
            topic = view.topic(self.topic)
            return topic is None or not topic.is_restless

        await until(rests, WAIT_S)


@asynccontextmanager
async def local_topic(
    kafka: Servers, prefix: str, folder: Path, segments: int = 2, **settings: object
) -> AsyncIterator[LocalTopic]:
    """A node in this process that clients reach too, and a topic with so many segments."""
    cluster = KafkaCluster(kafka, prefix, folder)
    port = free_port(HOST)
    node = await cluster.start(cluster.settings(brokerServicePort=port, **settings))
    wire = await serve(sessions(node.operations, node.settings), host=HOST, port=port)
    try:
        await cluster.agreed()
        await node.operations.topics.create(LocalTopic.topic, segments, {})
        yield LocalTopic(cluster, node)
    finally:
        await wire.stop()
        await asyncio.gather(*(each.close() for each in cluster.nodes))
