"""Nodes of a cluster in memory behind their real HTTP servers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import httpx

from anabranch.broker.http.app import create_app
from anabranch.broker.http.server import HttpServer, bind
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster


class HttpNode:
    """One node and a client of its HTTP interface."""

    def __init__(self, node: MemoryNode, client: httpx.AsyncClient) -> None:
        self.node = node
        self.http = client

    @property
    def id(self) -> str:
        return self.node.id

    @property
    def cluster(self) -> MemoryCluster:
        return self.node.cluster


@asynccontextmanager
async def serving(node: MemoryNode) -> AsyncIterator[HttpNode]:
    """The node's interface on a free port."""
    with bind("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        app = create_app(node.operations, node.settings, node.metrics)
        server = HttpServer(app, held, node.settings.http_limits)
        await server.start()
        try:
            url = f"http://127.0.0.1:{port}"
            # Without TLS no authorities of this machine have to be loaded.
            async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, verify=False) as client:
                yield HttpNode(node, client)
        finally:
            await server.stop()


# A value for each word of a path, as there may be one in a new cluster.
PLACES: Final = {
    "domain": "persistent",
    "tenant": "public",
    "namespace": "default",
    "topic": "t",
    "bundle": "0x00000000_0x40000000",
    "cluster": "standalone",
    "broker": "b1:8080",
    "segmentId": "0",
    "segmentId1": "0",
    "segmentId2": "1",
    "producerId": "7",
    "descriptor": "0000-ffff-0",
    "subscription": "billing",
    "setting": "leaseMillis",
    "value": "1",
    "policy": "gold",
    "group": "apart",
    "brokerId": "1",
    "role": "ada",
}
PATIENT = {"heartbeatIntervalMillis": 50, "leaseMillis": 4_000, "livenessTimeoutMillis": 6_000}


@asynccontextmanager
async def http_nodes(
    count: int = 1, **settings: object
) -> AsyncIterator[tuple[list[HttpNode], MemoryCluster]]:
    """That many nodes."""
    async with (
        memory_cluster(count, **{**PATIENT, **settings}) as cluster,
        AsyncExitStack() as stack,
    ):
        yield [await stack.enter_async_context(serving(node)) for node in cluster.nodes], cluster


Test = Callable[..., Awaitable[None]]


def on_nodes(count: int = 1, **settings: object) -> Callable[[Test], Test]:
    """Runs the decorated test on that many nodes.

    It gets its `nodes`, the first one as `node`, and the `cluster` if it names them; pytest gives
    the rest.
    """

    def decorated(test: Test) -> Test:
        wanted = inspect.signature(test).parameters

        @functools.wraps(test)
        async def on_them(**fixtures: object) -> None:
            async with http_nodes(count, **settings) as (nodes, cluster):
                ours = {"node": nodes[0], "nodes": nodes, "cluster": cluster}
                await test(**fixtures, **{name: ours[name] for name in wanted if name in ours})

        left = [each for name, each in wanted.items() if name not in ("node", "nodes", "cluster")]
        on_them.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]  # pytest's
        return on_them

    return decorated
