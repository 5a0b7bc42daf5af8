"""Lists of topics through a proxy, in bounded memory (seed 003, "Proxy Reading Memory Control").

Before a node is asked there is heap memory for a small answer; when the answer's size is known, and
before any more of it is read, for all of it; and before it is written as much direct memory. Both
are given back when the client has taken it, on every path. One list at a time goes to a client: the
others wait at their nodes. The bytes are passed on as they are.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from anabranch.broker.logging import get_logger
from anabranch.broker.proxy.link import NodeLink
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX, encode_frame
from anabranch.wire.limiter import AsyncDualMemoryLimiter, HeldMemory, LimitType, write_within
from anabranch.wire.server import Peer

INITIAL_BYTES: Final = 10 * 1024  # held for an answer whose size is not known yet
_ANSWERS: Final = (
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
)
_log = get_logger()


class ListClient(Protocol):
    """What lists need of the session of a client."""

    async def ask_for_list(self, command: BaseCommand) -> None:
        """Passes the request on; returns when it was answered, or refused."""

    def list_passed(self, link: NodeLink, type_number: int, data: bytes) -> None:
        """The client has it."""

    def list_refused(self, link: NodeLink, type_number: int, why: str) -> None:
        """The client does not get it."""


class ListRelay:
    """The lists of one client."""

    def __init__(self, peer: Peer, client: ListClient, limiter: AsyncDualMemoryLimiter) -> None:
        self._peer = peer
        self._client = client
        self._limiter = limiter
        self._turn = asyncio.Lock()
        self._reserved: HeldMemory | None = None  # for the answer that is waited for

    async def ask(self, command: BaseCommand) -> None:
        """A request for a list; returns once it was answered. Raises PermitAcquireError."""
        async with (
            self._turn,
            self._limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY, self._is_gone) as memory,
        ):
            self._reserved = memory
            try:
                await self._client.ask_for_list(command)
            finally:
                self._reserved = None

    async def relay(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list that begins to come from a node, to its end."""
        taking = False
        try:
            if type_number in _ANSWERS and self._reserved is not None:
                await self._reserved.resize(frame_bytes)
                taking = True
                await self._pass_on(link, type_number)
            else:
                held = self._limiter.held(frame_bytes, LimitType.HEAP_MEMORY, self._is_gone)
                async with held:
                    taking = True
                    await self._pass_on(link, type_number)
        except (PermitAcquireError, FrameError) as error:
            _log.warning("proxy.list_refused", client=self._peer.address, why=str(error))
            self._client.list_refused(link, type_number, str(error))
            if not taking:
                link.leave_out_list()
                return
        link.list_over()

    async def _pass_on(self, link: NodeLink, type_number: int) -> None:
        data = await link.take_list()
        taken = await write_within(
            self._limiter,
            self._peer,
            len(data),
            lambda: encode_frame(data, LIST_FRAME_BYTES_MAX),
        )
        if taken:
            self._client.list_passed(link, type_number, data)

    def _is_gone(self) -> bool:
        return not self._peer.is_open
