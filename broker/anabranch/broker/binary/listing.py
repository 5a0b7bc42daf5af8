"""Lists of a namespace's topics (32, 33) and both kinds of their watches (64 to 67, 76 to 78).

This node answers from its own view, within the limiter's memory, in the order of the seed's flows.
It takes a little heap memory before it looks for the list, and then the list's. The answer takes
direct memory besides. Both are held until the client has taken the answer.

A client has one list or difference under way at a time, so a client that does not read holds up no
other. Changes meanwhile become one difference. It leads from the list that the client was told last
to the list whose hash it carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec
from google.protobuf.message import Message

from anabranch.broker.binary.client_watches import ClientWatch, ClientWatches
from anabranch.broker.binary.guarding import going_on
from anabranch.broker.errors import OperationError, OverloadedError, code_of
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.open_rights import OpenRight
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.lists import INITIAL_BYTES, KeptList, TopicLists
from anabranch.core.errors import AnabranchError
from anabranch.core.names import parse_namespace
from anabranch.core.security.resources import namespace_resource
from anabranch.core.strangers import PortRefusal
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.selection import (
    ALL,
    Selection,
    by_pattern,
    by_properties,
    check_filters,
)
from anabranch.core.topic_lists.topic_list import Difference, TopicList, topics_hash
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.errors import FrameError, RefusedError
from anabranch.wire.framing import encode_frame
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, HeldMemory, LimitType
from anabranch.wire.server.server import OpenSession, Peer, Routes
from anabranch.wire.varint import nested

SELECTED_MAX: Final = 100  # patterns and filters that one connection may follow
_LISTS: Final = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE
_AGAIN_S: Final = 1.0  # after a difference that there was no memory for
_NO_TOPICS: Final = topics_hash(())


class WatchKind(Enum):
    """The commands that open a watch; each kind has numbers of its own."""

    TOPIC_LIST = pb.BaseCommand.WATCH_TOPIC_LIST  # 64 to 67
    SCALABLE_TOPICS = pb.BaseCommand.WATCH_SCALABLE_TOPICS  # 76 to 78


_WatchKey = tuple[WatchKind, int]


class _Encoded:
    """The names that were encoded last, because many clients ask for the same list."""

    def __init__(self) -> None:
        self._of: tuple[TopicList, int, WatchKind | None] | None = None
        self._names = b""

    def names(self, kept: KeptList, kind: WatchKind | None) -> bytes:
        """Returns the names as a part of the answer to a watch, or (None) to a request."""
        of, names = (kept.list, kept.list.generation, kind), kept.list.names
        if self._of != of:
            message: Message
            if kind is None:
                message = pb.CommandGetTopicsOfNamespaceResponse(topics=names)
            elif kind is WatchKind.TOPIC_LIST:
                message = pb.CommandWatchTopicListSuccess(topic=names)
            else:
                told = pb.ScalableTopicsSnapshot(topics=names)
                message = pb.CommandWatchScalableTopicsUpdate(snapshot=told)
            self._of, self._names = of, message.SerializePartialToString()
        return self._names


class _Serving(msgspec.Struct, frozen=True):
    """The part of topic lists that all clients of a node share."""

    access: TopicAccess
    lists: TopicLists
    limiter: AsyncDualMemoryLimiter
    guard: AccessGuard | None  # ends watches whose right is gone; None: of none
    turn: asyncio.Lock  # of the clients that are told of changes
    encoded: _Encoded


class _Watch(ClientWatch[_WatchKey]):
    """One watch of one client."""

    __slots__ = ("generation", "kept")

    def __init__(self, key: _WatchKey, listing: _Listing, kept: KeptList) -> None:
        super().__init__(key, listing)
        self.kept = kept
        self.generation = kept.list.generation  # of the list that the client has, or is about to


class _Listing(ClientWatches[_WatchKey, _Watch]):
    """One client's requests for lists."""

    def __init__(self, peer: Peer, serving: _Serving) -> None:
        super().__init__(peer, "watch topics", serving.guard)
        self._serving = serving
        self._turn = asyncio.Lock()  # of what may wait for the client

    async def topics(self, command: pb.BaseCommand) -> None:
        """GET_TOPICS_OF_NAMESPACE."""
        asked = command.getTopicsOfNamespace
        home = parse_namespace(asked.namespace)
        is_filtered = asked.HasField("topics_pattern")
        selection = by_pattern(asked.topics_pattern) if is_filtered else ALL
        answer = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=asked.request_id, filtered=is_filtered
        )
        if asked.mode == pb.CommandGetTopicsOfNamespace.NON_PERSISTENT:  # there are no such topics
            answer.topics_hash = _NO_TOPICS
            answer.changed = asked.topics_hash != _NO_TOPICS
            self._peer.send(answer)
            return
        serving = self._serving
        with going_on(self._guard, self._peer, _LISTS, namespace_resource(home)) as right:
            async with self._turn, self._heap() as memory:
                kept = await serving.lists.of(home, selection)
                names = await self._assembled(kept, None, asked.topics_hash, memory)
                answer.topics_hash, answer.changed = kept.list.topics_hash, names is not None
                await self._send(answer, names, right)

    def _heap(self) -> HeldMemory:
        return self._serving.limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY, self._is_gone)

    def _is_gone(self) -> bool:
        return not self._peer.is_open

    async def _assembled(
        self, kept: KeptList, kind: WatchKind | None, known_hash: str, memory: HeldMemory
    ) -> bytes | None:
        """Returns the names, once there is memory for them; None if the client knows them."""
        if kept.list.topics_hash != known_hash:
            await memory.resize(kept.list.names_bytes)
        if kept.list.topics_hash == known_hash:  # the list may be that one by now
            return None
        return self._serving.encoded.names(kept, kind)

    async def _send(self, answer: Message, names: bytes | None, right: OpenRight) -> None:
        """Returns once the client has taken the answer, or it or its right is gone."""
        await self._peer.drained()
        fields = answer.SerializePartialToString() + (names or b"")
        async with self._serving.limiter.held(len(fields), LimitType.DIRECT_MEMORY, self._is_gone):
            if right.stands:
                self._peer.send_list(self._frame(commands.number_of(answer), fields))
                await asyncio.shield(self._peer.taken())

    def _frame(self, number: int, fields: bytes) -> bytes:
        head = pb.BaseCommand(type=commands.name_of(number)).SerializeToString()
        try:
            return encode_frame(head + nested(number, fields), self._peer.limits.list_bytes_max)
        except FrameError as error:
            raise RefusedError(
                pb.ServerError.NotAllowedError,
                f"the list of topics does not fit: {error}. Give a pattern or property filters, or "
                "read it by REST, where it comes in parts",
            ) from None

    # --- watches ------------------------------------------------------------------------

    async def watch_topic_list(self, command: pb.BaseCommand) -> None:
        """Answers WATCH_TOPIC_LIST; a watch that is open begins anew."""
        asked = command.watchTopicList
        key = (WatchKind.TOPIC_LIST, asked.watcher_id)
        await self._open(key, asked, lambda: by_pattern(asked.topics_pattern), asked.topics_hash)

    async def close_topic_list(self, command: pb.BaseCommand) -> None:
        """WATCH_TOPIC_LIST_CLOSE."""
        self._close((WatchKind.TOPIC_LIST, command.watchTopicListClose.watcher_id))
        self._peer.send(pb.CommandSuccess(request_id=command.watchTopicListClose.request_id))

    async def watch_scalable_topics(self, command: pb.BaseCommand) -> None:
        """Answers WATCH_SCALABLE_TOPICS; a watch that is open begins anew."""
        asked = command.watchScalableTopics
        key = (WatchKind.SCALABLE_TOPICS, asked.watch_id)
        try:
            await self._open(key, asked, lambda: _filtered(asked), asked.current_hash)
        except RefusedError as error:
            self._refuse(asked.watch_id, error.code, error.reason)
        except AnabranchError as error:
            self._refuse(asked.watch_id, code_of(error), str(error))

    async def close_scalable_topics(self, command: pb.BaseCommand) -> None:
        """WATCH_SCALABLE_TOPICS_CLOSE, which has no answer."""
        self._close((WatchKind.SCALABLE_TOPICS, command.watchScalableTopicsClose.watch_id))

    async def _open(
        self,
        key: _WatchKey,
        asked: pb.CommandWatchTopicList | pb.CommandWatchScalableTopics,
        select: Callable[[], Selection],
        known_hash: str,
    ) -> None:
        with self._to_open(key) as opening:
            self._serving.access.must_be_enabled()
            home, selection = parse_namespace(asked.namespace), select()
            self._check_room(selection)
            async with self._turn, self._heap() as memory:
                kept = await self._serving.lists.of(home, selection)
                if not self._is_wanted(key, opening):
                    return
                watch = _Watch(key, self, kept)
                self._begin(opening, watch, key[0].value, namespace_resource(home))
                self._serving.lists.watch(kept, watch.wake)
                try:
                    request_id = getattr(asked, "request_id", 0)
                    await self._tell_list(watch, memory, known_hash, request_id)
                except AnabranchError:
                    if self._watches.get(key) is watch:
                        self._drop(key)
                    raise

    def _check_room(self, selection: Selection) -> None:
        """Raises OverloadedError for one more selection than a client may follow."""
        followed = {each.kept.selection for each in self._watches.values()} - {ALL}
        if len(followed | {selection}) > SELECTED_MAX and not selection.is_all:
            raise OverloadedError(
                f"this connection follows {SELECTED_MAX} patterns and property filters, and may "
                "follow no more: close some, or watch the whole namespace"
            )

    async def _tell_list(
        self, watch: _Watch, memory: HeldMemory, known_hash: str = "", request_id: int = 0
    ) -> None:
        kind, number = watch.key
        names = await self._assembled(watch.kept, kind, known_hash, memory)
        watch.generation, found = watch.kept.list.generation, watch.kept.list.topics_hash
        answer: pb.CommandWatchTopicListSuccess | pb.CommandWatchScalableTopicsUpdate
        if kind is WatchKind.TOPIC_LIST:
            answer = pb.CommandWatchTopicListSuccess(
                request_id=request_id, watcher_id=number, topics_hash=found
            )
        else:
            answer = pb.CommandWatchScalableTopicsUpdate(watch_id=number, topics_hash=found)
            if names is None:
                answer.diff.SetInParent()
        await self._send(answer, names, watch.right)

    def _refuse(self, watch_id: int, code: pb.ServerError, why: str) -> None:
        self._peer.send(
            pb.CommandWatchScalableTopicsUpdate(watch_id=watch_id, error=code, message=why)
        )

    def _unfollow(self, watch: _Watch) -> None:
        self._serving.lists.unwatch(watch.kept, watch.wake)

    def _forbidden(self, watch: _Watch, error: OperationError) -> None:
        kind, number = watch.key
        if kind is WatchKind.TOPIC_LIST:  # for these there is no way to say so but this
            self._peer.turn_away(PortRefusal.REVOKED, str(error))
        else:
            self._refuse(number, code_of(error), str(error))

    # --- changes ------------------------------------------------------------------------

    async def _tell_some(self) -> None:
        try:
            async with self._turn:
                await self._peer.drained()
                await self._tell_next()
        except PermitAcquireError as error:
            self._log.warning("topic_list.watch_waits", why=str(error))
            await asyncio.sleep(_AGAIN_S)

    async def _tell_next(self) -> None:
        """Tells the watch that has been due for the longest time."""
        async with self._serving.turn:  # a change that many hear of holds up no heartbeat
            await asyncio.sleep(0)
        if not self._due:  # closed meanwhile
            return
        watch = self._due.pop(next(iter(self._due)))
        difference = None if watch.kept.is_over else watch.kept.list.since(watch.generation)
        if difference is None:
            await self._begin_anew(watch)
            return
        if not difference.is_empty:
            try:
                await self._send(_changes(watch.key, difference), None, watch.right)
            except PermitAcquireError:
                if self._watches.get(watch.key) is watch:
                    self._due[watch.key] = watch
                raise
        watch.generation = difference.generation

    async def _begin_anew(self, watch: _Watch) -> None:
        """Begins a watch anew if it is too far behind, or if its list is not kept any more."""
        kind, number = watch.key
        if kind is WatchKind.TOPIC_LIST:  # for these there is no way to say so but this
            raise RefusedError(
                pb.ServerError.ServiceNotReady,
                "a watch of a topic list was too far behind; connect and open it anew",
            )
        lists, former = self._serving.lists, watch.kept
        try:
            async with self._heap() as memory:
                kept = await lists.of(former.home, former.selection)
                if self._watches.get(watch.key) is not watch:
                    return
                lists.unwatch(former, watch.wake)
                watch.kept = kept
                lists.watch(kept, watch.wake)
                await self._tell_list(watch, memory)
        except (PermitAcquireError, OperationError) as error:
            if self._watches.get(watch.key) is watch:  # else it was closed while it waited
                self._drop(watch.key)
                self._refuse(number, code_of(error), str(error))


