"""Nodes of a cluster in memory behind their real HTTP servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from anabranch.broker.http.app import create_server
from anabranch.broker.http.server import bind
from support import steady
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster


class HttpNode:
    """One node and a client of its HTTP interface."""

    def __init__(self, node: MemoryNode, client: httpx.AsyncClient) -> None:
        self.node = node
        self.http = client

    @property
    def id(self) -> str:
        return self.node.id


@asynccontextmanager
async def serving(node: MemoryNode) -> AsyncIterator[HttpNode]:
    """The node's interface on a free port."""
    with bind("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        server = create_server(node.operations, node.settings, node.metrics, held)
        await server.start()
        try:
            url = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as client:
                yield HttpNode(node, client)
        finally:
            await server.stop()


PATIENT = {"heartbeatIntervalMillis": 50, "leaseMillis": 4_000, "livenessTimeoutMillis": 6_000}

Test = Callable[[list[HttpNode], MemoryCluster], Awaitable[None]]


def with_http(test: Test, count: int = 1, **settings: object) -> None:
    """Runs a test on that many nodes."""

    async def body() -> None:
        async with (
            memory_cluster(count, **{**PATIENT, **settings}) as cluster,
            AsyncExitStack() as stack,
        ):
            nodes = [await stack.enter_async_context(serving(node)) for node in cluster.nodes]
            await test(nodes, cluster)

    steady.run(body())
