"""`TopicListWatch`: follows the list of a selection's topics by a session with any of the nodes.

A node sends the whole list when the session begins, or that the client's list is right. Then it
sends every change. The watch begins anew on another node when the connection ends or a difference
does not fit. It compares whole lists then, so that it misses no change and tells none twice. A node
that is behind may take topics back for a while, and gives them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.client._errors import ClosedError
from anabranch.client._topics.nodes import NodeConnection, Nodes
from anabranch.client._topics.topic_list import ListChange, ToldTopics, TopicSelection
from anabranch.client._topics.watch import NodeWatch
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandWatchScalableTopics,
    CommandWatchScalableTopicsUpdate,
    CommandWatchTopicList,
    CommandWatchTopicUpdate,
    KeyValue,
)
from anabranch.wire.logging import get_logger

_ANSWER_S_MAX: Final = 30.0  # a node may have the request wait for memory

_logger = get_logger(__name__)

Listener = Callable[[ListChange], None]


class TopicListWatch(NodeWatch[frozenset[str]]):
    """Knows the newest list of a selection. `start` returns once it knows the first one.

    It calls `listeners` on the event loop with every later change.
    """

    def __init__(self, nodes: Nodes, selection: TopicSelection) -> None:
        self.selection = selection
        super().__init__(nodes, f"the topics of {selection}")
        self.listeners: list[Listener] = []
        self._list = ToldTopics()
        self._early: list[CommandWatchTopicUpdate] = []  # seen before the answer that came first

    @property
    def topics(self) -> frozenset[str]:
        """The newest list, of `tenant/namespace/name`."""
        return self._list.topics

    def _first(self) -> frozenset[str]:
        if not self._list.is_known:
            raise self._failure or ClosedError("the watch was closed: make another one")
        return self.topics

    async def _begin(self, connection: NodeConnection) -> None:
        self._early.clear()
        if self.selection.pattern:
            await self._watch_by_pattern(connection)
        else:
            self._watch_by_properties(connection)

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
            self._refused_by(update.error, update.message)
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
            _logger.warning("watch.mismatch", what=self._what)
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
