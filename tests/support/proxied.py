"""Nodes of a cluster in memory behind real ports of both kinds, and real proxies before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.http.app import create_app
from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.proxy.proxy import Proxy
from anabranch.broker.settings.proxy import ProxySettings, load_proxy_settings
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.server import WireServer, serve
from support import steady
from support.http import PATIENT
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster, until

HOST = "127.0.0.1"


class ServedNode:
    """A node, both of whose ports can be shut as if its process had died."""

    def __init__(self, node: MemoryNode, http: HttpServer, wire: WireServer) -> None:
        self.node = node
        self.wire = wire
        self._http = http
        self.web = node.id
        self.binary = node.settings.service_url.removeprefix("pulsar://")

    async def shut_http(self) -> None:
        await self._http.stop()

    async def die(self) -> None:
        for peer in list(self.wire.peers):
            peer.abort("the node has died")
        await self.wire.stop()
        await self._http.stop()


@asynccontextmanager
async def served_node(
    cluster: MemoryCluster, number: int, **changes: object
) -> AsyncIterator[ServedNode]:
    with bind(HOST, 0) as web, bind(HOST, 0) as binary:
        node = cluster.node(
            number,
            advertisedAddress=HOST,
            webServicePort=web.getsockname()[1],
            brokerServicePort=binary.getsockname()[1],
            **PATIENT,
            **changes,
        )
        await cluster.start(node)
        app = create_app(node.operations, node.settings, node.metrics)
        http = HttpServer(app, web, node.settings.http_limits)
        await http.start()
        wire = await serve(
            sessions(node.operations, node.settings),
            held=binary,
            limits=node.settings.wire_limits,
        )
        served = ServedNode(node, http, wire)
        try:
            yield served
        finally:
            await served.die()


def settings_of(nodes: list[ServedNode], **changes: object) -> ProxySettings:
    return load_proxy_settings(
        None,
        {},
        {
            "advertisedAddress": HOST,
            "bindAddress": HOST,
            "brokerWebServiceURL": "http://" + ",".join(node.web for node in nodes),
            "webServicePort": 0,
            "servicePort": 0,
            **changes,
        },
    )


class RunningProxy:
    """A proxy, where it is, and how to ask it."""

    def __init__(self, proxy: Proxy, settings: ProxySettings, http: httpx.AsyncClient) -> None:
        self.proxy = proxy
        self.settings = settings
        self.service_url = settings.service_url
        self.web_url = settings.web_url
        self.http = http

    @asynccontextmanager
    async def client(
        self, on_push: Callable[[BaseCommand], None] = lambda _: None
    ) -> AsyncIterator[ClientConnection]:
        client = await connect(HOST, self.settings.service_port, on_push=on_push, timeout_s=WAIT_S)
        try:
            yield client
        finally:
            client.abort("the test is over")
            await asyncio.wait([client.closed])


@asynccontextmanager
async def running_proxy(settings: ProxySettings) -> AsyncIterator[RunningProxy]:
    with bind(HOST, 0) as web, bind(HOST, 0) as binary:
        ports = {"web_service_port": web.getsockname()[1], "service_port": binary.getsockname()[1]}
        settings = settings.model_copy(update=ports)
        proxy = Proxy(settings)
        await proxy.start(web, binary)
        try:
            async with httpx.AsyncClient(base_url=settings.web_url, timeout=WAIT_S) as http:
                yield RunningProxy(proxy, settings, http)
        finally:
            await proxy.stop()


Test = Callable[[RunningProxy, list[ServedNode], MemoryCluster], Awaitable[None]]


def with_proxy(
    test: Test, count: int = 2, node_changes: dict[str, object] | None = None, **changes: object
) -> None:
    """Runs a test on a proxy before that many nodes; the settings of either kind may change."""

    async def body() -> None:
        async with memory_cluster(0) as cluster, AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(
                    served_node(cluster, number, **(node_changes or {}))
                )
                for number in range(1, count + 1)
            ]
            await until(lambda: all(len(n.node.operations.brokers()) == count for n in nodes))
            await until(lambda: all(n.node.operations.leader() for n in nodes))
            settings = settings_of(nodes, **changes)
            proxy = await stack.enter_async_context(running_proxy(settings))
            await test(proxy, nodes, cluster)

    steady.run(body())
