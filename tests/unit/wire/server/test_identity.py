"""Who the client of a connection is, while that is asked."""

from __future__ import annotations

import asyncio
import gc

from anabranch.core.security.principal import NOBODY, Principal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.server.admission import AdmittedPeer, Visitor
from anabranch.wire.server.identity import PeerIdentity
from support import steady


class Connected:
    """A connection of which nobody reads."""

    host = "127.0.0.1"
    principal: Principal = NOBODY
    certificate: dict[str, object] | None = None
    is_open = True

    def ask_anew(self) -> None: ...
    def hold(self) -> None: ...
    def go_on(self) -> None: ...
    def admitted(self, command: BaseCommand) -> None: ...
    def not_admitted(self, code: ServerError, reason: str) -> None: ...
    def challenge(self, asked: pb.AuthData) -> None: ...


class Asked:
    """Counts whom it was asked of."""

    def __init__(self) -> None:
        self.count = 0

    async def admit(self, connect: pb.CommandConnect, visitor: Visitor) -> AdmittedPeer:
        self.count += 1
        return AdmittedPeer(NOBODY)

    async def admit_again(self, shown: pb.AuthData, visitor: Visitor) -> AdmittedPeer:
        return await self.admit(pb.CommandConnect(), visitor)


def test_who_is_gone_before_it_is_looked_at_is_asked_of_nobody() -> None:
    """A coroutine that was made and never begun would be warned of, which fails this test."""

    async def test() -> None:
        asked = Asked()
        identity = PeerIdentity(Connected(), asked, 1.0)
        identity.begin(commands.envelope(pb.CommandConnect(client_version="c")))
        identity.end()
        await asyncio.sleep(0)
        assert asked.count == 0
        del identity
        gc.collect()

    steady.run(test())
