"""A node in the test's process, a topic, and nodes beside it that end at a point of their work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.node.node import Node
from anabranch.broker.settings import Settings
from anabranch.broker.settings.fields import text_of
from anabranch.channel.segments.sealing import nothing
from anabranch.core.bundles.guards import controller_of
from anabranch.devkit.ports import free_port
from support import doomed_node
from support.doomed_node import Point
from support.kafka_cluster import HOST, KafkaCluster
from support.memory_cluster import until
from support.processes import COMMAND, STOP_S_MAX, awaited
from support.topic_cluster import Servers
from support.waiting import WAIT_S
from support.wire import serve


class NodeProcess:
    """A running `anabranch node` with these settings; its port is theirs."""

    def __init__(self, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        self.id = settings.broker_id
        self.url = settings.web_url
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.output = settings.data_dir / "node.out"
        given = {
            each.name: text_of(getattr(settings, field))
            for field, each in settings.fields.items()
            if field in settings.given
        }
        named = {f"ANABRANCH_{name}": str(value) for name, value in given.items()}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "node", "--end-with-parent"],
                env={**os.environ, **named},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def await_ready(self) -> None:
        """Returns once the node serves."""

        def answer() -> httpx.Response | None:
            with suppress(httpx.TransportError):
                found = httpx.get(f"{self.url}/readyz", timeout=5)
                return found if found.status_code == 200 else None
            return None

        awaited(answer, self.process, self.text)

    def text(self) -> str:
        """What it has written."""
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: it tells nobody."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S_MAX)
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def node_process(settings: Settings, command: Sequence[str] = COMMAND) -> Iterator[NodeProcess]:
    """A node that is ready, for as long as the block runs or until it is killed."""
    node = NodeProcess(settings, command)
    try:
        node.await_ready()
        yield node
    finally:
        node.kill()


class LocalTopic:
    """A node in this process with a topic, and one that will end at its point."""

    topic = "public/default/orders"

    def __init__(self, cluster: KafkaCluster, node: Node, settings: Mapping[str, object]) -> None:
        self.node = node
        self._cluster = cluster
        self._settings = settings

    @asynccontextmanager
    async def controller(self, point: Point) -> AsyncIterator[NodeProcess]:
        """The doomed node, which controls the topic."""
        settings = self._cluster.settings(**{**self._settings, "brokerServicePort": 0})
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

    async def asked(
        self, point: Point, method: str, path: str = "", when_dead: Callable[[], None] = nothing
    ) -> None:
        """Asks a doomed node for it, as `asked_of`."""
        async with self.controller(point) as victim:
            await self.asked_of(victim, method, path, when_dead)

    async def asked_of(
        self,
        victim: NodeProcess,
        method: str,
        path: str = "",
        when_dead: Callable[[], None] = nothing,
    ) -> None:
        """Asks the doomed node for it, and waits until the process has ended and the work is done
        all the same. `when_dead` is called in between, in a thread.
        """
        view = self.node.runtime.view
        async with httpx.AsyncClient(timeout=WAIT_S) as http:
            request = asyncio.create_task(
                http.request(method, f"{victim.url}/admin/v2/scalable/{self.topic}{path}")
            )
            await until(lambda: victim.process.poll() is not None, WAIT_S)
            await asyncio.to_thread(when_dead)
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
    wire = await serve(sessions(node.operations, node.settings), port)
    try:
        await cluster.agreed()
        await node.operations.topics.create(LocalTopic.topic, segments, {})
        yield LocalTopic(cluster, node, settings)
    finally:
        await wire.stop()
        await asyncio.gather(*(each.close() for each in cluster.nodes))
