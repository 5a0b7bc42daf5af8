"""Real nodes with scalable topics, for tests of the SDK: made, split and merged through REST."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from anabranch.client import Client
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.devkit.security import DevSecurity
from support.processes import EVENLY, LONG_LEASES, free_ports
from support.waiting import WAIT_S, eventually

TEST_S = 540.0  # for a hang to be told by the test that hangs
# For tests that kill a node: it is missed soon, and yet not because the machine stood still.
MISSED_SOON = ("leaseMillis=6000", "livenessTimeoutMillis=7500")
_names = (f"public/default/orders-{number}" for number in itertools.count())


class Servers(Protocol):
    """A Kafka of some kind."""

    @property
    def bootstrap_servers(self) -> str: ...


class TopicCluster:
    """Nodes on one Kafka. Any of them takes a request and sends it on."""

    def __init__(
        self,
        kafka: Servers,
        prefix: str,
        folder: Path,
        *settings: str,
        secured: DevSecurity | None = None,
    ) -> None:
        first = free_ports(2)
        self.kafka = kafka.bootstrap_servers
        self.prefix = prefix
        self.nodes = [
            NodeProcess(
                f"node-{number}",
                first + number,
                self.kafka,
                folder,
                f"topicPrefix={prefix}",
                *LONG_LEASES,
                EVENLY,
                *settings,
                secured=secured,
            )
            for number in range(2)
        ]

    @property
    def url(self) -> str:
        first, *others = (node.service_url() for node in self.nodes)
        return ",".join([first, *(url.partition("://")[2] for url in others)])

    async def call(self, method: str, path: str, **options: Any) -> Any:
        return await self.rest(method, f"/admin/v2/scalable/{path}", **options)

    async def rest(self, method: str, path: str, **options: Any) -> Any:
        asked = next(node for node in self.nodes if node.is_running)
        client = httpx.AsyncClient(base_url=asked.url, timeout=WAIT_S, follow_redirects=True)
        async with client as http:
            try:
                answer = await http.request(method, path, **options)
            except httpx.RemoteProtocolError:
                # A read may be asked again, as any client would, of a node that goes on.
                if method != "GET" or not asked.is_running:
                    raise AssertionError(asked.last_words()) from None
                answer = await http.request(method, path, **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def unload(self) -> None:
        """Moves every bundle of the namespace to whichever node is chosen next."""
        await self.rest("PUT", "/admin/v2/namespaces/public/default/unload")

    async def create(self, topic: str, segments: int = 1) -> None:
        await self.call("PUT", topic, params={"numInitialSegments": segments})

    async def split(self, topic: str, segment_id: int) -> None:
        await self.call("POST", f"{topic}/split/{segment_id}")

    async def merge(self, topic: str, first: int, second: int) -> None:
        await self.call("POST", f"{topic}/merge/{first}/{second}")

    async def prepare(self, topic: str, segments: int) -> None:
        await self.call("POST", f"{topic}/prepare", params={"segmentCount": segments})

    async def split_any(self, topic: str, turn: int = 0) -> None:
        """Splits an active segment, the `turn`-th of them."""
        await self._retried(topic, lambda ids: self.split(topic, ids[turn % len(ids)]), 1)

    async def merge_last(self, topic: str) -> None:
        """Merges the last two active segments."""
        await self._retried(topic, lambda ids: self.merge(topic, ids[-2], ids[-1]), 2)

    async def _retried(
        self, topic: str, operation: Callable[[list[int]], Awaitable[None]], least: int
    ) -> None:
        """Until it succeeds: the node that was asked may be behind, or name one that is dead."""

        async def succeeded() -> bool:
            with contextlib.suppress(AssertionError, httpx.TransportError):
                active = await self.active(topic)
                if len(active) >= least:
                    await operation(active)
                    return True
            return False

        await eventually(succeeded, WAIT_S)

    async def active(self, topic: str) -> list[int]:
        layout = await self.call("GET", topic)
        return [s["segmentId"] for s in layout["segments"].values() if s["state"] == "ACTIVE"]


@contextmanager
def topic_cluster(
    kafka: Servers, prefix: str, folder: Path, *settings: str, secured: DevSecurity | None = None
) -> Iterator[TopicCluster]:
    """Two running nodes."""
    cluster = TopicCluster(kafka, prefix, folder, *settings, secured=secured)
    try:
        for node in cluster.nodes:
            node.start()
        await_ready(cluster.nodes)
        yield cluster
    finally:
        asyncio.run(stopped(cluster.nodes))


async def stopped(nodes: list[NodeProcess]) -> None:
    """All of them, ended."""
    await asyncio.to_thread(stop_all, nodes)


Body = Callable[[TopicCluster, Client, str], Awaitable[None]]


def run_on(cluster: TopicCluster, body: Body, segments: int = 1) -> None:
    """Runs a test with a client and a new topic, `tenant/namespace/name`."""

    async def test() -> None:
        topic = next(_names)
        await cluster.create(topic, segments)
        async with Client(cluster.url) as client:
            await body(cluster, client, topic)

    asyncio.run(asyncio.wait_for(test(), TEST_S))
