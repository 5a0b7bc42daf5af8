"""`NodeWatch`: follows something by a session with any of the nodes. `LayoutWatch` follows one
topic's layout.

A node pushes its layout when the session begins, and then every change. The watch begins a session
on another node when the connection ends. That node pushes its whole layout, so no change is missed.
The watch ignores a layout that is not newer than its own, so a node that is behind takes none back.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from anabranch.client._aio import Closing, rest
from anabranch.client._errors import (
    AuthenticationError,
    ClientError,
    ClosedError,
    DeadlineError,
    ForbiddenError,
    NodesUnreachableError,
    RefusedByNodeError,
    TopicNotFoundError,
)
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.nodes import PASSING, NodeConnection, Nodes
from anabranch.client._topics.traffic import TopicTraffic
from anabranch.core import names
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTopicClose,
    CommandScalableTopicLookup,
    CommandScalableTopicUpdate,
    ServerError,
)
from anabranch.wire.errors import RefusedError, WireError
from anabranch.wire.logging import get_logger

_RETRY_S_MIN: Final = 0.02
_RETRY_S_MAX: Final = 2.0
_CONNECT_S_MAX: Final = 5.0
# Nodes that do not know the topic count as behind for so long: before the first layout, and after
# it (when none is left that pushes the deletion).
_UNKNOWN_S_MAX: Final = 0.5
_VANISHED_S_MAX: Final = 5.0
_numbers = itertools.count(1)  # unique in this process, which is more than a connection needs

_logger = get_logger(__name__)

Listener = Callable[[TopicLayout], None]
StateT = TypeVar("StateT")


class NodeWatch(Closing, Generic[StateT]):
    """Knows the newest state of something by a session with any of the nodes.

    It begins a session on another node when the connection ends. Use it on one event loop.
    """

    def __init__(self, nodes: Nodes, what: str) -> None:
        self._lives_here(f"the watch of {what}")
        self._what = what
        self._nodes = nodes
        self._failure: ClientError | None = None
        self._trouble = ""  # the passing failure of the last session
        self._known = asyncio.Event()  # a state, or the reason why there is none
        self._last_node = ""
        self._answered = False  # in this session
        self._number = 0  # that of this session
        self._over = asyncio.Event()  # the session is
        self._task: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """True once it watches nothing any more."""
        return self._task is None

    async def start(self, timeout_s: float = 10.0) -> StateT:
        """Returns the first state. It closes the watch again if there is none, or if the caller
        stops waiting.

        Raises TopicNotFoundError, NodesUnreachableError, AuthenticationError, RefusedByNodeError,
        DeadlineError.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._what}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._known.wait()
            return self._first()
        except BaseException as error:
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            why = self._trouble or "check that they run, and can reach Kafka"
            raise self._failure or DeadlineError(
                f"no node of {self._nodes.url} told {self._what} in {timeout_s:g} s: {why}"
            ) from None

    async def close(self) -> None:
        """Ends the session and the watch."""
        self._home.check()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # passes on a cancellation of ours

    @abstractmethod
    def _first(self) -> StateT:
        """Returns the state. Raises the failure if there is none."""

    @abstractmethod
    async def _begin(self, connection: NodeConnection) -> None:
        """Asks the node for the state and its changes, under `_number`."""

    def _leave(self, connection: NodeConnection) -> None:
        """Tells the node that nothing is wanted any more, unless the connection's end says so."""

    @abstractmethod
    def _pushed(self, command: BaseCommand) -> None:
        """Takes what the node pushes."""

    async def _session(self) -> None:
        """Runs one session, until its connection ends or `_over` is set."""
        self._number = next(_numbers)
        self._over = over = asyncio.Event()
        connection = await self._nodes.connect(self._pushed, _CONNECT_S_MAX, self._last_node)
        self._last_node = connection.address
        # No task for this: there may be 10,000 watches.
        connection.closed.add_done_callback(lambda _: over.set())
        try:
            await self._begin(connection)
            await over.wait()
            if connection.closed.done():
                self._passes("its connection ended")
        finally:
            self._leave(connection)
            self._number = 0
            connection.close("the watch is over")

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._answered = False
            try:
                await self._session()
            except (NodesUnreachableError, AuthenticationError) as error:
                self._fails(error)
            except RefusedError as error:
                self._refused_by(error.code, error.reason)
            except WireError as error:
                self._passes(str(error))
            except Exception as error:  # noqa: BLE001 - a fault in one session must not end all
                _logger.error("watch.fault", what=self._what, why=repr(error))
                self._fails(ClientError(f"the watch of {self._what} met a fault: {error!r}"))
            attempt = 0 if self._answered else attempt + 1
            await rest(attempt, _RETRY_S_MIN, _RETRY_S_MAX)

    def _refused_by(self, code: int, reason: str) -> None:
        """Notes the refusal of a node, which passes or is final."""
        why = reason or ServerError.Name(ServerError.ValueType(code))
        kind = ForbiddenError if code == ServerError.AuthorizationError else RefusedByNodeError
        error = kind(f"{self._last_node} refused to tell {self._what}: {why}")
        if code in PASSING:
            self._passes(str(error))
        else:
            self._fails(error)

    def _passes(self, why: str) -> None:
        """Notes a failure that another session may mend."""
        self._trouble = why
        _logger.info("watch.lost", what=self._what, node=self._last_node, why=why)

    def _fails(self, error: ClientError) -> None:
        if self._failure is None or type(error) is not type(self._failure):
            _logger.warning("watch.failing", what=self._what, why=str(error))
        self._failure = error
        self._known.set()


