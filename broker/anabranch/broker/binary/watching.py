"""Watch sessions: a client gets a topic's layout at once and after every change (70 to 72)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.broker.binary.forms import ClientSettings, Dags
from anabranch.broker.binary.guarding import open_right
from anabranch.broker.binary.handlers import code_of
from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.open_rights import UNASKED
from anabranch.broker.topics.watches import Mark, WatchedTopic, Watches
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.errors import AnabranchError
from anabranch.core.names import full_name, parse_scalable_topic
from anabranch.core.security.resources import topic_resource
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import (
    BaseCommand,
    CommandScalableTopicLookup,
    CommandScalableTopicUpdate,
    ScalableTopicDAG,
    ServerError,
)
from anabranch.wire.errors import FrameError
from anabranch.wire.server.server import OpenSession, Peer, Routes

_OPENS: Final = BaseCommand.SCALABLE_TOPIC_LOOKUP
_SLICE_S: Final = 0.005  # of pushes, before others have their turn: heartbeats above all


class PushPace:
    """Lets the clients of a node be told one after the other, a slice of time each.

    A change that 100,000 watches are to hear of is seconds of work: without a pause the node would
    lose its lease meanwhile.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.turn = asyncio.Lock()
        self._now = now
        self._until = 0.0

    def begin(self) -> None:
        """A slice begins."""
        self._until = self._now() + _SLICE_S

    @property
    def is_over(self) -> bool:
        """True once the slice is over."""
        return self._now() >= self._until


class _Session:
    """One watch of one client."""

    def __init__(self, number: int, topic: str, pushes: _Pushes) -> None:
        self.number = number
        self.topic = topic
        self.told: Mark | None = None
        self.right = UNASKED
        self._pushes = pushes

    def wake(self) -> None:
        """There may be something new."""
        self._pushes.due(self)

    def lost(self, error: OperationError) -> None:
        """Its client may not see the topic any more."""
        self._pushes.lost(self, error)


