"""Lists of a namespace's topics (32, 33) and both kinds of their watches (64 to 67, 76 to 78).

This node answers from its own view, within the limiter's memory, in the order of the seed's flows.
It takes a little heap memory before it looks for the list, and the list's heap memory while it
assembles that. The answer takes direct memory until the client has taken it. Memory that several
clients share is counted once.

A client has one list or difference under way at a time, so a client that does not read holds up no
other. Changes meanwhile become one difference. It leads from the list that the client was told last
to the list whose hash it carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.broker.binary.guarding import going_on, open_right
from anabranch.broker.binary.handlers import code_of
from anabranch.broker.binary.list_payloads import Form, Payloads
from anabranch.broker.binary.list_serving import ListServing
from anabranch.broker.binary.pace import PushPace
from anabranch.broker.binary.watch_kinds import WATCH_OPENERS, WatchKind, selection_of
from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.open_rights import UNASKED, OpenRight
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.kept_list import KeptList
from anabranch.broker.topics.list_shares import Sharers
from anabranch.broker.topics.lists import INITIAL_BYTES, TopicLists
from anabranch.core.errors import AnabranchError
from anabranch.core.names import Namespace, parse_namespace
from anabranch.core.security.resources import namespace_resource
from anabranch.core.strangers import PortRefusal
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.selection import ALL, Selection, by_pattern
from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandSuccess,
    CommandWatchScalableTopicsUpdate,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
    ScalableTopicsDiff,
    ServerError,
)
from anabranch.wire.errors import FrameError, RefusedError
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType
from anabranch.wire.memory.shared import SharedPayload, frame_head
from anabranch.wire.server.server import OpenSession, Peer, Routes

_LISTS: Final = BaseCommand.GET_TOPICS_OF_NAMESPACE
_AGAIN_S: Final = 1.0  # after a difference that there was no memory for
_NO_TOPICS: Final = topics_hash(())

_Answer = (
    CommandGetTopicsOfNamespaceResponse
    | CommandWatchTopicListSuccess
    | CommandWatchTopicUpdate
    | CommandWatchScalableTopicsUpdate
)
_WatchKey = tuple[WatchKind, int]
_Group = tuple[WatchKind, KeptList, int]  # those of one client that are to be told the same


class _Watch:
    """One watch of one client."""

    __slots__ = ("_listing", "generation", "kept", "key", "right")

    def __init__(self, listing: _Listing, key: _WatchKey, kept: KeptList) -> None:
        self._listing = listing
        self.key = key
        self.kept = kept
        self.right = UNASKED
        self.generation = kept.list.generation  # of the list that the client has, or is about to

    @property
    def group(self) -> _Group:
        """Those who are to be told the same."""
        return self.key[0], self.kept, self.generation

    def wake(self) -> None:
        """There may be something new."""
        self._listing.due(self)

    def lost(self, error: OperationError) -> None:
        """Its client may not see the namespace any more."""
        self._listing.lost(self, error)


class _Listing:
    """One client's requests for lists."""

    def __init__(self, peer: Peer, serving: ListServing) -> None:
        self._peer = peer
        self._serving = serving
        self._turn = asyncio.Lock()  # of what may wait for the client
        self._watches: dict[_WatchKey, _Watch] = {}
        self._opening: dict[_WatchKey, object] = {}
        self._due: dict[_Group, dict[_WatchKey, _Watch]] = {}
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger()
        peer.closed.add_done_callback(lambda _: self._end())

    # --- lists --------------------------------------------------------------------------

    async def topics(self, command: BaseCommand) -> None:
        """GET_TOPICS_OF_NAMESPACE."""
        asked = command.getTopicsOfNamespace
        home = parse_namespace(asked.namespace)
        is_filtered = asked.HasField("topics_pattern")
        selection = by_pattern(asked.topics_pattern) if is_filtered else ALL
        answer = CommandGetTopicsOfNamespaceResponse(
            request_id=asked.request_id, filtered=is_filtered
        )
        if asked.mode == CommandGetTopicsOfNamespace.NON_PERSISTENT:  # there are no such topics
            answer.topics_hash = _NO_TOPICS
            answer.changed = asked.topics_hash != _NO_TOPICS
            self._peer.send(answer)
            return
        serving, on = self._serving, namespace_resource(home)
        with going_on(serving.guard, self._peer, _LISTS, on) as right:
            async with self._turn:
                kept = await self._kept(home, selection)
                answer.topics_hash = kept.list.topics_hash
                answer.changed = asked.topics_hash != answer.topics_hash
                names = serving.payloads.names(kept, Form.RESPONSE) if answer.changed else None
                await self._send(answer, names, right)

    async def _kept(self, home: Namespace, of: Selection, sharers: Sharers = ()) -> KeptList:
        async with self._serving.limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY):
            return await self._serving.lists.of(home, of, sharers)

    async def _send(
        self, answer: _Answer, payload: SharedPayload | None, right: OpenRight = UNASKED
    ) -> None:
        """Returns once the client has taken it, or it or its right is gone."""
        await self._peer.drained()
        if payload is None:
            if right.stands:
                self._peer.send(answer)
            return
        async with payload.used() as names:
            if not right.stands:
                return
            self._write(answer, names)
            await asyncio.shield(self._peer.taken())

    def _write(self, answer: _Answer, payload: bytes) -> None:
        try:
            head = frame_head(answer, len(payload), self._peer.limits.list_bytes_max)
        except FrameError as error:
            raise RefusedError(
                ServerError.NotAllowedError,
                f"the list of topics does not fit: {error}. Give a pattern or property filters, or "
                "read it by REST, where it comes in parts",
            ) from None
        self._peer.send_shared(head, payload)

    # --- watches ------------------------------------------------------------------------

    async def watch_topic_list(self, command: BaseCommand) -> None:
        """Answers WATCH_TOPIC_LIST; a watch that is open begins anew."""
        asked = command.watchTopicList

        async def tell(watch: _Watch, known_hash: str) -> None:
            found = watch.kept.list.topics_hash
            answer = CommandWatchTopicListSuccess(
                request_id=asked.request_id, watcher_id=asked.watcher_id, topics_hash=found
            )
            payloads = self._serving.payloads
            is_known = found == known_hash
            names = None if is_known else payloads.names(watch.kept, Form.SUCCESS)
            await self._send(answer, names, watch.right)

        key = (WatchKind.TOPIC_LIST, asked.watcher_id)
        await self._open(
            key, asked.namespace, lambda: by_pattern(asked.topics_pattern), asked.topics_hash, tell
        )

    async def close_topic_list(self, command: BaseCommand) -> None:
        """WATCH_TOPIC_LIST_CLOSE."""
        self._close((WatchKind.TOPIC_LIST, command.watchTopicListClose.watcher_id))
        self._peer.send(CommandSuccess(request_id=command.watchTopicListClose.request_id))

    async def watch_scalable_topics(self, command: BaseCommand) -> None:
        """Answers WATCH_SCALABLE_TOPICS; a watch that is open begins anew."""
        asked = command.watchScalableTopics
        try:
            await self._open(
                (WatchKind.SCALABLE_TOPICS, asked.watch_id),
                asked.namespace,
                lambda: selection_of(asked),
                asked.current_hash,
                self._tell_snapshot,
            )
        except RefusedError as error:
            self._refuse(asked.watch_id, error.code, error.reason)
        except AnabranchError as error:
            self._refuse(asked.watch_id, code_of(error), str(error))

    async def close_scalable_topics(self, command: BaseCommand) -> None:
        """WATCH_SCALABLE_TOPICS_CLOSE, which has no answer."""
        self._close((WatchKind.SCALABLE_TOPICS, command.watchScalableTopicsClose.watch_id))

    async def _open(
        self,
        key: _WatchKey,
        namespace: str,
        select: Callable[[], Selection],
        known_hash: str,
        tell: Callable[[_Watch, str], Awaitable[None]],
    ) -> None:
        is_counted = key not in self._watches  # else it takes the place of that one
        if is_counted:
            self._peer.open_watch()
        is_open = False
        mark = self._opening[key] = object()
        try:
            self._serving.access.must_be_enabled()
            home, selection = parse_namespace(namespace), select()
            async with self._turn:
                kept = await self._kept(home, selection, self._peer.sharers)
                if self._opening.get(key) is not mark:
                    return  # it was closed, or opened anew, while it waited
                self._drop(key)
                if not is_counted:
                    self._peer.open_watch()
                    is_counted = True
                watch = self._allowed(key, kept)
                self._follow(watch)
                is_open = True
                try:
                    await tell(watch, known_hash)
                except AnabranchError:
                    if self._watches.get(key) is watch:
                        self._drop(key)
                    raise
        finally:
            if self._opening.get(key) is mark:
                del self._opening[key]
            if is_counted and not is_open:
                self._peer.close_watch()

    def _allowed(self, key: _WatchKey, kept: KeptList) -> _Watch:
        """Makes a watch, for `_follow`. Raises OperationError where the client may not see the
        namespace any more.
        """
        watch = _Watch(self, key, kept)
        on = namespace_resource(kept.home)
        watch.right = open_right(
            self._serving.guard, self._peer, WATCH_OPENERS[key[0]], on, watch.lost
        )
        return watch

    def _follow(self, watch: _Watch) -> None:
        self._watches[watch.key] = watch
        self._serving.lists.watch(watch.kept, watch.wake, self._peer.sharers)

    async def _tell_snapshot(self, watch: _Watch, known_hash: str = "") -> None:
        answer = CommandWatchScalableTopicsUpdate(
            watch_id=watch.key[1], topics_hash=watch.kept.list.topics_hash
        )
        if known_hash and known_hash == answer.topics_hash:
            answer.diff.CopyFrom(ScalableTopicsDiff())
            await self._send(answer, None, watch.right)
            return
        payload = self._serving.payloads.names(watch.kept, Form.SNAPSHOT)
        await self._send(answer, payload, watch.right)

    def _refuse(self, watch_id: int, code: ServerError, why: str) -> None:
        self._peer.send(
            CommandWatchScalableTopicsUpdate(watch_id=watch_id, error=code, message=why)
        )

    def _close(self, key: _WatchKey) -> None:
        self._opening.pop(key, None)
        self._drop(key)

    def _drop(self, key: _WatchKey) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            self._peer.close_watch()
            watch.right.close()
            self._serving.lists.unwatch(watch.kept, watch.wake)
            self._settle(watch)

    def lost(self, watch: _Watch, error: OperationError) -> None:
        """Ends a watch whose client may not see the namespace any more."""
        if self._watches.get(watch.key) is watch:
            self._give_up(watch, PortRefusal.REVOKED, code_of(error), str(error))

    def _give_up(self, watch: _Watch, refusal: PortRefusal, code: ServerError, why: str) -> None:
        self._drop(watch.key)
        kind, number = watch.key
        if kind is WatchKind.TOPIC_LIST:  # for these there is no way to say so but this
            self._peer.turn_away(refusal, why)
        else:
            self._refuse(number, code, why)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for key in list(self._watches):
            self._drop(key)

    # --- what changes -------------------------------------------------------------------

    def due(self, watch: _Watch) -> None:
        """Marks a watch to be told as soon as the client has taken the last answer."""
        self._due.setdefault(watch.group, {})[watch.key] = watch
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="watch topics")

    def _settle(self, watch: _Watch) -> None:
        """Nothing is to be told any more."""
        group = self._due.get(watch.group)
        if group is not None:
            group.pop(watch.key, None)
            if not group:
                del self._due[watch.group]

    async def _run(self) -> None:
        try:
            while self._due:
                try:
                    async with self._turn:
                        await self._peer.drained()
                        await self._tell_next()
                except PermitAcquireError as error:
                    self._log.warning("topic_list.watch_waits", why=str(error))
                    await asyncio.sleep(_AGAIN_S)
        except RefusedError as error:
            self._peer.close(error.reason)
        except Exception as error:  # noqa: BLE001 - a silent watch is worse than one begun again
            self._log.error("wire.fault", command="watch topics", exc_info=error)
            self._peer.close("a fault in the node ended this connection's watches; open them anew")
        finally:
            self._task = None

    async def _tell_next(self) -> None:
        """The first that is due, and with it those that are to hear the same."""
        if not self._due:  # closed meanwhile
            return
        (kind, kept, since), group = next(iter(self._due.items()))
        difference = None if kept.is_over else kept.list.since(since)
        if difference is None:
            watch = next(iter(group.values()))
            self._settle(watch)
            await self._begin_anew(watch)
        elif difference.is_empty:
            for each in list(group.values()):
                self._settle(each)
                each.generation = difference.generation
        else:
            form = Form.UPDATE if kind is WatchKind.TOPIC_LIST else Form.DIFF
            payload = self._serving.payloads.difference(kept, since, difference, form)
            async with payload.used() as changes:
                async with self._serving.pace.turn:
                    self._tell_some(group, difference.generation, changes)
                    await asyncio.sleep(0)  # others' slices get a turn of the loop of their own
                await asyncio.shield(self._peer.taken())

    def _tell_some(self, group: dict[_WatchKey, _Watch], generation: int, changes: bytes) -> None:
        """Tells as many as one slice allows."""
        pace = self._serving.pace
        pace.begin()
        for each in list(group.values()):
            self._settle(each)
            if not each.right.stands:
                continue
            self._tell(each, changes)
            each.generation = generation
            if each.kept.list.generation != generation:
                self.due(each)
            if pace.is_over or not self._peer.is_drained:
                break

    def _tell(self, watch: _Watch, changes: bytes) -> None:
        kind, number = watch.key
        answer: _Answer
        if kind is WatchKind.TOPIC_LIST:
            answer = CommandWatchTopicUpdate(watcher_id=number)
        else:
            answer = CommandWatchScalableTopicsUpdate(watch_id=number)
        self._write(answer, changes)

    async def _begin_anew(self, watch: _Watch) -> None:
        """Begins a watch anew if it is too far behind, or if its list is not kept any more."""
        kind, number = watch.key
        if watch.kept.refusal:
            too_much = ServerError.TooManyRequests
            self._give_up(watch, PortRefusal.COSTLY, too_much, watch.kept.refusal)
            return
        if kind is WatchKind.TOPIC_LIST:  # for these there is no way to say so but this
            raise RefusedError(
                ServerError.ServiceNotReady,
                "a watch of a topic list was too far behind; connect and open it anew",
            )
        kept, now = watch.kept, watch
        try:
            if kept.is_over:
                kept = await self._kept(kept.home, kept.selection, self._peer.sharers)
            if self._watches.get(watch.key) is not watch:
                return
            now = self._allowed(watch.key, kept)
            self._drop(watch.key)
            self._peer.open_watch()
            self._follow(now)
            await self._tell_snapshot(now)
        except (PermitAcquireError, OperationError) as error:
            if self._watches.get(watch.key) is now:  # else it was closed while it waited
                self._drop(watch.key)
                self._refuse(number, code_of(error), str(error))


def topic_lists(
    access: TopicAccess,
    lists: TopicLists,
    limiter: AsyncDualMemoryLimiter,
    now: Callable[[], float] = clock.now,
    guard: AccessGuard | None = None,
) -> OpenSession:
    """The part that serves lists of topics and their watches."""
    serving = ListServing(access, lists, limiter, Payloads(limiter), PushPace(now), guard)

    def open_session(peer: Peer) -> Routes:
        listing = _Listing(peer, serving)
        return {
            BaseCommand.GET_TOPICS_OF_NAMESPACE: listing.topics,
            BaseCommand.WATCH_TOPIC_LIST: listing.watch_topic_list,
            BaseCommand.WATCH_TOPIC_LIST_CLOSE: listing.close_topic_list,
            BaseCommand.WATCH_SCALABLE_TOPICS: listing.watch_scalable_topics,
            BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: listing.close_scalable_topics,
        }

    return open_session
