"""`Proxy`: the ports of a proxy and what is behind them, from start to stop."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from importlib.metadata import version as package_version
from typing import Final

from anabranch.broker.http.guards.origins import OriginRules
from anabranch.broker.http.server import HttpServer
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.ports import measure_strangers
from anabranch.broker.metrics.topic_lists import TopicListPrefix, measured_limiter
from anabranch.broker.ports import TlsPorts
from anabranch.broker.proxy.addresses import ProxyAddresses
from anabranch.broker.proxy.clients.server import ProxyServer, client_limits
from anabranch.broker.proxy.counts import ProxyCounts
from anabranch.broker.proxy.http.app import create_proxy_app
from anabranch.broker.proxy.http.quick_lookups import QuickLookups
from anabranch.broker.proxy.lists.shared import SharedLists
from anabranch.broker.proxy.nodes.known import KnownNodes
from anabranch.broker.proxy.parts import SharedParts
from anabranch.broker.proxy.security import proxy_security
from anabranch.broker.security.admission import measure_authentication
from anabranch.broker.settings.proxy import BINARY, PROXY_PORTS, WEB, ProxySettings

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
            ProxyAddresses(
                settings.web_url,
                settings.service_url,
                settings.web_url_tls,
                settings.service_url_tls,
            ),
            limiter,
            SharedLists(limiter),
            counts,
            proxy_security(settings),
        )
        self._tls = TlsPorts(settings, PROXY_PORTS)
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
            "Those that answered the last time.",
            lambda: nodes.answering,
        )
        security = self.shared.security
        measure_authentication(security.authenticator if security is not None else None, counts)
        self._tls.measure(counts)

    async def start(self, sockets: Mapping[str, socket.socket]) -> None:
        """Returns once all ports accept, which are held by the fields of their settings."""
        nodes, security = self.shared.nodes, self.shared.security
        if security is not None:
            await security.start()
        if nodes.access.credentials is not None and nodes.tls is None:
            _log.warning(
                "security.not_encrypted",
                methods=nodes.access.credentials.method,
                why="nodes are asked without TLS: whoever can listen can take what is shown",
                remedy="name them by https:// and pulsar+ssl://",
            )
        await nodes.refresh()
        nodes.start()
        app = create_proxy_app(self.shared, self._settings)
        quick = QuickLookups(self.shared, OriginRules(self._settings))
        self._http = HttpServer(app, sockets.get(WEB), self._settings.http_limits, quick)
        measure_strangers(self.wire.gate, self._http.connections, self.shared.counts)
        await self._http.start()
        if BINARY in sockets:
            await self.wire.listen(sockets[BINARY])
        self._tls.serve(sockets, self._http, self.wire)
        _log.info(
            "proxy.started",
            web_url=self._settings.web_url,
            service_url=self._settings.service_url,
            web_url_tls=self._settings.web_url_tls,
            service_url_tls=self._settings.service_url_tls,
            nodes=nodes.known,
        )

    async def stop(self) -> None:
        """Accepts no more, answers what is under way for a while, and ends."""
        _log.info("proxy.stopping", clients=len(self.wire.peers))
        await self._tls.stop()
        await self.wire.drain(self._settings.proxy_shutdown_timeout_ms / 1000)
        self.shared.limiter.close()
        await self.wire.stop()
        if self._http is not None:
            await self._http.stop()
        await self.shared.nodes.close()
        if self.shared.security is not None:
            await self.shared.security.stop()
