"""The HTTP port of a proxy: its own state, and all else from nodes, behind a node's own guards.

Each request goes to a node, and the answer comes back as it is made.

The proxy follows a redirect to another node (307), because its client may not reach that. It keeps
a request's body whole, within the limits of the port, to send it again where that changes nothing:
after a redirect, when no connection came about, and of reads when the connection was lost.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.errors import OperationError, UnavailableError
from anabranch.broker.http.errors import answer as answer_to
from anabranch.broker.http.errors import refusal
from anabranch.broker.http.guards.authentication import (
    AuthenticationMiddleware,
    host_of,
    principal_of,
)
from anabranch.broker.http.guards.connections import NOSNIFF
from anabranch.broker.http.guards.origins import OriginMiddleware
from anabranch.broker.http.guards.requests import GuardMiddleware
from anabranch.broker.logging import get_logger
from anabranch.broker.metrics.page import MetricsPage
from anabranch.broker.node_http import (
    CannotBeSentError,
    Header,
    NodeAnswer,
    NodeLostError,
    NodeRequest,
    NodeUnreachableError,
    NotLetInError,
)
from anabranch.broker.security.authenticator import Authenticator
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.broker.settings.ports import HttpLimits
from anabranch.core.security.actions import Right
from anabranch.core.security.table import REST
from anabranch.proxy.addresses import ProxyAddresses
from anabranch.proxy.counts import ProxyCounts
from anabranch.proxy.nodes import KnownNodes
from anabranch.wire.supervised import supervised

_log = get_logger()

_HOPS_MAX: Final = 5
_REDIRECTS: Final = (307, 308)
_OK: Final = 200
_BODY_BYTES_MAX: Final = 1 << 20  # of an answer in which an address is changed
# RFC 9110, 7.6.1: what one connection says of itself.
_OF_ONE_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
# The proxy says these itself, or has judged by them: of a page's origin a node would think that it
# is another site's, as it is not asked by the name that the browser knows.
_NOT_PASSED_ON: Final = _OF_ONE_HOP | frozenset(
    b"content-length expect host origin sec-fetch-site x-forwarded-for x-original-principal".split()
)
_SHOWN: Final = frozenset({b"authorization"})
# Nodes answer it to anybody.
_FOR_EVERYBODY: Final = frozenset(
    request for request, rule in REST.items() if rule.need.right is Right.PUBLIC
)
_FORWARDED: Final = b"x-forwarded-for"
_FORWARDED_BYTES_MAX: Final = 1_024


class _Forwarding:
    """ASGI: all that a node serves."""

    def __init__(
        self,
        nodes: KnownNodes,
        addresses: ProxyAddresses,
        counts: ProxyCounts,
        authenticator: Authenticator | None,
    ) -> None:
        self._nodes = nodes
        self._addresses = addresses
        self._counts = counts
        self._authenticator = authenticator
        self._scheme = "http" if nodes.tls is None else "https"  # of nodes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asker = self._asker(scope)
        except CredentialsError as error:
            if self._authenticator is not None:
                self._authenticator.note(error, "", host_of(scope))
            await answer_to(error)(scope, receive, send)
            return
        try:
            found = await self._asked(await _request(scope, receive, asker))
        except OperationError as error:
            self._counts.http_failures += 1
            told = answer_to(error)
            await told(scope, receive, send)
            return
        try:
            await self._tell(found, scope, receive, send)
        except OperationError as error:
            # With nothing more to come the server ends the connection, so that the client sees it.
            self._counts.http_failures += 1
            _log.warning("proxy.answer_cut", node=found.address, why=str(error))
        finally:
            await found.close()

    def _asker(self, scope: Scope) -> str | None:
        """For whom a node is asked; None where it is told of nobody.

        Raises CredentialsError for somebody who would have to say who they are.
        """
        role = principal_of(scope).role
        is_public = f"{scope['method']} {scope['path']}" in _FOR_EVERYBODY
        if self._authenticator is None or (not role and is_public):
            return None
        if role:
            return role
        raise CredentialsError(
            RefusalReason.MISSING, "say who you are: this proxy asks everybody who wants that"
        )

    async def _asked(self, request: NodeRequest) -> NodeAnswer:
        """The answer of whichever node it takes. Raises OperationError."""
        self._counts.http_requests += 1
        found = await self._of_any(request)
        for hop in itertools.count():
            scheme, there = _redirected_to(found) if found.status in _REDIRECTS else ("", "")
            if not there:
                return found
            if hop == _HOPS_MAX:
                break
            if scheme != self._scheme:
                await found.close()
                raise UnavailableError(
                    f"node {found.address} sends this on to {scheme}://{there}, and this proxy "
                    f"asks nodes by {self._scheme}://; give all nodes ports of that kind"
                )
            await found.whole()
            found = await self._of(there, request)
        await found.close()
        raise UnavailableError(f"nodes redirected {_HOPS_MAX} times: no owner is known; try again")

    async def _of_any(self, request: NodeRequest) -> NodeAnswer:
        failures: list[str] = []
        for address in self._nodes.web.order():
            try:
                return await self._of(address, request)
            except (NodeUnreachableError, NotLetInError) as error:
                failures.append(str(error))
            except NodeLostError as error:
                if not request.is_safe:
                    raise NodeLostError(
                        f"{error}; what was asked may be done all the same: look before you ask "
                        "again"
                    ) from None
                failures.append(str(error))
        raise self._nodes.nobody(failures)

    async def _of(self, address: str, request: NodeRequest) -> NodeAnswer:
        try:
            found = await self._nodes.http.ask(address, request)
        except (NotLetInError, CannotBeSentError):
            raise  # it may be on account of this one client, so the node is no worse off
        except OperationError as error:
            self._nodes.web.failed(address, str(error))
            raise
        self._nodes.web.answered(address)
        return found

    async def _tell(self, found: NodeAnswer, scope: Scope, receive: Receive, send: Send) -> None:
        fields = self._addresses.fields_of(_path(scope)) if found.status == _OK else None
        dropped = _OF_ONE_HOP | _named_in(found.headers) | {NOSNIFF[0]}  # the server says it
        if fields is None:
            headers = [each for each in found.headers if each[0] not in dropped]
            await send({"type": "http.response.start", "status": found.status, "headers": headers})
            await _stream(found, receive, send)
            return
        told = self._addresses.in_body(await _bounded(found.chunks()), fields)
        dropped |= {b"content-length"}
        headers = [each for each in found.headers if each[0] not in dropped]
        headers.append((b"content-length", str(len(told)).encode()))
        await send({"type": "http.response.start", "status": found.status, "headers": headers})
        await send({"type": "http.response.body", "body": told})


async def _request(scope: Scope, receive: Receive, asker: str | None) -> NodeRequest:
    headers: list[Header] = scope["headers"]
    dropped = _NOT_PASSED_ON | _named_in(headers)
    if asker is not None:  # who the client is, nodes are told by the proxy
        dropped |= _SHOWN
    kept = [each for each in headers if each[0] not in dropped]
    said = dict(headers)
    client = scope.get("client")
    if client:
        before = said[_FORWARDED][:_FORWARDED_BYTES_MAX] + b", " if _FORWARDED in said else b""
        kept.append((_FORWARDED, before + str(client[0]).encode()))
    has_body = b"content-length" in said or b"transfer-encoding" in said
    try:
        body = await Request(scope, receive).body() if has_body else b""
    except ClientDisconnect:
        raise UnavailableError("the client has gone") from None
    query: bytes = scope["query_string"]
    target = _path(scope) + (b"?" + query if query else b"")
    return NodeRequest(scope["method"], target, kept, body, asker)


def _path(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    return path


def _named_in(headers: list[Header]) -> frozenset[bytes]:
    """The headers that the connection header names, which are for one hop, too."""
    said = (value for name, value in headers if name == b"connection")
    return frozenset(each.strip().lower() for value in said for each in value.split(b","))


def _redirected_to(found: NodeAnswer) -> tuple[str, str]:
    """Scheme and host:port of the other node to ask; "" for none."""
    for name, value in found.headers:
        if name == b"location":
            parts = urlsplit(value.decode("latin-1"))
            if parts.scheme in ("http", "https") and "@" not in parts.netloc:
                return parts.scheme, parts.netloc
    return "", ""


async def _bounded(chunks: AsyncIterator[bytes]) -> bytes:
    """All of them. Raises OperationError, also for a body that is too long to be changed."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            raise UnavailableError(f"the node's answer has more than {_BODY_BYTES_MAX} bytes")
    return body


async def _stream(found: NodeAnswer, receive: Receive, send: Send) -> None:
    """A node is read no further for a client that has gone."""
    gone = supervised(_disconnected(receive), "client gone")
    try:
        async for chunk in found.chunks():
            if gone.done():
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Site(NamedTuple):
    """No page but the proxy's own may send requests: pages of other sites have a node to ask."""

    advertised_address: str
    bind_address: str
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
    nodes: KnownNodes,
    addresses: ProxyAddresses,
    counts: ProxyCounts,
    authenticator: Authenticator | None,
    limits: HttpLimits,
    site: Site,
) -> ASGIApp:
    """The application of the HTTP server."""
    forwarding = _Forwarding(nodes, addresses, counts, authenticator)
    served: ASGIApp = GuardMiddleware(forwarding, limits)
    if authenticator is not None:
        served = AuthenticationMiddleware(served, authenticator)
    return _OwnPaths(OriginMiddleware(served, site), nodes, counts.registry)
