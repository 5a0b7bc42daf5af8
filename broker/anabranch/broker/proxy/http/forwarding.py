"""HTTP through the proxy: each request goes to a node, and its answer comes back as it is made.

A node that another one redirects to (307) is asked by the proxy, so that a client need not reach
it. A request's body is kept whole, which the limits of the port bound, to be sent again where that
changes nothing: when no connection came about, and of reads when the connection was lost.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from anabranch.broker.errors import OperationError, UnavailableError
from anabranch.broker.http.errors import answer as answer_to
from anabranch.broker.http.errors import refusal
from anabranch.broker.http.guards.connections import NOSNIFF
from anabranch.broker.http.senders import host_of, principal_of
from anabranch.broker.logging import get_logger
from anabranch.broker.node_http import (
    Header,
    NodeAnswer,
    NodeLostError,
    NodeRequest,
    NodeUnreachableError,
    NotLetInError,
)
from anabranch.broker.proxy.parts import SharedParts
from anabranch.broker.security.credentials import CredentialsError, RefusalReason
from anabranch.core.security.actions import Right
from anabranch.core.security.table import REST
from anabranch.wire.supervised import supervised

_log = get_logger()

_HOPS_MAX: Final = 5
_REDIRECTS: Final = (307, 308)
_OK: Final = 200
_BODY_BYTES_MAX: Final = 1 << 20  # of an answer in which an address is changed
# RFC 9110, 7.6.1: what one connection says of itself.
_OF_ONE_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The proxy says these itself, or has judged by them: of a page's origin a node would think that it
# is another site's, as it is not asked by the name that the browser knows.
_NOT_PASSED_ON: Final = _OF_ONE_HOP | {
    b"content-length",
    b"expect",
    b"host",
    b"origin",
    b"sec-fetch-site",
    b"x-forwarded-for",
    b"x-original-principal",
}
_SHOWN: Final = frozenset({b"authorization"})
# Nodes answer it to anybody.
_FOR_EVERYBODY: Final = frozenset(
    request for request, rule in REST.items() if rule.need.right is Right.PUBLIC
)
_FORWARDED: Final = b"x-forwarded-for"
_FORWARDED_BYTES_MAX: Final = 1_024


class Forwarding:
    """ASGI: all that a node serves."""

    def __init__(self, shared: SharedParts) -> None:
        self._nodes = shared.nodes
        self._addresses = shared.addresses
        self._counts = shared.counts
        self._security = shared.security
        self._scheme = "http" if shared.nodes.tls is None else "https"  # of nodes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asker = self._asker(scope)
        except CredentialsError as error:
            if self._security is not None:
                self._security.authenticator.note(error, "", host_of(scope))
            await answer_to(error)(scope, receive, send)
            return
        try:
            found = await self._asked(await _request(scope, receive, asker))
        except OperationError as error:
            self._counts.http_failures += 1
            if isinstance(error, NodeLostError):
                await refusal(502, str(error))(scope, receive, send)
            else:
                await answer_to(error)(scope, receive, send)
            return
        try:
            await self._tell(found, scope, receive, send)
        except OperationError as error:
            # With nothing more to come the server ends the connection, so that the client sees it.
            self._counts.http_failures += 1
            _log.warning("proxy.answer_cut", node=found.address, why=str(error))
        finally:
            self._nodes.http.give_back(found)

    def _asker(self, scope: Scope) -> str | None:
        """For whom a node is asked; None where it is told of nobody.

        Raises CredentialsError for somebody who would have to say who they are.
        """
        if self._security is None:
            return None
        principal = principal_of(scope)
        if principal.role:
            return self._security.asker_of(principal)
        if f"{scope['method']} {scope['path']}" in _FOR_EVERYBODY:
            return None
        raise CredentialsError(
            RefusalReason.MISSING, "say who you are: this proxy asks everybody who wants that"
        )

    async def _asked(self, request: NodeRequest) -> NodeAnswer:
        """The answer of whichever node it takes. Raises OperationError."""
        self._counts.http_requests += 1
        found = await self._of_any(request)
        for _ in range(_HOPS_MAX):
            scheme, there = _redirected_to(found) if found.status in _REDIRECTS else ("", "")
            if not there:
                return found
            if scheme != self._scheme:
                self._nodes.http.give_back(found)
                raise UnavailableError(
                    f"node {found.address} sends this on to {scheme}://{there}, and this proxy "
                    f"asks nodes by {self._scheme}://; give all nodes ports of that kind"
                )
            async for _ignored in found.chunks(self._nodes.http.answer_s_max):
                pass
            self._nodes.http.give_back(found)
            found = await self._of(there, request)
        self._nodes.http.give_back(found)
        raise UnavailableError(f"nodes redirected {_HOPS_MAX} times: no owner is known; try again")

    async def _of_any(self, request: NodeRequest) -> NodeAnswer:
        failures: list[str] = []
        for address in self._nodes.web_order():
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
        raise UnavailableError("no node answers this proxy: " + ("; ".join(failures) or _NO_NODE))

    async def _of(self, address: str, request: NodeRequest) -> NodeAnswer:
        try:
            found = await self._nodes.http.ask(address, request)
        except NotLetInError:
            raise  # it may be on account of this one client, so the node is no worse off
        except OperationError as error:
            self._nodes.web_failed(address, error)
            raise
        self._nodes.web_answered(address)
        return found

    async def _tell(self, found: NodeAnswer, scope: Scope, receive: Receive, send: Send) -> None:
        fields = self._addresses.fields_of(_path(scope)) if found.status == _OK else None
        headers = self._headers(found, scope)
        timeout_s = self._nodes.http.answer_s_max
        if fields is not None:
            body = await _whole(found, timeout_s)
            told = self._addresses.in_body(body, fields)
            headers = [each for each in headers if each[0] != b"content-length"]
            headers.append((b"content-length", str(len(told)).encode()))
            await _start(send, found.status, headers)
            await send({"type": "http.response.body", "body": told})
        elif found.is_whole:
            await _start(send, found.status, headers)
            await send({"type": "http.response.body", "body": found.at_once()})
        else:
            await _start(send, found.status, headers)
            await _stream(found, timeout_s, receive, send)

    def _headers(self, found: NodeAnswer, scope: Scope) -> list[Header]:
        dropped = _OF_ONE_HOP | _named_in(found.headers) | {NOSNIFF[0]}  # the server says it
        headers = [each for each in found.headers if each[0] not in dropped]
        if found.status not in _REDIRECTS:
            return headers
        return [
            (name, self._here(value, scope)) if name == b"location" else (name, value)
            for name, value in headers
        ]

    def _here(self, location: bytes, scope: Scope) -> bytes:
        here = self._addresses.in_location(
            location.decode("latin-1"), is_tls=scope.get("scheme") == "https"
        )
        return here.encode("latin-1")


_NO_NODE: Final = "none is known; name one in brokerWebServiceURL"


async def _request(scope: Scope, receive: Receive, asker: str | None) -> NodeRequest:
    headers: list[Header] = scope["headers"]
    dropped = _NOT_PASSED_ON | _named_in(headers)
    if asker is not None:  # who the client is, nodes are told by the proxy
        dropped |= _SHOWN
    kept: list[Header] = []
    forwarded = b""
    has_body = False
    for name, value in headers:
        if name not in dropped:
            kept.append((name, value))
        elif name == _FORWARDED:
            forwarded = value[:_FORWARDED_BYTES_MAX] + b", "
        elif name in (b"content-length", b"transfer-encoding"):
            has_body = True
    client = scope.get("client")
    if client:
        kept.append((_FORWARDED, forwarded + str(client[0]).encode()))
    body = await _body(receive) if has_body else b""
    query: bytes = scope["query_string"]
    target = _path(scope) + (b"?" + query if query else b"")
    return NodeRequest(scope["method"], target, kept, body, asker)


def _path(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    return path


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UnavailableError("the client has gone")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _named_in(headers: list[Header]) -> frozenset[bytes]:
    """What the connection header names, which is for one hop, too."""
    for name, value in headers:
        if name == b"connection" and value not in (b"keep-alive", b"close", b"Keep-Alive"):
            return frozenset(each.strip().lower() for each in value.split(b","))
    return frozenset()


def _redirected_to(found: NodeAnswer) -> tuple[str, str]:
    """How and where (host:port) another node is to be asked; "" for none."""
    for name, value in found.headers:
        if name == b"location":
            parts = urlsplit(value.decode("latin-1"))
            if parts.scheme in ("http", "https") and "@" not in parts.netloc:
                return parts.scheme, parts.netloc
    return "", ""


async def _whole(found: NodeAnswer, timeout_s: float) -> bytes:
    parts = []
    size = 0
    async for chunk in found.chunks(timeout_s):
        size += len(chunk)
        if size > _BODY_BYTES_MAX:
            raise UnavailableError(f"the node's answer has more than {_BODY_BYTES_MAX} bytes")
        parts.append(chunk)
    return b"".join(parts)


async def _start(send: Send, status: int, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _stream(found: NodeAnswer, timeout_s: float, receive: Receive, send: Send) -> None:
    """What a client that has gone does not take is not asked of the node, either."""
    gone = supervised(_disconnected(receive), "client gone")
    try:
        async for chunk in found.chunks(timeout_s):
            if gone.done():
                found.end()
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
