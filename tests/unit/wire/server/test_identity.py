"""Who the client of a connection is, while that is asked."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.server.identity import AdmittedPeer, PeerIdentity, Visitor


async def test_who_is_gone_before_it_is_looked_at_is_asked_of_nobody() -> None:
    """A coroutine that was made and never begun would be warned of, which fails this test."""
    asked: list[object] = []

    async def admit(connect: pb.CommandConnect, visitor: Visitor) -> AdmittedPeer:
        asked.append(connect)
        return AdmittedPeer(visitor.principal)

    peer, admission = SimpleNamespace(hold=lambda: None), SimpleNamespace(admit=admit)
    identity = PeerIdentity(cast(Any, peer), cast(Any, admission), 1.0)
    identity.begin(commands.envelope(pb.CommandConnect(client_version="c")))
    identity.end()
    await asyncio.sleep(0)
    assert asked == []
    del identity
    gc.collect()
