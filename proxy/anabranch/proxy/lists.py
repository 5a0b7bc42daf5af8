"""Lists of topics through a proxy, in bounded memory (PIP-442, "Proxy Reading Memory Control").

A request for a list holds heap memory for a small answer before a node is asked. The proxy reads
the first piece of the answer, then holds heap memory for all of it. It holds as much direct memory
before it writes. Both come back when the client has taken the list, and on every other path. A list
that nobody has asked for, such as a change of a watched one, holds the same while it passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.broker.logging import get_logger
from anabranch.core.strangers import PortRefusal
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.proxy.link import PIECE_BYTES_MAX, NodeLink
from anabranch.wire import commands, entries
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.errors import RefusedError
from anabranch.wire.framing import LIST_FRAME_BYTES_MAX, encode_frame
from anabranch.wire.memory.limiter import (
    AsyncDualMemoryLimiter,
    HeldMemory,
    LimitType,
    write_within,
)
from anabranch.wire.server.server import Peer

# Held for an answer whose size is not known yet, and for what comes of it before it is taken.
INITIAL_BYTES: Final = PIECE_BYTES_MAX + 2 * 1024
PATIENCE_S: Final = 2.0  # a node that waits for ten seconds ends its connection
ANSWER_S_MAX: Final = 60.0  # a node's own lists wait for memory, twice 25 s by default
_log = get_logger()


class _Request:
    """The request for a list that is under way."""

    def __init__(self, number: int, memory: HeldMemory, deadline: asyncio.Timeout) -> None:
        self.number = number
        self.memory = memory
        self.deadline = deadline
        # Bytes for which there was no memory, so that the list was left out; 0: it is answered.
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def settle(self, missing: int, error: Exception | None = None) -> None:
        """Ends it; nothing happens where nobody waits for it any more."""
        if self.over.done():
            return
        if error is None:
            self.over.set_result(missing)
        else:
            self.over.set_exception(error)


class ListRelay:
    """The lists of one client.

    `send` has a node asked, and raises RefusedError. `answered`: a link has this request's answer.
    """

    def __init__(
        self,
        peer: Peer,
        limiter: AsyncDualMemoryLimiter,
        send: Callable[[BaseCommand], Awaitable[None]],
        answered: Callable[[NodeLink, int], None],
    ) -> None:
        self._peer = peer
        self._limiter = limiter
        self._send = send
        self._answered = answered
        self._turn = asyncio.Lock()  # one at a time, so that an answer is that to the one request
        self._request: _Request | None = None

    @property
    def is_idle(self) -> bool:
        """True if no request is under way, or waits."""
        return not self._turn.locked()

    async def ask(self, command: BaseCommand) -> None:
        """A request for a list; returns once it was answered. Raises RefusedError."""
        async with self._turn:
            try:
                await self._ask(command)
            except PermitAcquireError as error:
                _log.warning("proxy.list_refused", client=self._peer.address, why=str(error))
                raise RefusedError(ServerError.TooManyRequests, str(error)) from error

    async def _ask(self, command: BaseCommand) -> None:
        number = commands.request_id_of(command)
        async with self._limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY, self._is_gone) as own:
            while True:
                try:
                    async with asyncio.timeout(ANSWER_S_MAX) as deadline:
                        self._request = request = _Request(number, own, deadline)
                        await self._send(command)
                        missing = await request.over
                except TimeoutError:  # a late answer could not be told from that to the next one
                    self._peer.close(f"no node sent a list within {ANSWER_S_MAX:g} s")
                    return
                finally:
                    self._request = None
                if not missing:
                    return
                await own.resize(missing)

    def refused(self) -> None:
        """The node has refused the request that is under way."""
        if self._request is not None:
            self._request.settle(0)

    async def relay(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list that begins to come from a node, to its end."""
        is_answer = type_number == BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
        if is_answer and self._request is not None:
            await self._answer(link, self._request, frame_bytes)
            return
        try:
            async with self._limiter.held(frame_bytes, LimitType.HEAP_MEMORY, self._is_gone):
                data = await self._pass(link)
        except PermitAcquireError as error:
            _log.warning("proxy.list_refused", client=self._peer.address, why=str(error))
            why = f"a list that is watched could not be passed on, watch it again: {error}"
            self._peer.turn_away(PortRefusal.COSTLY, why)
            return
        if type_number == BaseCommand.WATCH_TOPIC_LIST_SUCCESS:
            self._answered(link, entries.request_id_in(data))

    async def _answer(self, link: NodeLink, request: _Request, frame_bytes: int) -> None:
        request.deadline.reschedule(None)  # from here on memory and sockets have their own
        self._answered(link, request.number)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await request.memory.resize(frame_bytes)
        except TimeoutError:
            # The node is asked again when there is memory, and takes nobody for one that is deaf.
            link.leave_out_list()
            request.settle(frame_bytes)
            return
        except PermitAcquireError as error:
            link.leave_out_list()
            request.settle(0, error)
            return
        try:
            await self._pass(link)
        except PermitAcquireError as error:
            request.settle(0, error)
        else:
            request.settle(0)

    async def _pass(self, link: NodeLink) -> bytes | bytearray:
        data = await link.take_list()
        try:
            await write_within(
                self._limiter,
                self._peer,
                len(data),
                lambda: encode_frame(data, LIST_FRAME_BYTES_MAX),
            )
        finally:
            link.list_over()
        return data

    def _is_gone(self) -> bool:
        return not self._peer.is_open