def _changes(key: _WatchKey, difference: Difference) -> Message:
    kind, number = key
    added, removed = difference.added, difference.removed
    if kind is WatchKind.TOPIC_LIST:
        return pb.CommandWatchTopicUpdate(
            watcher_id=number,
            new_topics=added,
            deleted_topics=removed,
            topics_hash=difference.topics_hash,
        )
    diff = pb.ScalableTopicsDiff(added=added, removed=removed)
    return pb.CommandWatchScalableTopicsUpdate(watch_id=number, diff=diff)


def _filtered(asked: pb.CommandWatchScalableTopics) -> Selection:
    """The topics that a watch of scalable topics is for. Raises InvalidInputError."""
    check_filters(len(asked.property_filters))  # of a stranger there may be a million
    return by_properties((each.key, each.value) for each in asked.property_filters)


def topic_lists(
    access: TopicAccess,
    lists: TopicLists,
    limiter: AsyncDualMemoryLimiter,
    guard: AccessGuard | None = None,
) -> OpenSession:
    """The part that serves lists of topics and their watches."""
    serving = _Serving(access, lists, limiter, guard, asyncio.Lock(), _Encoded())

    def open_session(peer: Peer) -> Routes:
        listing = _Listing(peer, serving)
        return {
            pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: listing.topics,
            pb.BaseCommand.WATCH_TOPIC_LIST: listing.watch_topic_list,
            pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE: listing.close_topic_list,
            pb.BaseCommand.WATCH_SCALABLE_TOPICS: listing.watch_scalable_topics,
            pb.BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: listing.close_scalable_topics,
        }

    return open_session
