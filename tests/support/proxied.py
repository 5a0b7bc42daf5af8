"""Nodes of a cluster in memory behind real ports of both kinds, and real proxies before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
)

import httpx

from anabranch.broker.binary.sessions import sessions
from anabranch.broker.http.app import create_app
from anabranch.broker.http.server import HttpServer, bind
from anabranch.broker.ports import NODE_PORTS, TlsPorts, hold_ports
from anabranch.broker.security.node import NodeSecurity, node_security
from anabranch.broker.settings.model import name_of
from anabranch.proxy.proxy import Proxy
from anabranch.proxy.settings import (
    BINARY,
    BIND_ADDRESS,
    PROXY_PORTS,
    WEB,
    ProxySettings,
    load_proxy_settings,
)
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection
from anabranch.wire.server.server import WireServer
from support.http import PATIENT
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster, until
from support.wire import connected_at

HOST = "127.0.0.1"


class ServedNode:
    """A node, all of whose ports can be shut as if its process had died."""

    def __init__(
        self,
        node: MemoryNode,
        http: HttpServer,
        wire: WireServer,
        tls: TlsPorts,
        security: NodeSecurity | None,
    ) -> None:
        self.node = node
        self.wire = wire
        self.security = security
        self._http = http
        self._tls = tls
        self.web = node.id
        self.binary = node.settings.service_url.removeprefix("pulsar://")
        self.web_tls = node.settings.web_url_tls.removeprefix("https://")

    async def shut_http(self) -> None:
        await self._http.stop()

    def cut_links(self) -> None:
        for peer in list(self.wire.peers):
            peer.abort("the link is cut")

    async def die(self) -> None:
        self.cut_links()
        await self._tls.stop()
        await self.wire.stop()
        await self._http.stop()


@asynccontextmanager
async def served_node(
    cluster: MemoryCluster, number: int, **changes: object
) -> AsyncIterator[ServedNode]:
    """With ports with TLS, too, where the changes name a certificate."""
    fields = NODE_PORTS if "tlsCertificateFilePath" in changes else NODE_PORTS[::2]
    with ExitStack() as stack:
        sockets = {field: stack.enter_context(bind(HOST, 0)) for field in fields}
        ports = {name_of(field): held.getsockname()[1] for field, held in sockets.items()}
        node = cluster.node(number, advertisedAddress=HOST, **ports, **PATIENT, **changes)
        await cluster.start(node)
        security = node_security(node.settings, lambda: node.view)
        guard = security.guard if security is not None else None
        admission = security.admission if security is not None else None
        web = sockets[NODE_PORTS.web]
        app = create_app(node.operations, node.settings, node.metrics, security)
        http = HttpServer(app, web, node.settings.http_limits)
        if security is not None:
            await security.start()
        await http.start()
        served_by = sessions(node.operations, node.settings, guard)
        wire = WireServer(served_by, "anabranch", node.settings.wire_limits, admission)
        await wire.listen(sockets[NODE_PORTS.binary])
        tls = TlsPorts(node.settings, node.settings, NODE_PORTS)
        tls.serve(sockets, http, wire)
        served = ServedNode(node, http, wire, tls, security)
        try:
            yield served
        finally:
            await served.die()
            if security is not None:
                await security.stop()


async def create_topic(
    nodes: list[ServedNode], segments: int = 2, topic: str = "public/default/orders"
) -> ServedNode:
    """The node that looks after it."""
    found = await nodes[0].node.cluster.controller(topic)
    await found.operations.topics.create(topic, segments, {})
    return next(each for each in nodes if each.node is found)


def before_nodes(*web: str, **changes: object) -> ProxySettings:
    """Of a proxy before nodes with these addresses, host:port, of HTTP."""
    here = {"advertisedAddress": HOST, "webServicePort": 0, "servicePort": 0}
    named = {"brokerWebServiceURL": "http://" + ",".join(web)}
    return load_proxy_settings(None, {}, {**here, **named, **changes})


class RunningProxy:
    """A proxy, where it is, and how to ask it."""

    def __init__(self, proxy: Proxy, settings: ProxySettings, http: httpx.AsyncClient) -> None:
        self.proxy = proxy
        self.settings = settings
        self.service_url = settings.url_of(BINARY)
        self.port = settings.service_port or 0  # of the binary protocol, without TLS
        self.web_url = settings.url_of(WEB)
        self.http = http

    def client(
        self, on_push: Callable[[BaseCommand], None] = lambda _: None
    ) -> AbstractAsyncContextManager[ClientConnection]:
        return connected_at(self.port, on_push)


@asynccontextmanager
async def running_proxy(settings: ProxySettings) -> AsyncIterator[RunningProxy]:
    with hold_ports(settings.but({WEB: 0, BINARY: 0}), PROXY_PORTS, BIND_ADDRESS) as held:
        settings = held.settings
        proxy = Proxy(settings)
        await proxy.start(held.sockets)
        try:
            async with httpx.AsyncClient(base_url=settings.url_of(WEB), timeout=WAIT_S) as http:
                yield RunningProxy(proxy, settings, http)
        finally:
            await proxy.stop()


@asynccontextmanager
async def proxy_before(*ports: int, **changes: object) -> AsyncIterator[RunningProxy]:
    """A proxy before nodes of a test's own, which have binary ports alone."""
    async with running_proxy(before_nodes(f"{HOST}:1", **changes)) as proxy:
        proxy.proxy.nodes.binary.learn(f"{HOST}:{port}" for port in ports)
        yield proxy


@asynccontextmanager
async def served_nodes(
    count: int, changes: Mapping[str, object] | None = None
) -> AsyncIterator[list[ServedNode]]:
    """That many nodes, which know each other."""
    async with memory_cluster(0) as cluster, AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(served_node(cluster, number, **(changes or {})))
            for number in range(1, count + 1)
        ]
        await until(lambda: all(len(n.node.operations.brokers()) == count for n in nodes))
        await until(lambda: all(n.node.operations.leader() for n in nodes))
        yield nodes


@asynccontextmanager
async def proxied(
    count: int = 2, node_changes: Mapping[str, object] | None = None, **changes: object
) -> AsyncIterator[tuple[RunningProxy, list[ServedNode]]]:
    """A proxy before that many nodes; the settings of either kind may change."""
    async with served_nodes(count, node_changes) as nodes:
        settings = before_nodes(*(node.web for node in nodes), **changes)
        async with running_proxy(settings) as proxy:
            yield proxy, nodes
