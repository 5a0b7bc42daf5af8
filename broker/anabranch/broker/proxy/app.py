"""The HTTP port of a proxy: its own state, and all else from nodes, behind a node's own guards."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.errors import refusal
from anabranch.broker.http.guards.origins import behind_origins
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.proxy.forwarding import Forwarding
from anabranch.broker.proxy.sessions import SharedParts
from anabranch.broker.settings.proxy import ProxySettings


class _OwnPaths:
    """ASGI: health, readiness and metrics of the proxy itself; the rest goes to `app`."""

    def __init__(self, app: ASGIApp, shared: SharedParts) -> None:
        self._app = app
        self._shared = shared
        self._own = {
            "/livez": lambda: PlainTextResponse("ok"),
            "/readyz": lambda: self._ready("ok"),
            "/status.html": lambda: self._ready("OK"),
            "/metrics": self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._own.get(scope["path"]) if scope["type"] == "http" else None
        if answer is None:
            await self._app(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            allowed = {"Allow": "GET"}
            await refusal(405, f"{scope['method']} is not served here; use GET", allowed)(
                scope, receive, send
            )
        else:
            await answer()(scope, receive, send)

    def _ready(self, word: str) -> Response:
        nodes = self._shared.nodes
        if nodes.answering:
            return PlainTextResponse(word)
        return refusal(503, f"none of the {nodes.known} nodes that are known answers this proxy")

    def _metrics(self) -> Response:
        body = generate_latest(self._shared.counts.registry)
        return Response(body, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def create_proxy_app(shared: SharedParts, settings: ProxySettings) -> ASGIApp:
    """What the HTTP server runs."""
    forwarding = Forwarding(shared.nodes, shared.addresses, shared.counts)
    guarded = GuardMiddleware(forwarding, settings.http_limits)
    return _OwnPaths(behind_origins(guarded, settings), shared)
