"""Lists of topics through a proxy, in bounded memory (PIP-442, "Proxy Reading Memory Control").

Before a node is asked there is heap memory for a small answer; when the answer's size is known, and
before any more of it is read, for all of it; and before it is written as much direct memory. Both
are given back when the client has taken it, on every path. Of a list that somebody is sent already
there is one copy (`shared`). One list at a time goes to a client: the others wait at their
nodes. The bytes are passed on as they are.

A node does not wait for long until a list is read. So one for which there is no memory at once is
left out, and asked for again when there is; only the answer to a new watch is waited for, since
changes follow it.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from anabranch.broker.logging import get_logger
from anabranch.broker.proxy.lists.openings import WatchOpenings
from anabranch.broker.proxy.lists.shared import (
    ListHead,
    SharedList,
    SharedLists,
    list_head,
    message_of,
    with_hash,
)
from anabranch.broker.proxy.nodes.link import PIECE_BYTES_MAX, NodeLink
from anabranch.core.topic_lists.errors import PermitAcquireCancelledError, PermitAcquireError
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import FrameError
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
_PATIENCE_S: Final = 2.0  # for which a node is kept waiting for memory; it gives up after ten
_ANSWERS: Final = (
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
)
_log = get_logger()


class ListClient(Protocol):
    """What lists need of the session of a client."""

    async def ask_for_list(self, command: BaseCommand) -> None:
        """Passes the request on; returns when it was answered, or is over without."""

    def list_came(self, link: NodeLink, command: BaseCommand) -> None:
        """The node has answered: if it is lost now, nothing is asked again."""

    def list_over(self, command: BaseCommand, *, is_told: bool) -> None:
        """The client has the list, or the request is to be repeated."""

    def list_refused(self, command: BaseCommand, why: str) -> None:
        """The client does not get the list."""

    def change_passed(self, type_number: int, data: bytes | bytearray) -> None:
        """The client has what changed in a list, or the whole of one that it watches."""

    def change_refused(self, why: str) -> None:
        """The client does not get that."""


class _Asked:
    """The request that is under way."""

    def __init__(self, command: BaseCommand) -> None:
        self.command = command
        self.memory: HeldMemory | None = None  # for the answer
        self.shared: SharedList | None = None
        self.size = INITIAL_BYTES  # to be held when it is asked
        self.known_hash = ""  # of the shared list, if the node is asked whether that is still it
        self.is_put_off = False

    @property
    def is_repeatable(self) -> bool:
        """A watch is not: its node tells changes from the first answer on."""
        return self.command.type == BaseCommand.GET_TOPICS_OF_NAMESPACE

    def is_answered_by(self, head: ListHead) -> bool:
        """Whether that is the answer, and not one to a request that has been given up."""
        return head.number == commands.request_id_of(self.command)

    def fail(self, error: PermitAcquireError) -> None:
        """Others who wait for the same list have waited as long for the memory."""
        is_gone = isinstance(error, PermitAcquireCancelledError)  # which is no affair of theirs
        if self.shared is not None and self.shared.reader is self and not is_gone:
            self.shared.failure = error


class ListRelay:
    """The lists of one client."""

    def __init__(
        self,
        peer: Peer,
        client: ListClient,
        limiter: AsyncDualMemoryLimiter,
        lists: SharedLists,
    ) -> None:
        self._peer = peer
        self._client = client
        self._limiter = limiter
        self._lists = lists
        self.watches = WatchOpenings(peer, limiter, lists)
        self._turn = asyncio.Lock()
        self._asked: _Asked | None = None

    async def ask(self, command: BaseCommand) -> None:
        """A request for a list; returns once it was answered. Raises PermitAcquireError."""
        async with self._turn:
            asked = self._asked = _Asked(command)
            try:
                await self._ask(asked)
                while asked.is_put_off:
                    asked.is_put_off = False
                    await self._ask(asked)
            except PermitAcquireError as error:
                asked.fail(error)
                raise
            finally:
                self._asked = None
                self._lists.answered(command, asked)
                self._leave(asked)

    async def _ask(self, asked: _Asked) -> None:
        if asked.shared is None or asked.shared.is_lost:
            self._leave(asked)
            asked.shared = await self._lists.newest(asked.command, asked)
        question, asked.known_hash, shared = asked.command, "", asked.shared
        if shared is not None and shared.key is not None and shared.reader is not asked:
            asked.known_hash = shared.key.topics_hash
            question = with_hash(question, asked.known_hash)
        held = self._limiter.held(asked.size, LimitType.HEAP_MEMORY, self._is_gone)
        async with held as asked.memory:
            await self._client.ask_for_list(question)

    def _leave(self, asked: _Asked) -> None:
        shared, asked.shared = asked.shared, None
        if shared is not None:
            self._lists.leave(shared, asked)

    async def relay(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        """A list that begins to come from a node, to its end."""
        head = list_head(link.list_head(), type_number)
        asked = self._asked
        if type_number not in _ANSWERS or asked is None or not asked.is_answered_by(head):
            asked = None  # a change, or what was waited for too long
        try:
            if asked is None:
                is_watch = type_number == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE
                if not is_watch or not await self.watches.take(link, head, frame_bytes):
                    await self._pass_change(link, type_number, frame_bytes)
            else:
                await self._answer(link, asked, head.topics_hash, type_number, frame_bytes)
        except (PermitAcquireError, FrameError) as error:
            _log.warning("proxy.list_refused", client=self._peer.address, why=str(error))
            link.leave_out_list()
            if asked is None:
                self._client.change_refused(str(error))
            else:
                if isinstance(error, PermitAcquireError):
                    asked.fail(error)
                self._client.list_came(link, asked.command)
                self._client.list_refused(asked.command, str(error))
        link.list_over()

    # --- answers ----------------------------------------------------------------------------

    async def _answer(
        self, link: NodeLink, asked: _Asked, topics_hash: str, type_number: int, frame_bytes: int
    ) -> None:
        memory = asked.memory
        if memory is None:
            return
        shared = self._joined(asked, topics_hash)
        self._lists.answered(asked.command, asked)
        if shared.reader is asked:
            if not await self._has_room(asked, memory, frame_bytes):
                self._put_off(link, asked, frame_bytes)
                return
            data = await link.take_list()
            self._client.list_came(link, asked.command)
            shared.land(message_of(data, type_number), memory.hand_over())
        else:  # somebody reads the same, or has read it
            link.leave_out_list()
            self._client.list_came(link, asked.command)
            await memory.resize(0)
            if not await asyncio.shield(shared.landed):
                if shared.failure is not None:  # there was no memory for it
                    raise type(shared.failure)(str(shared.failure))
                self._put_off(link, asked, INITIAL_BYTES)
                return
        await self._send(asked, shared)

    def _joined(self, asked: _Asked, topics_hash: str) -> SharedList:
        before = asked.shared
        is_same = topics_hash and topics_hash == asked.known_hash  # so that no names come
        if before is not None and (is_same or before.is_for(asked.command, topics_hash)):
            return before
        asked.shared = self._lists.join(asked.command, topics_hash, asked)
        if before is not None:
            self._lists.leave(before, asked)
        return asked.shared

    async def _has_room(self, asked: _Asked, memory: HeldMemory, size: int) -> bool:
        """Waits for memory, but not for long if the request can be repeated."""
        try:
            async with asyncio.timeout(_PATIENCE_S if asked.is_repeatable else None):
                await memory.resize(size)
        except TimeoutError:
            return False
        return True

    def _put_off(self, link: NodeLink, asked: _Asked, size: int) -> None:
        """Has it asked again, once so much memory is there."""
        if not asked.is_repeatable:
            raise FrameError("the list was not read to its end: open the watch anew")
        link.leave_out_list()
        self._client.list_came(link, asked.command)
        asked.size, asked.is_put_off = size, True
        self._client.list_over(asked.command, is_told=False)

    async def _send(self, asked: _Asked, shared: SharedList) -> None:
        def is_wanted() -> bool:
            return asked is self._asked and not self._is_gone()  # it may have taken too long

        if await shared.send(self._peer, asked.command, is_wanted):
            self._client.list_over(asked.command, is_told=True)

    # --- changes ----------------------------------------------------------------------------

    async def _pass_change(self, link: NodeLink, type_number: int, frame_bytes: int) -> None:
        async with self._limiter.held(frame_bytes, LimitType.HEAP_MEMORY, self._is_gone):
            data = await link.take_list()
            taken = await write_within(
                self._limiter,
                self._peer,
                len(data),
                lambda: encode_frame(data, LIST_FRAME_BYTES_MAX),
            )
        if taken:
            self._client.change_passed(type_number, data)

    def _is_gone(self) -> bool:
        return not self._peer.is_open
