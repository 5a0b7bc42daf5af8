"""HTTP connections that cannot use up the node: uvicorn's, with limits in front of its parser.

uvicorn bounds neither a request's line and headers, which its parser joins in quadratic time, nor
their duration. A connection that sends nothing stays for ever. Here bytes are counted before they
are parsed. A request has a time by which it must be there, and an answer one by which it must be
taken. If there are too many connections, those go that only wait.

An application costs a request a task and some calls of it. A frequent request with a short answer
can be spared them: `AtOnce` is offered each request first. Its answers are written in one piece,
which with TLS is one record and not two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from anabranch.broker.http.errors import refusal
from anabranch.broker.http.guards.refused import Refused
from anabranch.broker.http.senders import CALLER_KEY, Caller
from anabranch.broker.security.credentials import CERTIFICATE_KEY
from anabranch.broker.settings.ports import HttpLimits
from anabranch.core.strangers import AccountLimits, ExemptAddresses, PortAccount, stranger_of

_PIECE: Final = 4_096  # bytes that are parsed between two looks at the limits
_PER_HEADER: Final = 4  # colon, space, end of line
# Every answer has it, so that a browser trusts the content type, and takes no answer for a script.
NOSNIFF: Final = (b"x-content-type-options", b"nosniff")


class ReadyAnswer:
    """An answer that does not depend on the request."""

    __slots__ = ("closing", "keeping")

    def __init__(self, status_line: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        lines = [status_line, *(name + b": " + value for name, value in (*headers, NOSNIFF))]
        head = b"\r\n".join(lines)
        self.keeping: Final = head + b"\r\n\r\n" + body
        self.closing: Final = head + b"\r\nconnection: close\r\n\r\n" + body  # the connection


class OfferedRequest:
    """A request whose body is not needed, and the way of its answer."""

    __slots__ = ("_app", "_connection", "_cycle")

    def __init__(
        self, connection: BoundedProtocol, cycle: RequestResponseCycle, app: ASGI3Application
    ) -> None:
        self._connection = connection
        self._cycle = cycle
        self._app = app

    @property
    def scope(self) -> Scope:
        """The request's ASGI scope."""
        return cast(Scope, self._cycle.scope)

    def answer(self, ready: ReadyAnswer) -> None:
        """Answers it; nothing is done for a client that has gone."""
        self._connection.answer(self._cycle, ready)

    def hand_on(self) -> None:
        """Leaves it to the application, after it had been taken."""
        self._connection.begin(self._cycle, self._app)


# Takes a request, and answers it at once or later, or hands it on later; or returns False at once.
AtOnce = Callable[[OfferedRequest], bool]


