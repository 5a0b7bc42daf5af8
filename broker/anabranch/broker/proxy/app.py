"""The HTTP port of a proxy: its own state, and all else from nodes, behind a node's own guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.errors import refusal
from anabranch.broker.http.guards.authentication import AuthenticationMiddleware
from anabranch.broker.http.guards.origins import behind_origins
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.metrics.page import MetricsPage
from anabranch.broker.proxy.http import Forwarding
from anabranch.broker.proxy.nodes import KnownNodes
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.settings.ports import HttpLimits


class _Site(NamedTuple):
    """No page but the proxy's own may send requests: pages of other sites have a node to ask."""

    advertised_address: str
    bind_address: str
    web_service_allowed_origins: str = ""
    web_service_allowed_hosts: str = ""


class _OwnPaths:
    """ASGI: health, readiness and metrics of the proxy itself; the rest goes to `app`.

    The metrics are for everybody, because a scraper has no token.
    """

    def __init__(self, app: ASGIApp, nodes: KnownNodes, registry: CollectorRegistry) -> None:
        self._app = app
        self._nodes = nodes
        metrics = MetricsPage(registry)
        self._own: dict[str, Callable[[], ASGIApp]] = {
            "/livez": lambda: PlainTextResponse("ok"),
            "/readyz": lambda: self._ready("ok"),
            "/status.html": lambda: self._ready("OK"),
            "/metrics": lambda: metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = self._own.get(scope["path"]) if scope["type"] == "http" else None
        served = own() if own is not None else self._app
        if own is not None and scope["method"] not in ("GET", "HEAD"):
            why = f"{scope['method']} is not served here; use GET"
            served = refusal(405, why, {"Allow": "GET"})
        await served(scope, receive, send)

    def _ready(self, word: str) -> Response:
        if self._nodes.answering:
            return PlainTextResponse(word)
        if self._nodes.refusal:
            return refusal(503, f"nodes do not let this proxy in: {self._nodes.refusal}")
        return refusal(
            503, f"none of the {self._nodes.known} nodes that are known answers this proxy"
        )


def create_proxy_app(
    forwarding: Forwarding,
    nodes: KnownNodes,
    registry: CollectorRegistry,
    authenticator: Authenticator | None,
    limits: HttpLimits,
    host: str,
    bind_address: str,
) -> ASGIApp:
    """The application of the HTTP server. `host`: the name that clients use for the proxy."""
    served: ASGIApp = GuardMiddleware(forwarding, limits)
    if authenticator is not None:
        served = AuthenticationMiddleware(served, authenticator)
    return _OwnPaths(behind_origins(served, _Site(host, bind_address)), nodes, registry)
