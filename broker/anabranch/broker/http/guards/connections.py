"""HTTP connections that cannot use up the node: limits in front of uvicorn's own.

uvicorn bounds neither a request's line and headers, which its parser joins in quadratic time, nor
their duration. A connection that sends nothing stays for ever. So each connection stands in front
of uvicorn's, and counts the bytes that it passes on. It knows from the application that a request
is there whole, and has its answer. If there are too many connections, those go that only wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.broker.http.errors import refusal
from anabranch.broker.logging import get_logger
from anabranch.broker.security.credentials import CERTIFICATE_KEY
from anabranch.broker.settings.ports import HttpLimits
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire import clock

_PER_HEADER: Final = 4  # colon, space, end of line
_LOOKS: Final = 4  # at the time that connections take, in the longest that they may
# Every answer has it, so that a browser trusts the content type, and takes no answer for a script.
NOSNIFF: Final = (b"x-content-type-options", b"nosniff")


_SILENT_S: Final = 10.0  # after one of a kind was logged

_log = get_logger()


class Refused:
    """The refusals of one part of a node's HTTP port."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self.counts: dict[str, int] = {}  # by kind, in a word
        self._now = now
        self._logged = LogRateLimit(_SILENT_S)

    def note(self, kind: str, **said: object) -> None:
        """Counts a refusal, and logs one of each kind in a while: floods would fill the log."""
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if self._logged.due(kind, self._now()):
            _log.info("http.refused", **said, count=count)


