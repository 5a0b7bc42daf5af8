"""`Proxy`: the ports of a proxy and what is behind them, from start to stop."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from importlib.metadata import version as package_version
from typing import Final
from urllib.parse import urlsplit

from anabranch.broker.http.server import HttpServer
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.ports import measure_strangers
from anabranch.broker.metrics.topic_lists import TopicListPrefix, measured_limiter
from anabranch.broker.ports import TlsPorts
from anabranch.broker.security.admission import (
    WireAdmission,
    measure_authentication,
    warn_of_plain_ports,
)
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.settings.ports import PortFields
from anabranch.proxy.addresses import ProxyAddresses
from anabranch.proxy.counts import ProxyCounts
from anabranch.proxy.http import Site, create_proxy_app
from anabranch.proxy.nodes import KnownNodes
from anabranch.proxy.server import ProxyServer
from anabranch.proxy.session import SessionParts
from anabranch.proxy.settings import (
    BINARY,
    BINARY_TLS,
    BIND_ADDRESS,
    PORTS,
    PROXY_PORTS,
    WEB,
    WEB_TLS,
    ProxySettings,
)

DESCRIPTORS_EACH: Final = 3  # of a client: its own, and those to two nodes, or to one by HTTP
SHUTDOWN_S_MAX: Final = 5.0  # container platforms kill ten seconds or more after SIGTERM
_log = get_logger()


class Proxy:
    """On one event loop; `settings` have the ports that are held. Raises StartError."""

    def __init__(self, settings: ProxySettings, ports: PortFields = PORTS) -> None:
        self._settings = settings
        self._urls = {
            "web_url": settings.url_of(WEB),
            "service_url": settings.url_of(BINARY),
            "web_url_tls": settings.url_of(WEB_TLS),
            "service_url_tls": settings.url_of(BINARY_TLS),
        }
        self.counts = ProxyCounts()
        self.limiter = measured_limiter(
            settings.topic_list_limits,
            TopicListPrefix.PROXY,
            settings.cluster_name,
            self.counts.registry,
        )
        self.nodes = KnownNodes(settings)
        self.addresses = ProxyAddresses(**self._urls)
        # None: nobody has to say who they are. Nodes judge what each client may do.
        self._authenticator: Authenticator | None = None
        self._admission: WireAdmission | None = None
        if settings.authentication_enabled:
            self._authenticator = Authenticator(settings.authentication)
            self._admission = WireAdmission(self._authenticator)
        self._tls = TlsPorts(settings.tls, ports, PROXY_PORTS)
        version = f"anabranch-proxy {package_version('anabranch')}"
        parts = SessionParts(self.nodes, self.addresses, self.limiter, self.counts)
        self.wire = ProxyServer(parts, version, ports.wire_limits, self._admission)
        web = urlsplit(self._urls["web_url"] or self._urls["web_url_tls"])
        self.app = create_proxy_app(
            self.nodes,
            self.addresses,
            self.counts,
            self._authenticator,
            ports.http_limits,
            Site(web.hostname or "", BIND_ADDRESS),
        )
        self._http_limits = ports.http_limits
        self._http: HttpServer | None = None
        self._measure()

    def _measure(self) -> None:
        counts, nodes = self.counts, self.nodes
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
        measure_authentication(self._authenticator, counts)
        self._tls.measure(counts)

    async def start(self, sockets: Mapping[str, socket.socket]) -> None:
        """Returns once all ports accept, which are held by the fields of their settings."""
        if self._authenticator is not None and self._admission is not None:
            await self._authenticator.start()
            self._admission.start()
            if self._urls["web_url"] or self._urls["service_url"]:
                warn_of_plain_ports(self._authenticator, "webServicePort", "servicePort")
        credentials = self.nodes.access.credentials
        if credentials is not None and self.nodes.tls is None:
            _log.warning(
                "security.not_encrypted",
                methods=credentials.method,
                why="nodes are asked without TLS: whoever can listen can take what is shown",
                remedy="name them by https:// in brokerWebServiceURL",
            )
        await self.nodes.refresh()
        self.nodes.start()
        self._http = HttpServer(self.app, sockets.get(WEB), self._http_limits)
        measure_strangers(self.wire.gate, self._http.connections, self.counts)
        await self._http.start()
        if BINARY in sockets:
            await self.wire.listen(sockets[BINARY])
        self._tls.serve(sockets, self._http, self.wire)
        _log.info("proxy.started", **self._urls, nodes=self.nodes.known)

    async def stop(self) -> None:
        """Accepts no more, answers what is under way for a while, and ends."""
        _log.info("proxy.stopping", clients=len(self.wire.peers))
        await self._tls.stop()
        await self.wire.drain(SHUTDOWN_S_MAX)
        self.limiter.close()
        await self.wire.stop()
        if self._http is not None:
            await self._http.stop()
        await self.nodes.close()
        if self._authenticator is not None and self._admission is not None:
            await self._admission.stop()
            await self._authenticator.stop()