class LayoutWatch(NodeWatch[TopicLayout]):
    """Knows the newest layout of one topic. `start` returns once it knows the first one.

    It calls `listeners` on the event loop with every newer layout, in order. The last one is
    `deleted` if the topic is.
    """

    def __init__(self, nodes: Nodes, topic: str) -> None:
        self.topic = names.parse_scalable_topic(topic)
        super().__init__(nodes, f"the layout of {self.topic}")
        self.listeners: list[Listener] = []
        self.traffic = TopicTraffic()  # the counters of this watch's user
        self.controller_url = ""  # the newest that a node told; the layout has that of its version
        self._layout: TopicLayout | None = None
        self._unknown_since = math.inf
        self._told_incarnation = 0  # that of the node's last layout in this session

    @property
    def layout(self) -> TopicLayout:
        """The newest layout. Raises the errors of `start` if there is none."""
        return self._first()

    def _first(self) -> TopicLayout:
        if self._layout is None:
            raise self._failure or ClosedError(
                f"the watch of {self.topic} was not started: await its start"
            )
        return self._layout

    async def _begin(self, connection: NodeConnection) -> None:
        self._told_incarnation = 0
        connection.send(
            CommandScalableTopicLookup(
                session_id=self._number,
                topic=names.full_name(self.topic),
                create_if_missing=False,
            )
        )

    def _leave(self, connection: NodeConnection) -> None:
        connection.send(CommandScalableTopicClose(session_id=self._number))

    def _pushed(self, command: BaseCommand) -> None:
        if command.type != BaseCommand.SCALABLE_TOPIC_UPDATE:
            return
        update = command.scalableTopicUpdate
        if update.session_id != self._number:
            return
        if update.HasField("error"):
            self._refused(update)
        elif update.HasField("dag"):
            self._answered = True
            self._told_incarnation = update.dag.incarnation
            dag = update.dag
            controller_url = self._nodes.one_of(
                dag.controller_broker_url, dag.controller_broker_url_tls
            )
            self.controller_url = controller_url or self.controller_url
            self._take(TopicLayout.from_proto(self.topic, dag, controller_url))

    def _refused(self, update: CommandScalableTopicUpdate) -> None:
        reason = update.message or ServerError.Name(update.error)
        if update.dag.deleted:
            self._deleted(reason)
        elif update.error == ServerError.TopicNotFound:
            self._unknown(reason)
        else:
            self._refused_by(update.error, reason)
        self._over.set()

    def _unknown(self, reason: str) -> None:
        now = time.monotonic()
        self._unknown_since = min(self._unknown_since, now)
        patience_s = _UNKNOWN_S_MAX if self._layout is None else _VANISHED_S_MAX
        if now - self._unknown_since < patience_s:
            return
        self._told_incarnation = self._layout.incarnation if self._layout is not None else 0
        self._deleted(reason)

    def _deleted(self, reason: str) -> None:
        """Ends the watch of a topic that is gone, unless the node spoke of a former one of the same
        name.
        """
        known = self._layout
        if known is not None and known.incarnation != self._told_incarnation:
            return
        full = names.full_name(self.topic)
        named = full in reason  # nodes name the topic
        self._fails(TopicNotFoundError(reason if named else f"{full} was not found: {reason}"))
        if known is not None and not known.deleted:
            self._take(known.as_deleted())

    def _take(self, layout: TopicLayout) -> None:
        if not layout.deleted:
            self._failure = None
            self._unknown_since = math.inf
        if not layout.is_newer_than(self._layout):
            return
        self._layout = layout
        self._known.set()
        for listener in tuple(self.listeners):
            listener(layout)
