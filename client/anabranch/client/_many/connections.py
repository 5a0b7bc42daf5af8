"""`SharedConnections`: the layout watches and sessions of many topics on few connections.

With a connection for each, 1,000 topics would need 2,000. A `Line` is the part of a connection
for one watch or session, and looks to it like a connection of its own. The number in a push selects
its line: a line's first message with a `session_id` or `consumer_id` takes that number.

If a connection leaves a request unanswered, and answers no other one meanwhile, all of its lines
stop to trust it. If it answers others, the node is slow. To give up thousands of sessions and begin
them anew would only make it slower.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

from google.protobuf.message import Message

from anabranch.client._topics.nodes import Connect, NodeConnection, Push
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import connect
from anabranch.wire.errors import RefusedError, RequestTimeoutError

REQUESTS_MAX: Final = 100  # under way on one connection; the others wait for their turn
_CONNECT_S_MAX: Final = 5.0
_IDS: Final = ("session_id", "consumer_id")


class _Shared:
    """One connection, with its lines."""

    def __init__(self) -> None:
        self.connection: NodeConnection | None = None
        self.lines: set[Line] = set()
        self.turn = asyncio.Semaphore(REQUESTS_MAX)
        self.answers = 0  # to requests
        self.routes: dict[tuple[str, int], Line] = {}
        self.is_aborted = False  # True: the node may still have the session of a line that left

    def pushed(self, command: BaseCommand) -> None:
        payload = commands.payload_of(command)
        for name in _IDS:
            if payload is not None and name in payload.DESCRIPTOR.fields_by_name:
                line = self.routes.get((name, getattr(payload, name)))
                if line is not None:
                    line.on_push(command)


class Line:
    """The part of a connection for one watch or session.
    It has the part of `ClientConnection` that these need.
    """

    def __init__(self, shared: _Shared, connection: NodeConnection, on_push: Push) -> None:
        loop = asyncio.get_running_loop()
        self.on_push = on_push
        self.closed: asyncio.Future[str] = loop.create_future()
        self.address = connection.address
        self._shared = shared
        self._connection = connection
        self._routes: list[tuple[str, int]] = []
        shared.lines.add(self)

    @property
    def is_open(self) -> bool:
        """True if sending still makes sense."""
        return not self.closed.done() and self._connection.is_open

    def send(self, message: Message) -> None:
        """Sends a message without an answer."""
        if self.is_open:
            self._route(message)
            self._connection.send(message)

    async def request(self, message: Message, timeout_s: float) -> BaseCommand:
        """Sends a request in its turn and returns the answer.
        `timeout_s` counts from the sending.
        """
        self._route(message)
        shared = self._shared
        async with shared.turn:
            before = shared.answers
            try:
                answer = await self._connection.request(message, timeout_s)
            except RequestTimeoutError:
                if shared.answers == before:
                    self._connection.abort("a request was not answered")
                raise
            except RefusedError:
                shared.answers += 1
                raise
            shared.answers += 1
            return answer

    def close(self, why: str) -> None:
        """Leaves the connection, which ends with the last of its lines.

        It ends by a reset if a line was aborted. Else the process of that session would seem to
        end.
        """
        if self._leave(why):
            end = self._connection.abort if self._shared.is_aborted else self._connection.close
            end("nobody is on it any more")

    def abort(self, why: str) -> None:
        """Leaves the connection, which goes on for its other lines."""
        self._shared.is_aborted = True
        self.close(why)

    def _leave(self, why: str) -> bool:
        """Leaves the connection. Returns True if this was the last line."""
        shared = self._shared
        if self not in shared.lines:
            return False
        shared.lines.discard(self)
        for route in self._routes:
            if shared.routes.get(route) is self:
                del shared.routes[route]
        self.ended(why)
        return not shared.lines

    def ended(self, why: str) -> None:
        """Notes that nothing comes by it any more."""
        if not self.closed.done():
            self.closed.set_result(why)

    def _route(self, message: Message) -> None:
        fields: Any = message
        for name in _IDS:
            if name in message.DESCRIPTOR.fields_by_name:
                route = name, getattr(fields, name)
                if self._shared.routes.get(route) is not self:
                    self._shared.routes[route] = self
                    self._routes.append(route)


class SharedConnections:
    """The connections of one consumer over many topics, one to each node, on one event loop."""

    def __init__(self, connecting: Connect = connect) -> None:
        self._connect = connecting
        self._shared: dict[str, _Shared] = {}  # by address
        self._connecting: dict[str, asyncio.Lock] = {}

    async def connect(
        self, host: str, port: int, *, on_push: Push, timeout_s: float = _CONNECT_S_MAX
    ) -> NodeConnection:
        """Returns a line to that node. Raises the errors of `Connect`."""
        address = f"{host}:{port}"
        async with self._connecting.setdefault(address, asyncio.Lock()):
            shared = self._shared.get(address)
            if shared is None or shared.connection is None or not shared.connection.is_open:
                shared = _Shared()
                shared.connection = await self._connect(
                    host, port, on_push=shared.pushed, timeout_s=timeout_s
                )
                shared.connection.closed.add_done_callback(functools.partial(_end_lines, shared))
                self._shared[address] = shared
            return Line(shared, shared.connection, on_push)


def _end_lines(shared: _Shared, closed: asyncio.Future[str]) -> None:
    why = "the client was closed" if closed.cancelled() else closed.result()
    for line in list(shared.lines):
        line.ended(why)
