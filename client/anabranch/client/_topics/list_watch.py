"""`TopicListWatch`: follows the list of a selection's topics by a session with any of the nodes.

A node sends the whole list when the session begins, or that the client's list is right. Then it
sends every change. The watch begins anew on another node when the connection ends or a difference
does not fit. It compares whole lists then, so that it misses no change and tells none twice. A node
that is behind may take topics back for a while, and gives them again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final

from anabranch.client._aio import Closing, rest
from anabranch.client._errors import (
    AuthenticationError,
    ClientError,
    ClosedError,
    DeadlineError,
    ForbiddenError,
    NodesUnreachableError,
    RefusedByNodeError,
)
from anabranch.client._topics.nodes import PASSING, NodeConnection, Nodes
from anabranch.client._topics.topic_list import ListChange, ToldTopics, TopicSelection
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandWatchScalableTopics,
    CommandWatchScalableTopicsUpdate,
    CommandWatchTopicList,
    CommandWatchTopicUpdate,
    KeyValue,
    ServerError,
)
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.logging import get_logger

_RETRY_S_MIN: Final = 0.02
_RETRY_S_MAX: Final = 2.0
_CONNECT_S_MAX: Final = 5.0
_ANSWER_S_MAX: Final = 30.0  # a node may have the request wait for memory
_numbers = itertools.count(1)  # unique in this process, which is more than a connection needs

_logger = get_logger(__name__)

Listener = Callable[[ListChange], None]


class TopicListWatch(Closing):
    """Knows the newest list of a selection. `start` returns once it knows the first one.

    It calls `listeners` on the event loop with every later change. Use it on one event loop.
    """

    def __init__(self, nodes: Nodes, selection: TopicSelection) -> None:
        self.selection = selection
        self._lives_here(f"the watch of {selection}")
        self.listeners: list[Listener] = []
        self._nodes = nodes
        self._list = ToldTopics()
        self._known = asyncio.Event()  # a list, or the reason why there is none
        self._failure: ClientError | None = None
        self._trouble = ""  # the passing failure of the session before this one
        self._over = asyncio.Event()  # the session is
        self._number = 0
        self._last_node = ""
        self._answered = False
        self._early: list[CommandWatchTopicUpdate] = []  # seen before the answer that came first
        self._task: asyncio.Task[None] | None = None

    @property
    def topics(self) -> frozenset[str]:
        """The newest list, of `tenant/namespace/name`."""
        return self._list.topics

    @property
    def is_closed(self) -> bool:
        """True once it watches nothing any more."""
        return self._task is None

    async def start(self, timeout_s: float = 10.0) -> frozenset[str]:
        """Returns the first list. It closes the watch again if there is none, or if the caller
        stops waiting.

        Raises NodesUnreachableError, AuthenticationError, RefusedByNodeError, DeadlineError.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"list-watch {self.selection}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._known.wait()
            if not self._list.is_known:
                raise self._failure or ClosedError("the watch was closed: make another one")
            return self.topics
        except BaseException as error:
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            raise self._failure or DeadlineError(
                f"no node of {self._nodes.url} told the topics of {self.selection} in "
                f"{timeout_s:g} s" + (f": {self._trouble}" if self._trouble else "")
            ) from None

    async def close(self) -> None:
        """Ends the session and the watch."""
        if self._home.is_elsewhere:
            await self._close_elsewhere()
            return
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # passes on a cancellation of ours

    async def _end_without_loop(self) -> None:
        self._task = None

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._answered = False
            try:
                await self._session()
            except (NodesUnreachableError, AuthenticationError) as error:
                self._fails(error)
            except RefusedError as error:
                self._refused(error.code, error.reason)
            except WireError as error:
                self._passes(str(error))
            except Exception as error:  # noqa: BLE001 - a fault in one session must not end all
                _logger.error("topic_list.fault", selection=str(self.selection), why=repr(error))
            attempt = 0 if self._answered else attempt + 1
            await rest(attempt, _RETRY_S_MIN, _RETRY_S_MAX)

    async def _session(self) -> None:
        """Runs one session, until its connection ends or a message of the node does not fit."""
        self._number = next(_numbers)
        self._over.clear()
        self._early.clear()
        connection = await self._nodes.connect(self._pushed, _CONNECT_S_MAX, self._last_node)
        self._last_node = connection.address
        try:
            connection.closed.add_done_callback(self._ended)
            if self.selection.pattern:
                await self._watch_by_pattern(connection)
            else:
                self._watch_by_properties(connection)
            await self._over.wait()
        finally:
            connection.closed.remove_done_callback(self._ended)
            self._number = 0
            connection.close("the watch is over")

    def _ended(self, _closed: asyncio.Future[Any]) -> None:
        self._over.set()

    async def _watch_by_pattern(self, connection: NodeConnection) -> None:
        number, selection = self._number, self.selection
        answer = await connection.request(
            CommandWatchTopicList(
                watcher_id=number,
                namespace=selection.namespace,
                topics_pattern=selection.wire_pattern,
                topics_hash=self._list.hash or None,
            ),
            _ANSWER_S_MAX,
        )
        found = answer.watchTopicListSuccess
        if found.topic or found.topics_hash != self._list.hash:
            self._take(self._list.replace(found.topic))
        else:  # it has not changed: the node leaves out what we have
            self._take(ListChange())
        early, self._early = self._early, []
        for each in early:
            self._updated(each)

    def _watch_by_properties(self, connection: NodeConnection) -> None:
        selection = self.selection
        filters = [KeyValue(key=k, value=v) for k, v in sorted(selection.properties.items())]
        connection.send(
            CommandWatchScalableTopics(
                watch_id=self._number,
                namespace=selection.namespace,
                property_filters=filters,
                current_hash=self._list.hash or None,
            )
        )

    def _pushed(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            self._updated(command.watchTopicUpdate)
        elif command.type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE:
            self._told(command.watchScalableTopicsUpdate)

    def _updated(self, update: CommandWatchTopicUpdate) -> None:
        if update.watcher_id != self._number:
            return
        if not self._answered:
            self._early.append(update)
        else:
            self._differ(update.new_topics, update.deleted_topics, update.topics_hash)

    def _told(self, update: CommandWatchScalableTopicsUpdate) -> None:
        if update.watch_id != self._number:
            return
        if update.HasField("error"):
            self._refused(update.error, update.message)
            self._over.set()
        elif update.HasField("snapshot"):
            self._take(self._list.replace(update.snapshot.topics))
        elif update.HasField("diff"):
            if not update.diff.added and not update.diff.removed and self._list.is_known:
                self._take(ListChange())  # it has what we have
            else:
                self._differ(update.diff.added, update.diff.removed, "")

    def _differ(self, added: Any, removed: Any, told_hash: str) -> None:
        change = self._list.differ(added, removed, told_hash) if self._answered else None
        if change is None:
            _logger.warning("topic_list.mismatch", selection=str(self.selection))
            self._over.set()  # a new session gets the whole list again
        else:
            self._take(change)

    def _take(self, change: ListChange) -> None:
        self._answered = True
        self._failure = None
        is_first = not self._known.is_set()
        self._known.set()
        if change and not is_first:
            for listener in tuple(self.listeners):
                listener(change)

    def _refused(self, code: int, reason: str) -> None:
        why = reason or ServerError.Name(ServerError.ValueType(code))
        kind = ForbiddenError if code == ServerError.AuthorizationError else RefusedByNodeError
        error = kind(f"{self._last_node} refused to tell {self.selection}: {why}")
        if code in PASSING:
            self._passes(str(error))
        else:
            self._fails(error)

    def _passes(self, why: str) -> None:
        """Notes a failure that another session may mend."""
        self._trouble = why
        _logger.info("topic_list.lost", selection=str(self.selection), why=why)

    def _fails(self, error: ClientError) -> None:
        if self._failure is None or type(error) is not type(self._failure):
            _logger.warning("topic_list.failing", selection=str(self.selection), why=str(error))
        self._failure = error
        self._known.set()
