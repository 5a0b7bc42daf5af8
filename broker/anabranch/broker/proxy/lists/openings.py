"""How watches of scalable topics (76, 77) begin through a proxy: with a list that may be shared.

A node is asked whether the list that others are sent at the moment is still the one, by its hash,
and says so before the names. Each time that a watch is opened has a number of its own, which comes
back with the list: so no answer is taken for that to another question, whichever ids a client uses.
"""

from __future__ import annotations

import asyncio
import itertools

from anabranch.broker.proxy.lists.shared import (
    ListHead,
    SharedList,
    SharedLists,
    known_to,
    message_of,
    opening_answer,
    with_hash,
)
from anabranch.broker.proxy.nodes.link import NodeLink
from anabranch.core.topic_lists.errors import PermitAcquireCancelledError, PermitAcquireError
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandWatchScalableTopicsUpdate,
    ScalableTopicsDiff,
)
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType
from anabranch.wire.server.server import Peer


class _Opening:
    """A watch, as it was opened last."""

    def __init__(self, command: BaseCommand, number: int) -> None:
        self.command = command
        self.number = number
        self.shared: SharedList | None = None  # the node is asked whether that still is the one
        self.known_hash = ""  # of that
        self.is_begun = False
        self.is_repeated = False  # what changes meanwhile is told of a list that never came


class WatchOpenings:
    """Those of one client."""

    def __init__(self, peer: Peer, limiter: AsyncDualMemoryLimiter, lists: SharedLists) -> None:
        self._peer = peer
        self._limiter = limiter
        self._lists = lists
        self._openings: dict[int, _Opening] = {}  # by watch id
        self._numbers = itertools.count(1)
        # One at a time: lists are kept for it, and a client may open many and be slow to read.
        self._expecting: _Opening | None = None

    def opened(self, command: BaseCommand) -> BaseCommand:
        """What a node is to be told when the client opens that watch, or it moves to that node."""
        self.close(command.watchScalableTopics.watch_id)
        return self._open(command)

    def close(self, watch_id: int) -> None:
        """It is wanted no more."""
        opening = self._openings.pop(watch_id, None)
        if opening is not None:
            self._leave(opening)

    def end(self) -> None:
        """The client is gone."""
        for watch_id in list(self._openings):
            self.close(watch_id)

    async def take(self, link: NodeLink, head: ListHead, frame_bytes: int) -> bool:
        """Takes what a node begins to send of a watch; False: it is to be passed on as it is.

        Raises PermitAcquireError, or FrameError where it is larger than a frame may be.
        """
        opening = self._openings.get(head.number)
        if head.opening != commands.NO_REQUEST:
            if opening is None or opening.number != head.opening:
                link.leave_out_list()  # of a watch that was closed, or opened anew
            else:
                await self._begin(link, opening, head.topics_hash, frame_bytes)
            return True
        if head.is_refusal:
            self.close(head.number)
        elif opening is not None and opening.is_repeated and not opening.is_begun:
            link.leave_out_list()
            return True
        return False

    def _open(self, command: BaseCommand, *, is_repeated: bool = False) -> BaseCommand:
        opening = _Opening(command, next(self._numbers))
        opening.is_repeated = is_repeated
        self._openings[command.watchScalableTopics.watch_id] = opening
        shared = self._lists.told_last(command) if self._expecting is None else None
        if shared is not None and shared.key is not None:
            self._expecting, opening.shared = opening, shared
            opening.known_hash = shared.key.topics_hash
        told = with_hash(command, opening.known_hash or known_to(command))
        told.watchScalableTopics.opening = opening.number
        return told

    def _expected(self, opening: _Opening) -> SharedList | None:
        """What its node was asked about, for the caller to leave."""
        if self._expecting is opening:
            self._expecting = None
        shared, opening.shared = opening.shared, None
        return shared

    def _leave(self, opening: _Opening) -> None:
        shared = self._expected(opening)
        if shared is not None:
            self._lists.leave(shared, opening)

    async def _begin(
        self, link: NodeLink, opening: _Opening, topics_hash: str, frame_bytes: int
    ) -> None:
        is_first, opening.is_begun = not opening.is_begun, True
        # A node may begin anew with the list that the client had at first, and has no more.
        if is_first and topics_hash and topics_hash == known_to(opening.command):
            link.leave_out_list()
            self._leave(opening)
            self._say_the_same(opening, topics_hash)
            return
        # From here on it is not the opening's to leave, whatever becomes of the watch.
        shared = self._joined(opening, topics_hash)
        try:
            if await self._is_there(link, opening, shared, frame_bytes):
                await shared.send(self._peer, opening.command, lambda: self._is_wanted(opening))
            elif self._is_wanted(opening):
                link.tell(self._open(opening.command, is_repeated=True))
        except PermitAcquireError as error:
            # Others who wait for the same list have waited as long for the memory.
            if shared.reader is opening and not isinstance(error, PermitAcquireCancelledError):
                shared.failure = error
            raise
        finally:
            self._lists.leave(shared, opening)

    def _joined(self, opening: _Opening, topics_hash: str) -> SharedList:
        before = self._expected(opening)
        if before is None:
            return self._lists.join(opening.command, topics_hash, opening)
        is_same = topics_hash and topics_hash == opening.known_hash  # so that no names come
        if is_same or before.is_for(opening.command, topics_hash):
            return before
        joined = self._lists.join(opening.command, topics_hash, opening)
        self._lists.leave(before, opening)
        return joined

    async def _is_there(
        self, link: NodeLink, opening: _Opening, shared: SharedList, frame_bytes: int
    ) -> bool:
        """Reads the list, or waits for who reads it; whether it was read to its end."""
        if shared.reader is opening:
            async with self._limiter.held(frame_bytes, LimitType.HEAP_MEMORY, self._is_gone) as own:
                data = await link.take_list()
                message = message_of(data, BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE)
                shared.land(message, own.hand_over())
            return True
        link.leave_out_list()
        is_read = await asyncio.shield(shared.landed)
        if not is_read and shared.failure is not None:
            raise type(shared.failure)(str(shared.failure))
        return is_read

    def _say_the_same(self, opening: _Opening, topics_hash: str) -> None:
        answer = CommandWatchScalableTopicsUpdate(topics_hash=topics_hash)
        answer.MergeFrom(opening_answer(opening.command))
        answer.diff.CopyFrom(ScalableTopicsDiff())
        self._peer.send(answer)

    def _is_wanted(self, opening: _Opening) -> bool:
        watch_id = opening.command.watchScalableTopics.watch_id
        return self._openings.get(watch_id) is opening and not self._is_gone()

    def _is_gone(self) -> bool:
        return not self._peer.is_open
