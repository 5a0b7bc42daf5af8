"""`Proxy`: both ports of a proxy and what is behind them, from start to stop."""

from __future__ import annotations

import socket
from importlib.metadata import version as package_version
from typing import Final

from anabranch.broker.http.guards.origins import OriginRules
from anabranch.broker.http.server import HttpServer
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.ports import measure_strangers
from anabranch.broker.metrics.topic_lists import TopicListPrefix, measured_limiter
from anabranch.broker.proxy.addresses import ProxyAddresses
from anabranch.broker.proxy.app import create_proxy_app
from anabranch.broker.proxy.counts import ProxyCounts
from anabranch.broker.proxy.nodes import KnownNodes
from anabranch.broker.proxy.quick_lookups import QuickLookups
from anabranch.broker.proxy.server import ProxyServer, client_limits
from anabranch.broker.proxy.sessions import SharedParts
from anabranch.broker.proxy.shared_lists import SharedLists
from anabranch.broker.settings.proxy import ProxySettings

# Of a client: its own, and those to two nodes, or to one by HTTP.
DESCRIPTORS_EACH: Final = 3
_log = get_logger()


class Proxy:
    """On one event loop; `settings` have the ports that are held."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        counts = ProxyCounts()
        limiter = measured_limiter(
            settings.topic_list_limits,
            TopicListPrefix.PROXY,
            settings.cluster_name,
            counts.registry,
        )
        self.shared = SharedParts(
            KnownNodes(settings),
            ProxyAddresses(settings.web_url, settings.service_url),
            limiter,
            SharedLists(limiter),
            counts,
        )
        version = f"anabranch-proxy {package_version('anabranch')}"
        self.wire = ProxyServer(self.shared, version, client_limits(settings.wire_limits))
        self._http: HttpServer | None = None
        self._measure(counts, self.shared.nodes)

    def _measure(self, counts: ProxyCounts, nodes: KnownNodes) -> None:
        counts.register()
        counts.gauge(
            "pulsar_proxy_active_connections",
            "Connections of clients to the binary port.",
            lambda: len(self.wire.peers),
        )
        counts.gauge(
            "anabranch_proxy_http_connections",
            "Connections of clients to the HTTP port.",
            lambda: self._http.connections.count if self._http is not None else 0,
        )
        counts.gauge("anabranch_proxy_nodes", "Nodes that are known.", lambda: nodes.known)
        counts.gauge(
            "anabranch_proxy_nodes_answering",
            "Of these, how many answered when they were asked last.",
            lambda: nodes.answering,
        )

    async def start(self, web: socket.socket, binary: socket.socket) -> None:
        """Returns once both ports accept."""
        nodes = self.shared.nodes
        await nodes.refresh()
        nodes.start()
        app = create_proxy_app(self.shared, self._settings)
        quick = QuickLookups(
            nodes, self.shared.addresses, self.shared.counts, OriginRules(self._settings)
        )
        self._http = HttpServer(app, web, self._settings.http_limits, quick)
        measure_strangers(self.wire.gate, self._http.connections, self.shared.counts)
        await self._http.start()
        await self.wire.listen(binary)
        _log.info(
            "proxy.started",
            web_url=self._settings.web_url,
            service_url=self._settings.service_url,
            nodes=nodes.known,
        )

    async def stop(self) -> None:
        """Accepts no more, answers what is under way for a while, and ends."""
        _log.info("proxy.stopping", clients=len(self.wire.peers))
        await self.wire.drain(self._settings.proxy_shutdown_timeout_ms / 1000)
        self.shared.limiter.close()
        await self.wire.stop()
        if self._http is not None:
            await self._http.stop()
        await self.shared.nodes.close()
