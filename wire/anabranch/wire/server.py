"""The node's side: accepts clients, shakes hands, hands commands to a session's routes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandError,
    CommandPing,
    FeatureFlags,
    ServerError,
)
from anabranch.wire.connection import DEFAULT_LIMITS, PROTOCOL_VERSION, Connection, ConnectionLimits
from anabranch.wire.errors import RefusedError
from anabranch.wire.refusals import refusal

_BACKLOG: Final = 1024
_SDK: Final = "anabranch"  # as its versions before the flag say who they are
KAFKA_CLIENTS: Final = "use Anabranch's SDK or its command line, or a client of Kafka"

Route = Callable[[BaseCommand], Awaitable[None]]
Routes = Mapping[int, Route]
OpenSession = Callable[["Peer"], Routes]


class Peer(Connection):
    """A client, as the node sees it."""

    def __init__(self, server: WireServer) -> None:
        super().__init__(server.limits)
        self.client_version = ""
        self.protocol_version = 0
        self.reads_kafka = False  # where the messages are: Pulsar's own clients do not
        self.unfinished_bytes = 0  # as the server counts them
        self._server = server
        self._routes: Routes | None = None  # None until the handshake is done
        self._running: set[asyncio.Task[None]] = set()
        self._greeting = self._loop.call_later(
            self.limits.handshake_s_max, self.close, "no CONNECT came"
        )

    def refuse(self, command: BaseCommand, code: ServerError, reason: str) -> None:
        """Answers a command with an error, in the form that its client expects."""
        self._send(refusal(command, code, reason))

    def turn_away(self, reason: str) -> None:
        """Ends the connection with a word, before anything was asked."""
        self.send(
            CommandError(
                request_id=commands.NO_REQUEST, error=ServerError.TooManyRequests, message=reason
            )
        )
        self.close(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._count(self._decoder.unfinished_bytes if self.is_open else 0)

    def _count(self, unfinished: int) -> None:
        more, self.unfinished_bytes = unfinished - self.unfinished_bytes, unfinished
        self._server.keeps(more)

    def received(self, command: BaseCommand) -> None:
        number = commands.type_of(command)
        name = commands.name_of(number)
        missing = commands.lacking(command)
        garbled = "" if missing else commands.garbled(command)
        if garbled:
            self.refuse(
                command, ServerError.NotAllowedError, f"{name}: {garbled} is not UTF-8 text"
            )
        elif missing:
            self.refuse(
                command,
                ServerError.UnsupportedVersionError,
                f"{name} lacks {missing}, or has a value there that this node does not know",
            )
        elif self._routes is None:
            self._greet(command, name)
        elif number in self._routes:
            self._begin(self._routes[number], command)
        elif name.startswith("command "):
            self.refuse(
                command, ServerError.UnsupportedVersionError, f"{name} is not known to this node"
            )
        else:
            self.refuse(
                command,
                ServerError.NotAllowedError,
                f"{name} is not served here: this node serves look-ups and scalable topics, whose "
                f"messages are on Kafka; {KAFKA_CLIENTS}",
            )

    def pinged(self) -> bool:
        if self._routes is not None:
            return True
        self._too_early(commands.envelope(CommandPing()), "PING")
        return False

    def ended(self, reason: str) -> None:
        self._count(0)
        self._greeting.cancel()
        for task in self._running:
            task.cancel()
        self._server.left(self)
        self._logger.debug("wire.closed", why=reason)

    async def finished(self) -> None:
        """Returns once the connection is gone and nothing runs for it any more."""
        await asyncio.wait([self.closed])
        await asyncio.gather(*self._running, return_exceptions=True)

    def _greet(self, command: BaseCommand, name: str) -> None:
        if command.type != BaseCommand.CONNECT:
            self._too_early(command, name)
            return
        self._greeting.cancel()
        self.client_version = command.connect.client_version
        self.protocol_version = min(command.connect.protocol_version, PROTOCOL_VERSION)
        flags = command.connect.feature_flags
        self.reads_kafka = flags.reads_kafka or self.client_version == _SDK
        self.send(
            CommandConnected(
                server_version=self._server.version,
                protocol_version=self.protocol_version,
                max_message_size=self.limits.frame_bytes_max,
                feature_flags=FeatureFlags(supports_scalable_topics=True),
            )
        )
        self._routes = self._server.open_session(self)

    def _too_early(self, command: BaseCommand, name: str) -> None:
        reason = f"{name} came before CONNECT"
        self.refuse(command, ServerError.NotAllowedError, reason)
        self.close(reason)

    def _begin(self, route: Route, command: BaseCommand) -> None:
        task = asyncio.create_task(self._run(route, command))
        self._running.add(task)
        task.add_done_callback(self._ran)
        if len(self._running) >= self.limits.requests_max:
            self.hold()

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self.is_open:
            self.go_on()

    async def _run(self, route: Route, command: BaseCommand) -> None:
        try:
            await route(command)
        except RefusedError as error:
            self.refuse(command, error.code, error.reason)
        except Exception as error:
            name = commands.name_of(commands.type_of(command))
            self._logger.error("wire.fault", command=name, exc_info=error)
            reason = f"{name} met a fault in the node, {type(error).__name__}; its log says where"
            self.refuse(command, ServerError.UnknownError, reason)


class WireServer:
    """Accepts clients until it is stopped; `serve` makes it."""

    def __init__(self, open_session: OpenSession, version: str, limits: ConnectionLimits) -> None:
        self.open_session = open_session
        self.version = version
        self.limits = limits
        self.peers: set[Peer] = set()
        self._unfinished_bytes = 0
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Returns where it listens; 0 once it is stopped."""
        sockets = self._server.sockets if self._server is not None else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    async def start(self, host: str, port: int, held: socket.socket | None) -> None:
        """Accepts from now on."""
        loop = asyncio.get_running_loop()
        if held is not None:
            held.setblocking(False)
            self._server = await loop.create_server(self.peer, sock=held, backlog=_BACKLOG)
        else:
            self._server = await loop.create_server(self.peer, host, port, backlog=_BACKLOG)

    def stop_accepting(self) -> None:
        """Accepts no more; who is connected stays so."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """Accepts no more, tells every client, and returns when all are gone."""
        self.stop_accepting()
        peers = list(self.peers)
        for peer in peers:
            peer.close("the node is stopping")
        await asyncio.gather(*(peer.finished() for peer in peers))
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def joined(self, peer: Peer) -> None:
        """A client has connected."""
        self.peers.add(peer)
        most = self.limits.connections_max
        if len(self.peers) > most:
            reason = f"this node has {most} clients, which is brokerMaxConnections; try another one"
            peer.turn_away(reason)

    def left(self, peer: Peer) -> None:
        """A client is gone."""
        self.peers.discard(peer)

    def keeps(self, more_bytes: int) -> None:
        """So much more, or less, of frames that are not there yet is kept for clients."""
        self._unfinished_bytes += more_bytes
        if more_bytes > 0 and self._unfinished_bytes > self.limits.unfinished_bytes_max:
            greatest = max(self.peers, key=lambda peer: peer.unfinished_bytes)
            greatest.abort(
                "the frames that clients have begun fill the node's memory for them, "
                f"brokerMaxUnfinishedFramesMemory, and {greatest.unfinished_bytes} bytes are of "
                "this one"
            )

    def peer(self) -> Peer:
        """One for a client that connects; a server of another kind makes its own."""
        return Peer(self)


async def serve(
    open_session: OpenSession,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    held: socket.socket | None = None,
    version: str = "anabranch",
    limits: ConnectionLimits = DEFAULT_LIMITS,
) -> WireServer:
    """A server that accepts clients: on `held`, a bound socket that becomes its own, or a port."""
    server = WireServer(open_session, version, limits)
    await server.start(host, port, held)
    return server