class Connections:
    """All connections of a server, and the ASGI application in front of its own."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self.limits = limits
        self.refused = Refused()  # connections that ended by a limit, or by what came over them
        self._app = app
        self._all: set[BoundedConnection] = set()
        self._waiting: dict[BoundedConnection, None] = {}  # for a request; longest first
        self._looking: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """Connections."""
        return len(self._all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = _current.get()
        certificate = connection.certificate
        if certificate is not None:
            scope[CERTIFICATE_KEY] = certificate
        app = self._app
        if connection.unread > self.limits.header_bytes_max and (
            _head_bytes(scope) > self.limits.header_bytes_max
        ):
            self.refused.note("header", peer=connection.peer, why=self._too_long)
            app = refusal(431, self._too_long, {"Connection": "close"})
        self._waiting.pop(connection, None)
        connection.serves(scope)
        try:
            await app(scope, receive, send)
        finally:
            if connection in self._all:
                connection.waits()
                self._waiting[connection] = None

    @property
    def _too_long(self) -> str:
        return (
            "the request's line and headers are longer than httpMaxRequestHeaderSize, "
            f"{self.limits.header_bytes_max} bytes"
        )

    def joined(self, connection: BoundedConnection) -> None:
        """A client has connected."""
        self._all.add(connection)
        self._waiting[connection] = None
        if self._looking is None:
            self._look()
        if len(self._all) > self.limits.connections_max:
            longest = next(iter(self._waiting))
            del self._waiting[longest]  # more may come before it is gone: each needs another one
            longest.give_up(
                503,
                "connections",
                f"this node has {self.limits.connections_max} HTTP connections, which is "
                "maxHttpServerConnections; try again, or ask another node",
            )

    def left(self, connection: BoundedConnection) -> None:
        """A client is gone."""
        self._all.discard(connection)
        self._waiting.pop(connection, None)

    def too_long(self, connection: BoundedConnection) -> None:
        """What a client has sent is longer than a head, and none is there."""
        connection.give_up(431, "header", self._too_long)

    def _look(self) -> None:
        """Ends connections that take too long, now and from time to time."""
        loop = asyncio.get_running_loop()
        now, most = loop.time(), self.limits.request_s_max
        for each in list(self._all):
            each.look(now, most)
        self._looking = loop.call_later(most / _LOOKS, self._look) if self._all else None

    def refusals(self) -> int:
        """Returns the number of connections that a limit, or malformed bytes, ended."""
        return sum(self.refused.counts.values())


class BoundedConnection(asyncio.Protocol):
    """One connection. `served`: uvicorn's protocol for it."""

    transport: asyncio.Transport

    def __init__(self, connections: Connections, served: asyncio.Protocol) -> None:
        self.unread = 0  # bytes since the last request was there, or had its answer
        self.certificate: Mapping[str, Any] | None = None  # that TLS has verified
        self.peer = "?"
        self._of = connections
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._is_busy = False  # with a request
        self._body_bytes = 0  # that its head has told
        self._skipped_bytes = 0  # of the last body, which may come after the answer
        self._is_held = False  # nothing more is read until it has its answer
        self._is_over = False
        self._since = self._loop.time()  # a request is expected
        self._stalled_since: float | None = None  # an answer is not taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's says not that it is one
        self.certificate = transport.get_extra_info("peercert") or None
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._served.connection_made(transport)
        self._of.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._of.left(self)
        self._served.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._served.eof_received()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self.unread:
            self._since = self._loop.time()
        self.unread += len(data)
        mark = _current.set(self)  # the task that serves the request takes it along
        try:
            self._served.data_received(data)
        finally:
            _current.reset(mark)
        if self.transport.is_closing():
            self._is_over = True  # uvicorn has said so
            self._of.refused.note("malformed", peer=self.peer, why="it is no HTTP request")
        elif self.unread > self._of.limits.header_bytes_max:
            self._loop.call_soon(self._is_much)  # once a request that is there has begun

    def _is_much(self) -> None:
        limits = self._of.limits
        if self._is_over or self.unread <= limits.header_bytes_max:
            return
        if not self._is_busy:
            if self.unread > limits.header_bytes_max + self._skipped_bytes:
                self._of.too_long(self)
        elif self.unread > limits.header_bytes_max + limits.body_bytes_max and not self._is_held:
            self._is_held = True
            self.transport.pause_reading()

    def serves(self, scope: Scope) -> None:
        """A request is there, at least its head."""
        self._is_busy = True
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        self._body_bytes = int(lengths[0]) if lengths else 0
        self.unread = max(0, self.unread - _head_bytes(scope)) if lengths else 0

    def waits(self) -> None:
        """The request has its answer, and the next may come."""
        self._is_busy = False
        self._skipped_bytes = max(0, self._body_bytes - self.unread)
        if self._skipped_bytes > self._of.limits.body_bytes_max and not self._is_over:
            self._is_over = True  # no body may be so long, so the rest of it is not read
            why = "its body is longer than any may be"
            self._of.refused.note("body", peer=self.peer, why=why)
            self.transport.close()
        self.unread = 0
        self._since = self._loop.time()
        if self._is_held and not self._is_over:
            self._is_held = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._stalled_since = self._loop.time()
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = None
        self._served.resume_writing()

    def look(self, now: float, seconds_max: float) -> None:
        """Ends it if it has taken longer than that."""
        if self._stalled_since is not None and now - self._stalled_since >= seconds_max:
            self._is_over = True
            why = "its answer was not taken in time"
            self._of.refused.note("not_read", peer=self.peer, why=why)
            self.transport.abort()
        elif not self._is_busy and now - self._since >= seconds_max:
            if self.unread:
                self.give_up(408, "time", f"the request was not there within {seconds_max:g} s")
            else:
                self._is_over = True
                self.transport.close()

    def give_up(self, status: int, kind: str, reason: str) -> None:
        """Ends a connection that waits, with an answer."""
        if self._is_over:
            return
        self._is_over = True
        self._of.refused.note(kind, peer=self.peer, why=reason)
        answer = refusal(status, reason, {"Connection": "close"})
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [name + b": " + value for name, value in (*answer.raw_headers, NOSNIFF)]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(answer.body))
        self.transport.close()


def _head_bytes(scope: Scope) -> int:
    size = len(scope["raw_path"]) + len(scope["query_string"])
    return size + sum(len(name) + len(value) + _PER_HEADER for name, value in scope["headers"])


_current: ContextVar[BoundedConnection] = ContextVar("connection")
