"""The binary port of a proxy: a node's own server, whose clients' commands go on to nodes."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from anabranch.broker.proxy.clients.peer import ProxiedPeer
from anabranch.broker.proxy.clients.sessions import ClientSession
from anabranch.broker.proxy.parts import SharedParts
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import FRAME_BYTES_MAX, LIST_FRAME_BYTES_MAX
from anabranch.wire.server.server import Peer, Routes, WireServer

_LOOK_S: Final = 0.02


class ProxyClient(ProxiedPeer):
    """A client, as the proxy sees it."""

    def __init__(self, server: ProxyServer) -> None:
        super().__init__(server, server.shared.security)
        self.session: ClientSession | None = None  # once it has said CONNECT
        self._counts = server.shared.counts

    def refuse(self, command: BaseCommand, code: ServerError, reason: str) -> None:
        self._counts.refusals += 1
        super().refuse(command, code, reason)


class ProxyServer(WireServer):
    """Accepts clients of the proxy until it is stopped."""

    def __init__(self, shared: SharedParts, version: str, limits: ConnectionLimits) -> None:
        security = shared.security
        admission = security.admission if security is not None else None
        super().__init__(self._open_session, version, limits, admission)
        self.shared = shared

    def peer(self) -> Peer:
        self.shared.counts.connections += 1
        return ProxyClient(self)

    async def drain(self, grace_s: float) -> None:
        """Accepts no more, has consumers go elsewhere, and waits for answers that are due."""
        self.stop_accepting()
        for session in self._sessions():
            session.dismiss_consumers("the proxy is stopping")
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
        peer.session = ClientSession(peer, self.shared)
        return peer.session.routes()


def client_limits(limits: ConnectionLimits) -> ConnectionLimits:
    """Those of a node, with room for lists, which are as long as they are."""
    return msgspec.structs.replace(
        limits, unsent_bytes_max=LIST_FRAME_BYTES_MAX + 2 * FRAME_BYTES_MAX
    )
