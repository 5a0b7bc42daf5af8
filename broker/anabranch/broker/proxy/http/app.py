"""The HTTP port of a proxy: its own state, and all else from nodes, behind a node's own guards."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.errors import answer, refusal
from anabranch.broker.http.guards.authentication import AuthenticationMiddleware
from anabranch.broker.http.guards.origins import behind_origins
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.http.senders import host_of, principal_of
from anabranch.broker.metrics.page import MetricsPage
from anabranch.broker.proxy.http.forwarding import Forwarding
from anabranch.broker.proxy.parts import SharedParts
from anabranch.broker.proxy.security import ProxySecurity
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.broker.settings.proxy import ProxySettings


class _OwnPaths:
    """ASGI: health, readiness and metrics of the proxy itself; the rest goes to `app`."""

    def __init__(self, app: ASGIApp, shared: SharedParts, metrics: ASGIApp) -> None:
        self._app = app
        self._shared = shared
        self._own: dict[str, Callable[[], ASGIApp]] = {
            "/livez": lambda: PlainTextResponse("ok"),
            "/readyz": lambda: self._ready("ok"),
            "/status.html": lambda: self._ready("OK"),
            "/metrics": lambda: metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = self._own.get(scope["path"]) if scope["type"] == "http" else None
        if own is None:
            await self._app(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            allowed = {"Allow": "GET"}
            await refusal(405, f"{scope['method']} is not served here; use GET", allowed)(
                scope, receive, send
            )
        else:
            await own()(scope, receive, send)

    def _ready(self, word: str) -> Response:
        nodes = self._shared.nodes
        if nodes.answering:
            return PlainTextResponse(word)
        if nodes.refusal:
            return refusal(503, f"nodes do not let this proxy in: {nodes.refusal}")
        return refusal(503, f"none of the {nodes.known} nodes that are known answers this proxy")


class _Metrics:
    """ASGI: the figures; `asks`: by whom it is not for somebody who does not say who they are."""

    def __init__(self, shared: SharedParts, asks: ProxySecurity | None) -> None:
        self._registry = shared.counts.registry
        self._asks = asks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._asks is not None and not principal_of(scope).role:
            missing = CredentialsError(
                RefusalReason.MISSING, "say who you are: authenticateMetricsEndpoint says so"
            )
            self._asks.authenticator.note(missing, "", host_of(scope))
            await answer(missing)(scope, receive, send)
            return
        await MetricsPage(self._registry)(scope, receive, send)


def create_proxy_app(shared: SharedParts, settings: ProxySettings) -> ASGIApp:
    """What the HTTP server runs."""
    served: ASGIApp = GuardMiddleware(Forwarding(shared), settings.http_limits)
    security = shared.security
    asks = security if settings.authenticate_metrics_endpoint else None
    metrics: ASGIApp = _Metrics(shared, asks)
    if security is not None:
        served = AuthenticationMiddleware(served, security.authenticator)
    if asks is not None:
        metrics = AuthenticationMiddleware(metrics, asks.authenticator)
    return _OwnPaths(behind_origins(served, settings), shared, metrics)
