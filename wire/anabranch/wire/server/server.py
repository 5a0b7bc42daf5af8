"""The node's side: accepts clients, shakes hands, hands commands to a session's routes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from anabranch.core.security.principal import NOBODY, Principal
from anabranch.core.strangers import PortRefusal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands, entries
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandError, ServerError
from anabranch.wire.connection import PROTOCOL_VERSION, Connection, ConnectionLimits
from anabranch.wire.errors import ExcessError, FrameError, RefusedError
from anabranch.wire.framing import FrameDecoder
from anabranch.wire.server.gate import Gate, code_of
from anabranch.wire.server.identity import Admission, PeerIdentity
from anabranch.wire.server.refusals import refusal, unserved, unsound

_BACKLOG: Final = 1024
_STOPPING: Final = "the node is stopping"
_UNDER_WAY: Final = "commands under way"  # for which no more are read
_LONG_COMMAND_BYTES: Final = 4_096  # for which the memory of its client is looked at
_SDK: Final = "anabranch"  # the name that its versions before the flag give
_STRANGER_FRAME_BYTES_MAX: Final = 1 << 16  # for a client without an identity yet

Route = Callable[[BaseCommand], Awaitable[None]]
Routes = Mapping[int, Route]
# Answers a sound command without waiting, or returns False: then its route is taken.
AtOnce = Callable[[BaseCommand], bool]
OpenSession = Callable[["Peer"], Routes]


class Peer(Connection):
    """A client, from the view of the node."""

    def __init__(self, server: WireServer) -> None:
        super().__init__(server.limits)
        self.principal: Principal = NOBODY  # the one that was asked for and checked
        self.client_version = ""
        self.protocol_version = 0
        self.reads_kafka = False  # Kafka has the messages: Pulsar's own clients do not read it
        self.has_hung_up = self._resets = False  # the one with its process only, by the other
        self.unfinished_bytes = 0  # the bytes of a frame that has begun
        self._lists = (0, 0)  # from where to where lists lie in what is written
        self._gate = server.gate
        self._server = server
        self._routes: Routes | None = None  # None until the handshake is done
        self._at_once: dict[int, AtOnce] = {}
        self._running: dict[asyncio.Task[None], int] = {}  # with the bytes of their commands
        self._asked_bytes = 0  # the sum of all these
        self._arrived_bytes = 0  # the size of the last command
        self._greeting = self._loop.call_later(self.limits.handshake_s_max, self._not_greeted)
        self._asked_at = 0.0  # the time of the last command, by the loop's clock
        self._idle: asyncio.TimerHandle | None = None
        self._identity: PeerIdentity | None = None  # None: clients need no identity
        if server.admission is not None:
            self._identity = PeerIdentity(self, server.admission, self.limits.handshake_s_max)
            received = min(_STRANGER_FRAME_BYTES_MAX, self.limits.received_frame_bytes_max)
            self._decoder.frame_bytes_max = received

    @property
    def certificate(self) -> dict[str, object] | None:
        """The verified certificate that it has shown to TLS, None for none."""
        if self._transport is None:
            return None
        found: dict[str, object] | None = self._transport.get_extra_info("peercert")
        return found or None

    def ask_anew(self) -> None:
        """Lets it show its credentials again, because the former ones may not count any more."""
        if self._identity is not None:
            self._identity.ask_anew()

    def refuse(self, command: BaseCommand, code: ServerError, reason: str) -> None:
        """Answers a command with an error, in the form that its client expects."""
        self.send_command(refusal(command, code, reason))

    def turn_away(self, refusal: PortRefusal, reason: str, code: ServerError | None = None) -> None:
        """Ends the connection, and tells the reason to a client that reads.

        `code` replaces the usual one of that kind of refusal.
        """
        self._gate.note(refusal, self, reason)
        if self._unsent or refusal in (PortRefusal.NOT_READ, PortRefusal.SILENT):
            self.abort(reason)  # also where it was closing, and waits for what is unsent
            return
        told = code_of(refusal) if code is None else code
        self.send(CommandError(request_id=commands.NO_REQUEST, error=told, message=reason))
        self.close(reason)
        self._decoder = FrameDecoder(self.limits.received_frame_bytes_max)  # the frame is forgotten
        self._count_unfinished()

    def give_up(self, refusal: PortRefusal, reason: str) -> None:
        if self.is_open:
            self.turn_away(refusal, reason)

    def answer_at_once(self, type_number: int, at_once: AtOnce) -> None:
        """Has `at_once` answer such commands. They also have a route, for those that must wait."""
        self._at_once[type_number] = at_once

    def open_watch(self) -> None:
        """Counts one more watch, or consumer, of this client.

        Close each, except after the client is gone. Raises RefusedError.
        """
        self._gate.open_watch(self)

    def close_watch(self) -> None:
        """Counts one watch less."""
        self._gate.account.close_watch(self)

    def send_list(self, frame: bytes) -> None:
        """Sends a list of topics. The limiter of lists keeps account of its memory, so that none
        counts for this client.
        """
        begin, end = self._lists
        if self._written - self._unsent >= end:  # nothing is left of those before
            begin = self._written
        self._lists = (begin, self._written + len(frame))
        self.send_frame(frame)

    @property
    def memory(self) -> int:
        """The bytes kept for it alone: not taken by it, of commands under way, of a frame begun."""
        return self._own(self._unsent) + self._asked_bytes + self.unfinished_bytes

    @property
    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._count_unfinished()

    def connection_lost(self, exc: Exception | None) -> None:
        # Not by `eof_received`, which uvloop does not call where a process with TLS is killed.
        self.has_hung_up = self._resets and self.is_open and exc is None
        super().connection_lost(exc)

    def go_on(self, why: object = None) -> None:
        super().go_on(why)
        self._count_unfinished()  # commands that had arrived may be taken now

    def _count_unfinished(self) -> None:
        unfinished = self._decoder.unfinished_bytes if self.is_open else 0
        if unfinished != self.unfinished_bytes:
            self.unfinished_bytes = unfinished
            self._gate.touch(self)

    def _own(self, unsent: int) -> int:
        """Returns the part of so many unsent bytes that are no lists."""
        begin, end = self._lists
        return unsent - max(0, end - max(begin, self._written - unsent))

    def looked(self, unsent: int) -> None:
        self._gate.touch(self)

    def arrived(self, data: bytes | bytearray) -> None:
        self._arrived_bytes = len(data)
        try:
            entries.check(data)
        except ExcessError as error:
            if self._routes is None:
                raise FrameError(str(error)) from None
            self.refuse(commands.parse(error.head), ServerError.NotAllowedError, str(error))
        else:
            super().arrived(data)

    def received(self, command: BaseCommand) -> None:
        self._asked_at = self._loop.time()
        at_once = self._at_once.get(command.type)
        if at_once is not None and commands.is_sound(command) and at_once(command):
            return
        number = commands.type_of(command)
        name = commands.name_of(number)
        fault = unsound(command)
        if fault is not None:
            self.refuse(command, *fault)
        elif self._routes is None:
            self._greet(command, name)
        elif number == BaseCommand.AUTH_RESPONSE and self._identity is not None:
            if not self._identity.answered(command.authResponse.response):
                self.refuse(command, ServerError.NotAllowedError, f"{name} was not asked for")
        elif number in self._routes:
            self._begin(self._routes[number], command)
        else:
            self.refuse(command, *unserved(name))

    def greeted(self, hello: pb.CommandConnect) -> None:
        """Takes the client's words of itself, before it has a session."""

    def pinged(self) -> bool:
        if self._routes is not None:
            return True
        self._too_early(commands.envelope(pb.CommandPing()), "PING")
        return False

    def ended(self, reason: str) -> None:
        self._greeting.cancel()
        if self._idle is not None:
            self._idle.cancel()
        if self._identity is not None:
            self._identity.end()
            self._identity = None
        for task in self._running:
            task.cancel()
        # They know this client: without them its memory is free at once, not when cycles are found.
        self._routes, self._at_once = {}, {}
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
        if self._identity is None:
            self._welcome(command)
        else:
            self._identity.begin(command)

    def not_admitted(self, code: ServerError, reason: str) -> None:
        """Turns away a client whose credentials are wrong or late, or cannot be checked now."""
        if self.is_open:
            self.turn_away(PortRefusal.AUTHENTICATION, reason, code)

    def challenge(self, asked: pb.AuthData) -> None:
        """Asks it to show its credentials again."""
        self.send(
            pb.CommandAuthChallenge(
                server_version=self._server.version,
                challenge=asked,
                protocol_version=self.protocol_version,
            )
        )

    def admitted(self, command: BaseCommand) -> None:
        """Lets the admitted client go on. Its frames may be longer now."""
        self._decoder.frame_bytes_max = self.limits.received_frame_bytes_max
        self._welcome(command)

    def _welcome(self, command: BaseCommand) -> None:
        self._greeting.cancel()
        self._gate.account.greet(self)
        self.greeted(command.connect)
        self.client_version = command.connect.client_version
        self.protocol_version = min(command.connect.protocol_version, PROTOCOL_VERSION)
        flags = command.connect.feature_flags
        self._resets = flags.resets
        self.reads_kafka = flags.reads_kafka or self.client_version == _SDK
        self.send(
            pb.CommandConnected(
                server_version=self._server.version,
                protocol_version=self.protocol_version,
                # The most that it may have to read. It may send less in a frame.
                max_message_size=self.limits.list_bytes_max,
                feature_flags=pb.FeatureFlags(
                    supports_scalable_topics=True,
                    supports_topic_watchers=True,
                    supports_topic_watcher_reconcile=True,
                ),
            )
        )
        self._routes = self._server.open_session(self)
        self._expect_use(self._asked_at)

    def _not_greeted(self) -> None:
        if self._identity is not None and self._identity.is_looked_at:
            self.not_admitted(
                ServerError.ServiceNotReady,
                f"who you are was not made sure of within {self.limits.handshake_s_max:g} s; try "
                "again",
            )
            return
        self.give_up(
            PortRefusal.HANDSHAKE, f"no CONNECT came within {self.limits.handshake_s_max:g} s"
        )

    def _expect_use(self, since: float) -> None:
        if self.limits.idle_s_max:
            self._idle = self._loop.call_at(since + self.limits.idle_s_max, self._idle_due)

    def _idle_due(self) -> None:
        now = self._loop.time()
        if self._running or self._gate.account.watches_of(self):
            self._expect_use(now)
        elif self._asked_at + self.limits.idle_s_max > now:
            self._expect_use(self._asked_at)
        else:
            self.give_up(
                PortRefusal.IDLE,
                f"nothing was asked for {self.limits.idle_s_max:g} s, and nothing is watched: "
                "connect again when there is something to ask",
            )

    def _too_early(self, command: BaseCommand, name: str) -> None:
        reason = f"{name} came before CONNECT"
        self._gate.note(PortRefusal.HANDSHAKE, self, reason)
        self.refuse(command, ServerError.NotAllowedError, reason)
        self.close(reason)

    def _begin(self, route: Route, command: BaseCommand) -> None:
        task = asyncio.create_task(self._run(route, command))
        self._running[task] = size = entries.memory_of(command, self._arrived_bytes)
        task.add_done_callback(self._ran)
        self._asks(size)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._asks(-self._running.pop(task))

    def _asks(self, more: int) -> None:
        """Counts more or less bytes under way. It reads no more if they are too many."""
        self._asked_bytes += more
        if abs(more) >= _LONG_COMMAND_BYTES:
            self._gate.touch(self)
        is_much = self._asked_bytes >= self.limits.received_frame_bytes_max
        if is_much or len(self._running) >= self.limits.requests_max:
            self.hold(_UNDER_WAY)
        elif self.is_open:
            self.go_on(_UNDER_WAY)

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
    """Accepts clients until it is stopped."""

    def __init__(
        self,
        open_session: OpenSession,
        version: str,
        limits: ConnectionLimits,
        admission: Admission | None = None,
    ) -> None:
        self.open_session = open_session
        self.admission = admission  # None: clients need no identity
        self.version = version
        self.limits = limits
        self.gate = Gate(limits.account)
        self.peers: set[Peer] = set()
        self._listeners: list[asyncio.Server] = []
        self._is_stopping = False

    @property
    def port(self) -> int:
        """Returns the first port that it listens on, 0 once it is stopped."""
        sockets = self._listeners[0].sockets if self._listeners else ()
        return int(sockets[0].getsockname()[1]) if sockets else 0

    async def start(self, host: str, port: int) -> None:
        """Accepts clients from now on."""
        loop = asyncio.get_running_loop()
        self._listeners.append(await loop.create_server(self.peer, host, port, backlog=_BACKLOG))

    async def listen(self, held: socket.socket) -> None:
        """Accepts on a bound socket, which becomes its own."""
        loop = asyncio.get_running_loop()
        held.setblocking(False)
        self._listeners.append(await loop.create_server(self.peer, sock=held, backlog=_BACKLOG))

    def stop_accepting(self) -> None:
        """Accepts no more. Connected clients stay."""
        for listener in self._listeners:
            listener.close()

    async def stop(self) -> None:
        """Accepts no more, tells every client, and returns when all are gone."""
        self.stop_accepting()
        self._is_stopping = True
        for peer in list(self.peers):
            peer.close(_STOPPING)
        while self.peers:
            await asyncio.gather(*(peer.finished() for peer in self.peers))
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    def joined(self, peer: Peer) -> None:
        """Notes that a client has connected."""
        self.peers.add(peer)
        self.gate.joined(peer)
        if self._is_stopping:  # it was accepted before that
            peer.close(_STOPPING)

    def left(self, peer: Peer) -> None:
        """Notes that a client is gone."""
        self.peers.discard(peer)
        self.gate.left(peer)

    def peer(self) -> Peer:
        """Returns a peer for a client that connects, here or to another acceptor."""
        return Peer(self)
