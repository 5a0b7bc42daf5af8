"""The controller is killed at each step of an operation, while producers and a consumer go on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.node import Node
from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.channel.embedded.ports import free_port
from anabranch.client import Client, StreamConsumer
from anabranch.core.topic_guards import controller_of
from anabranch.wire.server import serve
from support import doomed_node
from support.doomed_node import Point
from support.kafka_cluster import HOST, WAIT_S, KafkaCluster
from support.memory_cluster import until
from support.node_process import NodeProcess, node_process
from support.traffic import Traffic, stored, wrong

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_NAME = "public/default/orders"
_REST = f"/admin/v2/scalable/{_NAME}"
_KEYS = [b"key-%d" % number for number in range(60)]


class Stage:
    """A node in this process with a topic, and one that will end at its point."""

    def __init__(self, cluster: KafkaCluster, node: Node) -> None:
        self.node = node
        self._cluster = cluster

    @asynccontextmanager
    async def controller(self, point: Point) -> AsyncIterator[NodeProcess]:
        """The doomed node, which controls the topic."""
        settings = self._cluster.settings(brokerServicePort=0)
        # Beside the file are modules named like those of the standard library.
        command = (sys.executable, "-P", doomed_node.__file__, point.name)
        context = node_process(settings, command)
        process = await asyncio.to_thread(context.__enter__)
        try:
            await until(lambda: process.id in self.node.operations.brokers(), WAIT_S)
            unit, holder = controller_of(self.node.runtime.view, _NAME)
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
            request = asyncio.create_task(http.request(method, f"{victim.url}{_REST}{path}"))
            await until(lambda: victim.process.poll() is not None, WAIT_S)
            await asyncio.gather(request, return_exceptions=True)

        def rests() -> bool:
            topic = view.topic(_NAME)
            return topic is None or not topic.is_restless

        await until(rests, WAIT_S)


@asynccontextmanager
async def stage(kafka: EmbeddedKafka, prefix: str, folder: Path) -> AsyncIterator[Stage]:
    cluster = KafkaCluster(kafka, prefix, folder)
    node = await cluster.start(cluster.settings(brokerServicePort=free_port(HOST)))
    routes = sessions(node.operations, node.settings)
    wire = await serve(routes, host=HOST, port=node.settings.broker_service_port)
    try:
        await cluster.agreed()
        await node.operations.topics.create(_NAME, 2, {})
        yield Stage(cluster, node)
    finally:
        await wire.stop()
        await asyncio.gather(*(each.close() for each in cluster.nodes))


async def _receive(consumer: StreamConsumer, into: dict[bytes, list[bytes]]) -> None:
    while True:
        batch = await consumer.receive_many()
        for message in batch:
            key, value = message.key or b"", message.value
            if value not in into[key]:  # at least once
                into[key].append(value)
        consumer.acknowledge(batch)


@pytest.mark.parametrize(
    ("point", "path", "active"),
    [
        (Point.BEGIN_LOGGED, "/split/0", {1, 2, 3}),
        (Point.CHILDREN_MADE, "/merge/0/1", {2}),
        (Point.SEALING_LOGGED, "/rebucket/0?bucketCount=3", {1, 2}),
        (Point.LIMIT_SET, "/merge/0/1", {2}),
        (Point.ONE_PARTITION_REFUSES, "/split/0", {1, 2, 3}),
        (Point.ENDS_KNOWN, "/merge/0/1", {2}),
    ],
)
def test_the_next_controller_goes_on_under_load(
    kafka: EmbeddedKafka,
    topic_prefix: str,
    tmp_path: Path,
    point: Point,
    path: str,
    active: set[int],
) -> None:
    async def test() -> None:
        async with (
            stage(kafka, topic_prefix, tmp_path) as at,
            Client(at.node.settings.service_url) as client,
        ):
            producer = await client.create_producer(_NAME)
            consumer = await client.subscribe(_NAME, "billing")
            received: dict[bytes, list[bytes]] = defaultdict(list)
            receiving = asyncio.create_task(_receive(consumer, received))
            traffic = Traffic(producer, _KEYS, 0.01)
            await at.asked(point, "POST", path)
            sent = await traffic.stop()
            topic = at.node.runtime.view.topic(_NAME)
            assert topic is not None
            assert {part.segment_id for part in topic.segments if part.is_active} == active
            await until(lambda: not producer.layout.children, WAIT_S)  # the watch may be behind
            found = await asyncio.to_thread(stored, kafka.bootstrap_servers, producer.layout)
            assert wrong(found, sent) == []
            await until(lambda: received == sent, WAIT_S)
            receiving.cancel()

    asyncio.run(test())


def test_a_seek_whose_controller_dies_before_it_is_done_loses_nothing_and_can_be_tried_again(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    values = [b"%d" % number for number in range(20)]

    async def test() -> None:
        async with (
            stage(kafka, topic_prefix, tmp_path) as at,
            Client(at.node.settings.service_url) as client,
        ):
            producer = await client.create_producer(_NAME)
            consumer = await client.subscribe(_NAME, "billing")

            async def received(count: int) -> list[bytes]:
                found: list[bytes] = []
                while len(found) < count:
                    message = await consumer.receive(WAIT_S)
                    found.append(message.value)
                    consumer.acknowledge(message)
                return found

            now = round(time.time() * 1000)
            for number, value in enumerate(values):
                await producer.send(value, b"key", event_time_ms=now + number)
            assert await received(20) == values
            await at.asked(
                Point.RESET_LOGGED, "POST", f"/subscriptions/billing/seek?timestamp={now + 7}"
            )
            assert await received(20) == values, "it begins at the earliest message"
            await at.node.operations.topics.reading.resets.reset(_NAME, "billing", now + 7)
            assert await received(13) == values[7:]
            await consumer.close()

    asyncio.run(test())


@pytest.mark.parametrize("point", [Point.REMOVAL_LOGGED, Point.TOPICS_DELETED])
def test_the_next_controller_finishes_a_deletion(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, point: Point
) -> None:
    async def test() -> None:
        async with stage(kafka, topic_prefix, tmp_path) as at:
            await at.asked(point, "DELETE")
            await until(lambda: at.node.runtime.view.topic(_NAME) is None, WAIT_S)

    asyncio.run(test())