class Connections:
    """All connections of a server."""

    def __init__(self, limits: HttpLimits, at_once: AtOnce | None = None) -> None:
        self.limits = limits
        self.at_once = at_once
        self.count = 0
        self.refused = Refused()  # connections that ended by a limit, or by what came over them
        self._waiting: dict[BoundedProtocol, None] = {}  # for a request; longest first
        self._account: PortAccount[BoundedProtocol] = PortAccount(
            AccountLimits(connections_per_ip=limits.connections_per_ip_max)
        )
        self._exempt = ExemptAddresses(limits.exempt)

    def joined(self, connection: BoundedProtocol) -> None:
        """A client has connected."""
        self.count += 1
        self._waiting[connection] = None
        host = connection.host
        found = self._account.join(
            connection, stranger_of(host), is_exempt=self._exempt.holds(host)
        )
        if found.refusal is not None:
            del self._waiting[connection]
            connection.give_up(
                503,
                found.refusal.value,
                f"this node has {self.limits.connections_per_ip_max} HTTP connections from your "
                "address, which is maxHttpServerConnectionsPerIp; close some",
            )
            return
        if self.count > self.limits.connections_max:
            longest = next(iter(self._waiting))
            del self._waiting[longest]  # more may come before it is gone: each needs another one
            longest.give_up(
                503,
                "connections",
                f"this node has {self.limits.connections_max} HTTP connections, which is "
                "maxHttpServerConnections; try again, or ask another node",
            )

    def left(self, connection: BoundedProtocol) -> None:
        """A client is gone."""
        self.count -= 1
        self._account.leave(connection)
        self._waiting.pop(connection, None)

    def waits(self, connection: BoundedProtocol) -> None:
        """It may send its next request."""
        self._waiting[connection] = None

    def serves(self, connection: BoundedProtocol) -> None:
        """Its request is there."""
        self._waiting.pop(connection, None)

    def refusals(self) -> int:
        """Returns the number of connections that a limit, or malformed bytes, ended."""
        return sum(self.refused.counts.values())


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, connections: Connections, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._all = connections
        self._limits = connections.limits
        self._reads_head = False
        self._head_bytes = 0  # of a head that is not there yet
        self._is_between = True  # requests
        self._is_over = False
        self._since: float | None = None  # a request is expected
        self._deadline: asyncio.TimerHandle | None = None  # not cancelled by each request
        self._stalled: asyncio.TimerHandle | None = None  # an answer that is not taken
        self._certificate: dict[str, Any] | None = None  # that TLS has verified
        self._caller = Caller()

    @property
    def host(self) -> str:
        """The client's address, without its port."""
        return self.client[0] if self.client else "?"

    # --- bytes that come in ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._certificate = transport.get_extra_info("peercert") or None
        self._expect()
        self._all.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._all.left(self)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._expect()  # also of what is no beginning of a request, such as empty lines
        for start in range(0, len(data), _PIECE):
            if self._is_over:
                return
            piece = data if len(data) <= _PIECE else data[start : start + _PIECE]
            was_between = self._is_between
            if self._reads_head:
                self._head_bytes += len(piece)
            super().data_received(piece)
            if self._reads_head and was_between:
                self._head_bytes = len(piece)
            if self._reads_head and self._head_bytes > self._limits.header_bytes_max:
                self._too_long()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope = cast(dict[str, Any], self.scope)
        scope[CALLER_KEY] = self._caller
        if self._certificate is not None:
            scope[CERTIFICATE_KEY] = self._certificate
        self._is_between = False
        self._reads_head, self._head_bytes = True, 0
        self._expect()

    def on_headers_complete(self) -> None:
        self._reads_head = False
        if self._is_over:
            return
        most = self._limits.header_bytes_max
        if self._head_bytes or most < _PIECE:  # else it came in one piece
            size = len(self.url) + sum(len(n) + len(v) + _PER_HEADER for n, v in self.headers)
            if size > most:
                self._too_long()
                return
        for name, value in self.headers:
            if name == b"content-length" and self._is_too_much(value):
                return
        super().on_headers_complete()

    def _is_too_much(self, told: bytes) -> bool:
        most = self._limits.body_bytes_max
        if not told.isdigit() or int(told) <= most:
            return False
        self.give_up(413, "body", f"the body has {int(told)} bytes; httpMaxRequestSize is {most}")
        return True

    def on_body(self, body: bytes) -> None:
        if not self._is_over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_between = True
        self._all.serves(self)
        self._since = None
        if not self._is_over:
            super().on_message_complete()
            self._next()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_over:
            self._next()

    def _next(self) -> None:
        """Waits for the next request, once the last one is there whole and has its answer, which it
        may have before its body.
        """
        if self._is_between and self.cycle.response_complete and not self.pipeline:
            self._all.waits(self)

    # --- answers that go out ------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        at_once = self._all.at_once
        if (
            at_once is None
            or self.flow.write_paused  # an application waits then
            or cycle.waiting_for_100_continue
            or not at_once(OfferedRequest(self, cycle, app))
        ):
            super()._start_asgi_task(cycle, app)

    def begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Leaves a request that was taken to the application."""
        if not self._is_over:
            super()._start_asgi_task(cycle, app)

    def answer(self, cycle: RequestResponseCycle, ready: ReadyAnswer) -> None:
        """Answers a request that was taken."""
        if self._is_over:
            return
        cycle.response_started = cycle.response_complete = True
        self.transport.write(ready.keeping if cycle.keep_alive else ready.closing)
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self._limits.request_s_max, self._not_taken)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # --- the end ------------------------------------------------------------------------

    def give_up(self, status: int, why: str, reason: str) -> None:
        """Ends the connection, with an answer unless one was begun."""
        if self._is_over:
            return
        self._is_over = True
        self._all.refused.note(why, peer=self._peer, why=reason)
        cycle = self._current
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        answer = refusal(status, reason, {"Connection": "close"})
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Refused')}".encode()]
        lines += [name + b": " + value for name, value in (*answer.raw_headers, NOSNIFF)]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(answer.body))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Sends Uvicorn's answer to bytes that are no HTTP."""
        self.give_up(400, "malformed", f"this is no HTTP request: {msg}")

    def _unsupported_upgrade_warning(self) -> None:
        """The request is answered as any other: no line of the log for each."""

    def _too_long(self) -> None:
        self.give_up(
            431,
            "header",
            "the request's line and headers are longer than httpMaxRequestHeaderSize, "
            f"{self._limits.header_bytes_max} bytes",
        )

    def _expect(self) -> None:
        if self._since is None:
            self._since = self.loop.time()
            if self._deadline is None:
                self._set_deadline(self._since)

    def _set_deadline(self, since: float) -> None:
        self._deadline = self.loop.call_at(since + self._limits.request_s_max, self._due, since)

    def _due(self, since: float) -> None:
        self._deadline = None
        if self._is_over or self._since is None:
            return
        if self._since > since:  # of a later request
            self._set_deadline(self._since)
        else:
            self._too_late()

    def _too_late(self) -> None:
        cycle = self._current
        is_answering = cycle is not None and not cycle.response_complete
        if self.flow.read_paused or (self._is_between and is_answering):
            self._set_deadline(self.loop.time())  # it is the node that takes its time
        elif self._is_between:
            self._is_over = True
            self.transport.close()
        else:
            self.give_up(
                408,
                "time",
                "the request was not there within httpRequestTimeoutMillis, "
                f"{round(self._limits.request_s_max * 1000)}",
            )

    def _not_taken(self) -> None:
        self._is_over = True
        self._all.refused.note("not_read", peer=self._peer, why="its answer was not taken in time")
        self.transport.abort()

    @property
    def _current(self) -> RequestResponseCycle | None:
        return cast(RequestResponseCycle | None, self.cycle)  # none before the first request

    @property
    def _peer(self) -> str:
        return f"{self.client[0]}:{self.client[1]}" if self.client else "?"


_PHRASES: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def protocol_of(connections: Connections) -> Callable[..., BoundedProtocol]:
    """Returns the factory that uvicorn calls for each connection."""

    def made(*args: Any, **named: Any) -> BoundedProtocol:
        return BoundedProtocol(connections, *args, **named)

    return made
