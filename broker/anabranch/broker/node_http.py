"""Requests to nodes over HTTP/1.1: connections that are kept, answers that are read as they come.

A proxy relays by it, and a node asks another one. A request has its body whole. The answer's body
is read from the connection as its reader takes it.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import httpcore
import msgspec

from anabranch.access.tls import reason_of
from anabranch.broker.errors import (
    DeadlineExceededError,
    OperationError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.security.outgoing import UNAUTHORIZED, OutgoingAccess

_IDLE_S_MAX: Final = 2.0  # a node ends what is idle for 5 s
_IDLE_MAX: Final = 256  # connections that wait for the next request

Header = tuple[bytes, bytes]


class NodeUnreachableError(UnavailableError):
    """No connection to the node came about, so it was not asked."""


class NodeLostError(OperationError):
    """The connection to the node ended before its answer was there whole."""

    status = HTTPStatus.BAD_GATEWAY


class NodeSilentError(DeadlineExceededError):
    """The node did not answer in time; it may still do the request."""


class CannotBeSentError(PreconditionError):
    """The request is none that HTTP/1.1 allows, so nothing was sent."""


class NotLetInError(UnavailableError):
    """The node does not take the credentials, so nothing was done."""


class NodeRequest:
    """A request to a node; `target` is path and query as they came.

    `asker`: the role that a sender with credentials of its own asks for. "": the sender asks for
    itself. None: the request shows no credentials and names no asker.
    """

    __slots__ = ("asker", "body", "headers", "method", "target")

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: Sequence[Header] = (),
        body: bytes = b"",
        asker: str | None = "",
    ) -> None:
        self.asker = asker
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body

    @property
    def is_safe(self) -> bool:
        """True if the request changes nothing, so that it may be asked again elsewhere."""
        return self.method in ("GET", "HEAD", "OPTIONS")


class NodeAnswer:
    """A node's answer as far as its head; `close` it in the end."""

    def __init__(self, address: str, found: httpcore.Response, answer_s_max: float) -> None:
        self.address = address
        self.status = found.status
        self.headers: list[Header] = [(name.lower(), value) for name, value in found.headers]
        self._found = found
        self._answer_s_max = answer_s_max

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises NodeLostError, NodeSilentError."""
        with _errors_of(self.address, self._answer_s_max):
            async for chunk in self._found.aiter_stream():
                yield chunk

    async def whole(self) -> bytes:
        """The body, with which the answer is closed. Raises as `chunks`."""
        try:
            return b"".join([chunk async for chunk in self.chunks()])
        finally:
            await self.close()

    async def close(self) -> None:
        """Nothing more is read. The connection is kept if the body was read to its end."""
        await self._found.aclose()


class NodeHttp:
    """All connections of a process to the HTTP ports of nodes."""

    def __init__(
        self, connect_s_max: float, answer_s_max: float, access: OutgoingAccess, *, is_tls: bool
    ) -> None:
        self._access = access
        # Of its own, since the pool writes its protocols into what it is given.
        self._tls = access.new_tls() if is_tls else None
        self._answer_s_max = answer_s_max
        self._timeouts = dict.fromkeys(("read", "write"), answer_s_max)
        self._timeouts |= dict.fromkeys(("connect", "pool"), connect_s_max)
        self._connect_s_max = connect_s_max
        self._context: ssl.SSLContext | None = None
        self._pools: list[httpcore.AsyncConnectionPool] = []  # the last one is asked by

    async def ask(self, address: str, request: NodeRequest) -> NodeAnswer:
        """Returns the node's answer, as far as its head; to be closed in the end.

        A node that does not take the credentials is asked once more if there are newer ones. Raises
        NodeUnreachableError, NodeLostError, NodeSilentError, NotLetInError and CannotBeSentError.
        """
        shown = self._access.generation
        found = await self._ask(address, request)
        if found.status != UNAUTHORIZED or request.asker is None or not self._access.shows:
            return found
        why = reason_in(await found.whole())
        await self._access.look()
        if self._access.generation != shown:
            found = await self._ask(address, request)
            if found.status != UNAUTHORIZED:
                return found
            why = reason_in(await found.whole())
        raise NotLetInError(f"node {address} does not let this process in: {why}")

    async def close(self) -> None:
        """Ends all connections."""
        for pool in self._pools:
            await pool.aclose()
        self._pools.clear()

    async def _ask(self, address: str, request: NodeRequest) -> NodeAnswer:
        try:
            return await self._asked(address, request)
        except NodeLostError:
            # The node may have ended a kept connection before it was asked.
            if not request.is_safe:
                raise
            return await self._asked(address, request)

    async def _asked(self, address: str, request: NodeRequest) -> NodeAnswer:
        shown = () if request.asker is None else self._access.headers(request.asker)
        # A server passes on the white space behind a value, which may not be sent so.
        given = ((name, value.strip(b" \t")) for name, value in request.headers)
        headers = [(b"host", address.encode()), *given, *shown]
        if request.body or not request.is_safe:
            headers.append((b"content-length", str(len(request.body)).encode()))
        where = urlsplit(f"//{address}")
        asked = httpcore.Request(
            request.method,
            httpcore.URL(
                scheme="https" if self._tls else "http",
                host=where.hostname or "",
                port=where.port,
                target=request.target,
            ),
            headers=headers,
            content=request.body,
            extensions={"timeout": self._timeouts},
        )
        with _errors_of(address, self._answer_s_max, self._connect_s_max):
            found = await (await self._pool()).handle_async_request(asked)
        return NodeAnswer(address, found, self._answer_s_max)

    async def _pool(self) -> httpcore.AsyncConnectionPool:
        """Returns the connections by the TLS of this moment.

        Requests go on by those of a former certificate, which are ended when none is left.
        """
        context = self._tls.context() if self._tls else None
        if not self._pools or context is not self._context:
            self._context = context
            self._pools.append(
                httpcore.AsyncConnectionPool(
                    context,
                    max_connections=None,
                    max_keepalive_connections=_IDLE_MAX,
                    keepalive_expiry=_IDLE_S_MAX,
                )
            )
        for former in self._pools[:-1]:
            idle = all(each.is_idle() or each.is_closed() for each in former.connections)
            if idle and former in self._pools:  # it is let go of before anybody waits
                self._pools.remove(former)
                await former.aclose()
        return self._pools[-1]


@contextlib.contextmanager
def _errors_of(address: str, answer_s: float, connect_s: float = 0.0) -> Iterator[None]:
    """Turns the library's errors into those that name the node and the remedy."""
    try:
        yield
    except httpcore.ConnectTimeout:
        why = f"node {address} cannot be reached within {connect_s:g} s"
        raise NodeUnreachableError(why) from None
    except httpcore.ConnectError as error:
        raise NodeUnreachableError(_unreachable(address, error)) from None
    except httpcore.TimeoutException:
        raise NodeSilentError(
            f"node {address} did not answer in {answer_s:g} s; it may do the request all the same: "
            "look before you ask again"
        ) from None
    except httpcore.LocalProtocolError as error:
        raise CannotBeSentError(f"the request cannot be passed on: {error}") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
        why = str(error) or "ended the connection before it had answered"
        raise NodeLostError(f"node {address} was lost: {why}") from None


def _unreachable(address: str, error: httpcore.ConnectError) -> str:
    cause: BaseException = error
    while not isinstance(cause, OSError) and cause.__context__ is not None:
        cause = cause.__context__
    if isinstance(cause, ssl.SSLError):
        host = urlsplit(f"//{address}").hostname or ""
        return f"node {address} cannot be reached by TLS: {reason_of(cause, host)}"
    return f"node {address} cannot be reached: {cause.__cause__ or cause}"


class _Refusal(msgspec.Struct):
    """The body of a refusal."""

    reason: str


def reason_in(body: bytes) -> str:
    """The reason that a refusal's body gives; "" for none."""
    try:
        return msgspec.json.decode(body, type=_Refusal).reason
    except msgspec.DecodeError:
        return ""
