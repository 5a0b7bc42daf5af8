"""Requests to nodes over HTTP/1.1: connections that are kept, answers that are read as they come.

It does only as much as a proxy needs, or a node that asks another one. A connection has one request
at a time, and sends its body whole. The answer comes in chunks that wait until the reader takes
them. A general client would cost more than the request does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from anabranch.access.tls import reason_of
from anabranch.broker.errors import DeadlineExceededError, OperationError, UnavailableError
from anabranch.broker.security.outgoing import UNAUTHORIZED, OutgoingAccess
from anabranch.wire.placed_reads import SharedReads

_IDLE_S_MAX: Final = 2.0  # a node ends what is idle for 5 s
_IDLE_MAX: Final = 256  # connections to one node that wait for the next request
_BUFFER_BYTES: Final = 256 * 1024  # the part of an answer that waits for its reader
_HEAD_BYTES_MAX: Final = 64 * 1024

Header = tuple[bytes, bytes]


class NodeUnreachableError(UnavailableError):
    """No connection to the node came about, so it was not asked (503)."""


class NodeLostError(OperationError):
    """The connection to the node ended before its answer was there whole (502)."""


class NodeSilentError(DeadlineExceededError):
    """The node did not answer in time; it may still do the request (504)."""


class NotLetInError(UnavailableError):
    """The node does not take the credentials, so nothing was done (503)."""


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

    def encoded(self, address: str, access: OutgoingAccess) -> bytes:
        """Returns the bytes that are sent to the node at this address."""
        parts = [self.method.encode(), b" ", self.target, b" HTTP/1.1\r\nhost: ", address.encode()]
        shown = () if self.asker is None else access.headers(self.asker)
        for name, value in (*self.headers, *shown):
            parts += (b"\r\n", name, b": ", value)
        if self.body or not self.is_safe:
            parts += (b"\r\ncontent-length: ", str(len(self.body)).encode())
        parts += (b"\r\n\r\n", self.body)
        return b"".join(parts)


class NodeAnswer(asyncio.Protocol):
    """A connection to a node, and the answer to its newest request."""

    def __init__(self, address: str, access: OutgoingAccess) -> None:
        self.address = address
        self._access = access
        self.status = 0
        self.headers: list[Header] = []
        self.is_reused = False
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._head_bytes = 0
        self._is_head_there = False
        self._is_whole = True
        self._is_bodyless = False
        self._can_be_kept = True
        self._is_paused = False
        self._failure = ""
        self._waiter: asyncio.Future[None] | None = None

    # --- for users ----------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """True once all of the answer is there."""
        return self._is_whole

    @property
    def is_usable(self) -> bool:
        """True if another request may follow on this connection."""
        return (
            self._is_whole
            and self._can_be_kept
            and not self._is_paused  # a body that nobody took
            and self._transport is not None
            and not self._transport.is_closing()
        )

    async def ask(self, request: NodeRequest, timeout_s: float) -> None:
        """Returns once the answer's head is there. Raises NodeLostError, NodeSilentError."""
        self.status, self.headers, self._chunks = 0, [], []
        self._buffered = self._head_bytes = 0
        self._is_head_there = self._is_whole = False
        self._is_bodyless = request.method == "HEAD"
        if self._transport is not None:
            self._transport.write(request.encoded(self.address, self._access))
        while not self._is_head_there:
            await self._next(timeout_s)

    async def chunks(self, timeout_s: float) -> AsyncIterator[bytes]:
        """The answer's body as it comes. Raises NodeLostError, NodeSilentError."""
        while True:
            if self._chunks:
                yield self._take()
            elif self._is_whole:
                return
            else:
                await self._next(timeout_s)

    def at_once(self) -> bytes:
        """The body of an answer that is whole."""
        return self._take()

    def _take(self) -> bytes:
        """Returns all that has come of the body; the node may send more then."""
        chunks, self._chunks = self._chunks, []
        self._buffered = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def end(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()

    async def _next(self, timeout_s: float) -> None:
        if self._failure or self._transport is None:
            raise NodeLostError(f"node {self.address} {self._failure or 'has gone'}")
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            self.end()
            raise NodeSilentError(
                f"node {self.address} did not answer in {timeout_s:g} s; it may do the request all "
                "the same: look before you ask again"
            ) from None
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fails(self, why: str) -> None:
        self._failure = self._failure or why
        self._can_be_kept = False
        self._wake()
        self.end()

    # --- asyncio.Protocol ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._is_whole:
            self._fails("sent what nobody had asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fails(f"does not speak HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._is_whole:
            self._failure = self._failure or "ended the connection before it had answered"
        self._wake()

    # --- httptools ----------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _HEAD_BYTES_MAX:
            raise httptools.HttpParserError(f"a head of more than {_HEAD_BYTES_MAX} bytes")
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        self._is_head_there = True
        self._can_be_kept = bool(self._parser.should_keep_alive())
        if self._is_bodyless:  # the parser would wait for what never comes
            self._can_be_kept = False
            self._is_whole = True
        self._wake()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > _BUFFER_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._is_head_there:
            self._is_whole = True
            self._wake()


class NodeHttp:
    """All connections of a process to the HTTP ports of nodes."""

    def __init__(
        self, connect_s_max: float, answer_s_max: float, access: OutgoingAccess, *, is_tls: bool
    ) -> None:
        self._access = access
        self._is_tls = is_tls
        self.answer_s_max = answer_s_max
        self._connect_s_max = connect_s_max
        self._idle: dict[str, list[NodeAnswer]] = {}
        self._loop = asyncio.get_running_loop()

    async def ask(self, address: str, request: NodeRequest) -> NodeAnswer:
        """Returns the node's answer, as far as its head; `give_back` it in the end.

        A node that does not take the credentials is asked once more if there are newer ones. Raises
        NodeUnreachableError, NodeLostError, NodeSilentError, and NotLetInError.
        """
        shown = self._access.generation
        found = await self._ask(address, request)
        if found.status != UNAUTHORIZED or request.asker is None or not self._access.shows:
            return found
        why = reason_in(await self.whole(found))
        await self._access.look()
        if self._access.generation != shown:
            found = await self._ask(address, request)
            if found.status != UNAUTHORIZED:
                return found
            why = reason_in(await self.whole(found))
        raise NotLetInError(f"node {address} does not let this process in: {why}")

    async def whole(self, answer: NodeAnswer) -> bytes:
        """The answer's body, with which it is given back. Raises NodeLostError, NodeSilentError."""
        try:
            return b"".join([chunk async for chunk in answer.chunks(self.answer_s_max)])
        finally:
            self.give_back(answer)

    async def _ask(self, address: str, request: NodeRequest) -> NodeAnswer:
        while True:
            connection = self._kept(address) or await self._connected(address)
            try:
                await connection.ask(request, self.answer_s_max)
            except NodeLostError:
                # One that was kept may have been ended by the node before it was asked.
                if connection.is_reused and request.is_safe:
                    continue
                raise
            except BaseException:
                connection.end()
                raise
            return connection

    def give_back(self, connection: NodeAnswer) -> None:
        """Its answer was taken, or is not wanted."""
        idle = self._idle.setdefault(connection.address, [])
        if not connection.is_usable or len(idle) >= _IDLE_MAX:
            connection.end()
            return
        connection.is_reused = True
        connection.idle_since = self._loop.time()
        idle.append(connection)

    def close(self) -> None:
        """Ends idle connections."""
        for idle in self._idle.values():
            for connection in idle:
                connection.end()
        self._idle.clear()

    def _kept(self, address: str) -> NodeAnswer | None:
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_usable and self._loop.time() - connection.idle_since < _IDLE_S_MAX:
                return connection
            connection.end()
        return None

    async def _connected(self, address: str) -> NodeAnswer:
        where = urlsplit(f"//{address}")
        host = where.hostname or ""
        try:
            async with asyncio.timeout(self._connect_s_max):
                connection = NodeAnswer(address, self._access)
                await self._loop.create_connection(
                    lambda: SharedReads(connection) if self._is_tls else connection,
                    host,
                    where.port or 0,
                    ssl=self._access.tls.context() if self._is_tls else None,
                )
        except TimeoutError:
            raise NodeUnreachableError(
                f"node {address} cannot be reached within {self._connect_s_max:g} s"
            ) from None
        except ssl.SSLError as error:
            raise NodeUnreachableError(
                f"node {address} cannot be reached by TLS: {reason_of(error, host)}"
            ) from None
        except OSError as error:
            raise NodeUnreachableError(
                f"node {address} cannot be reached: {error.strerror or error}"
            ) from None
        return connection


class _Refusal(msgspec.Struct):
    """The body of a refusal."""

    reason: str


def reason_in(body: bytes) -> str:
    """The reason that a refusal's body gives; "" for none."""
    try:
        return msgspec.json.decode(body, type=_Refusal).reason
    except msgspec.DecodeError:
        return ""