class _Pushes:
    """The pushes to one client: only each watch's newest state, no faster than it reads."""

    def __init__(
        self,
        peer: Peer,
        watches: Watches,
        dags: Dags,
        pace: PushPace,
        guard: AccessGuard | None,
    ) -> None:
        self._peer = peer
        self._guard = guard
        self._pace = pace
        self._watches = watches
        self._dags = dags
        self._sessions: dict[int, _Session] = {}
        self._opening: dict[int, object] = {}
        self._due: dict[int, _Session] = {}
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger()
        peer.closed.add_done_callback(lambda _: self._end())

    async def open(self, command: BaseCommand) -> None:
        """SCALABLE_TOPIC_LOOKUP."""
        asked = command.scalableTopicLookup
        self._peer.open_watch()
        is_open = False
        try:
            is_open = await self._open(asked)
        finally:
            if not is_open:
                self._peer.close_watch()

    async def _open(self, asked: CommandScalableTopicLookup) -> bool:
        mark = self._opening[asked.session_id] = object()
        try:
            topic = parse_scalable_topic(asked.topic)
            await self._watches.appears(topic)
        except AnabranchError as error:
            if self._opening.get(asked.session_id) is mark:  # else it was closed meanwhile
                self._refuse(asked.session_id, code_of(error), str(error))
            return False
        finally:
            wanted = self._opening.get(asked.session_id) is mark
            if wanted:
                del self._opening[asked.session_id]
        if not wanted:
            return False  # it was closed, or opened anew, while it waited for the topic
        self._drop(asked.session_id)
        session = _Session(asked.session_id, topic, self)
        try:
            session.right = open_right(
                self._guard, self._peer, _OPENS, topic_resource(topic), session.lost
            )
        except OperationError as error:  # it was revoked while it waited
            self._refuse(session.number, code_of(error), str(error))
            return False
        self._sessions[session.number] = session
        self._watches.add(topic, session.wake)
        self.due(session)
        return True

    async def close(self, command: BaseCommand) -> None:
        """SCALABLE_TOPIC_CLOSE, which has no answer."""
        self._opening.pop(command.scalableTopicClose.session_id, None)
        self._drop(command.scalableTopicClose.session_id)

    def lost(self, session: _Session, error: OperationError) -> None:
        """Ends a watch whose client may not see the topic any more."""
        if self._sessions.get(session.number) is not session:
            return
        if self._is_gone(self._watches.look(session.topic).topic):  # and with it all rights
            self._gone(session)
        else:
            self._drop(session.number)
            self._refuse(session.number, code_of(error), str(error))

    def due(self, session: _Session) -> None:
        """Marks a watch to be pushed as soon as the client has taken the last push."""
        self._due[session.number] = session
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="watch")

    async def _run(self) -> None:
        try:
            while self._due:
                await self._peer.drained()
                async with self._pace.turn:
                    self._push_some()
                    await asyncio.sleep(0)  # others' slices get a turn of the loop of their own
        except Exception as error:  # noqa: BLE001 - a silent watch is worse than one begun again
            self._log.error("wire.fault", command="watch", exc_info=error)
            self._peer.close("a fault in the node ended this connection's watches; open them anew")
        finally:
            self._task = None

    def _push_some(self) -> None:
        """Tells as many as one slice allows."""
        self._pace.begin()
        while self._due and self._peer.is_drained:
            session = self._due.pop(next(iter(self._due)))
            if self._sessions.get(session.number) is session and session.right.stands:
                self._push(session)
            if self._pace.is_over:
                break

    def _push(self, session: _Session) -> None:
        seen = self._news(session)
        if seen is not None and seen.topic is not None:
            self._tell(session, seen, self._dags.of(session.topic, seen.topic, seen))

    def _news(self, session: _Session) -> WatchedTopic | None:
        """Returns the news that the client gets of its topic; None if it knows, or has no more to
        hear.
        """
        seen = self._watches.look(session.topic)
        if seen.mark == session.told:
            return None
        topic = seen.topic
        if topic is None or self._is_gone(topic):
            self._gone(session)
            return None
        return seen if topic.is_open else None  # else it is being made

    @staticmethod
    def _is_gone(topic: ScalableTopic | None) -> bool:
        return topic is None or topic.state is TopicState.DELETING

    def _tell(self, session: _Session, seen: WatchedTopic, dag: ScalableTopicDAG) -> None:
        session.told = seen.mark
        update = CommandScalableTopicUpdate(
            session_id=session.number,
            dag=dag,
            resolved_topic_name=full_name(session.topic),
        )
        try:
            self._peer.send(update)
        except FrameError as error:
            reason = f"the layout of {full_name(session.topic)} is too large to be sent: {error}"
            self._refuse(session.number, ServerError.UnknownError, reason)

    def _gone(self, session: _Session) -> None:
        self._drop(session.number)
        self._refuse(
            session.number,
            ServerError.TopicNotFound,
            f"Scalable topic not found: {full_name(session.topic)}; create it first",
            deleted=True,
        )

    def _refuse(self, number: int, code: ServerError, why: str, *, deleted: bool = False) -> None:
        dag = ScalableTopicDAG(epoch=0, deleted=True) if deleted else None
        self._peer.send(
            CommandScalableTopicUpdate(session_id=number, error=code, message=why, dag=dag)
        )

    def _drop(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self._peer.close_watch()
            session.right.close()
            self._watches.remove(session.topic, session.wake)
            self._due.pop(number, None)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for number in list(self._sessions):
            self._drop(number)


def layout_watches(
    watches: Watches,
    settings: ClientSettings,
    now: Callable[[], float] = clock.now,
    guard: AccessGuard | None = None,
) -> OpenSession:
    """The part that serves watches. `guard`: ends those whose right is gone; None: of none."""
    dags = Dags(settings)
    pace = PushPace(now)

    def open_session(peer: Peer) -> Routes:
        pushes = _Pushes(peer, watches, dags, pace, guard)
        return {
            BaseCommand.SCALABLE_TOPIC_LOOKUP: pushes.open,
            BaseCommand.SCALABLE_TOPIC_CLOSE: pushes.close,
        }

    return open_session
