"""The binary port of a proxy: a node's own server, whose clients' commands go on to nodes."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from anabranch.proxy.session import ClientSession, SessionParts
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandConnect, ServerError
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import FRAME_BYTES_MAX, LIST_FRAME_BYTES_MAX
from anabranch.wire.server.identity import Admission
from anabranch.wire.server.server import Peer, Routes, WireServer

_LOOK_S: Final = 0.02


class ProxyClient(Peer):
    """A client, as the proxy sees it."""

    def __init__(self, server: ProxyServer) -> None:
        super().__init__(server)
        self.hello = CommandConnect()  # what nodes are told of it
        self.asker = ""  # for whom nodes are asked; "" where they are told of nobody
        self.session: ClientSession | None = None  # once it has said CONNECT
        self._is_asked = server.admission is not None
        self._counts = server.parts.counts

    @property
    def memory(self) -> int:
        """As of any client, and what its nodes have not taken."""
        return super().memory + (self.session.unsent if self.session is not None else 0)

    def greeted(self, hello: CommandConnect) -> None:
        self.hello.CopyFrom(hello)
        self.hello.ClearField("original_principal")
        self.hello.feature_flags.ClearField("resets")  # links end with the proxy's process as well
        if self._is_asked:
            # The proxy has made sure who the client is, and shows nodes who it is itself.
            self.hello.ClearField("auth_method_name")
            self.hello.ClearField("auth_data")
            self.asker = self.hello.original_principal = self.principal.role

    def refuse(self, command: BaseCommand, code: ServerError, reason: str) -> None:
        self._counts.refusals += 1
        super().refuse(command, code, reason)


class ProxyServer(WireServer):
    """Accepts clients of the proxy until it is stopped."""

    def __init__(
        self,
        parts: SessionParts,
        version: str,
        limits: ConnectionLimits,
        admission: Admission | None,
    ) -> None:
        # A node's limits, with room for a list, which is as long as it is.
        unsent = LIST_FRAME_BYTES_MAX + 2 * FRAME_BYTES_MAX
        limits = msgspec.structs.replace(limits, unsent_bytes_max=unsent)
        super().__init__(self._open_session, version, limits, admission)
        self.parts = parts

    def peer(self) -> Peer:
        self.parts.counts.connections += 1
        return ProxyClient(self)

    async def drain(self, grace_s: float) -> None:
        """Accepts no more, and waits for answers that are due."""
        self.stop_accepting()
        deadline = asyncio.get_running_loop().time() + grace_s
        while asyncio.get_running_loop().time() < deadline:
            if all(session.is_idle for session in self._sessions()):
                return
            await asyncio.sleep(_LOOK_S)

    def _sessions(self) -> list[ClientSession]:
        found = (getattr(peer, "session", None) for peer in self.peers)
        return [each for each in found if each is not None]

    def _open_session(self, peer: Peer) -> Routes:
        if not isinstance(peer, ProxyClient):
            raise TypeError(type(peer))
        peer.session = ClientSession(peer, self.parts, peer.hello, peer.asker)
        return peer.session.routes()
