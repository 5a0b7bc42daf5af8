"""Watch sessions: a client gets a topic's layout at once and after every change (70 to 72)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.broker.binary.client_watches import ClientWatch, ClientWatches
from anabranch.broker.binary.forms import ClientSettings, Dags
from anabranch.broker.errors import OperationError, code_of
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.topics.watches import Mark, WatchedTopic, Watches
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.errors import AnabranchError
from anabranch.core.names import full_name, parse_scalable_topic
from anabranch.core.security.resources import topic_resource
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from anabranch.wire.errors import FrameError
from anabranch.wire.server.server import OpenSession, Peer, Routes

_OPENS: Final = pb.BaseCommand.SCALABLE_TOPIC_LOOKUP
_SLICE_S: Final = 0.005  # of pushes, before others have their turn: heartbeats above all


class _Session(ClientWatch[int]):
    """One watch of one client."""

    __slots__ = ("told", "topic")

    def __init__(self, number: int, topic: str, pushes: _Pushes) -> None:
        super().__init__(number, pushes)
        self.topic = topic
        self.told: Mark | None = None


class _Pushes(ClientWatches[int, _Session]):
    """The pushes to one client: only each watch's newest state.

    `turn`: the clients of a node are told one after the other, a slice of time each. A change that
    100,000 watches are to hear of is seconds of work: without a pause the node would lose its lease
    meanwhile.
    """

    def __init__(
        self,
        peer: Peer,
        watches: Watches,
        dags: Dags,
        turn: asyncio.Lock,
        now: Callable[[], float],
        guard: AccessGuard | None,
    ) -> None:
        super().__init__(peer, "watch", guard)
        self._turn = turn
        self._now = now
        self._topics = watches
        self._dags = dags

    async def open(self, command: pb.BaseCommand) -> None:
        """SCALABLE_TOPIC_LOOKUP."""
        number = command.scalableTopicLookup.session_id
        with self._to_open(number) as opening:
            try:
                topic = parse_scalable_topic(command.scalableTopicLookup.topic)
                await self._topics.appears(topic)
                if not self._is_wanted(number, opening):
                    return
                session = _Session(number, topic, self)
                self._begin(opening, session, _OPENS, topic_resource(topic))
            except AnabranchError as error:
                if self._is_wanted(number, opening):
                    self._refuse(number, code_of(error), str(error))
                return
        self._topics.add(topic, session.wake)
        self.due(session)

    async def close(self, command: pb.BaseCommand) -> None:
        """SCALABLE_TOPIC_CLOSE, which has no answer."""
        self._close(command.scalableTopicClose.session_id)

    def _forbidden(self, watch: _Session, error: OperationError) -> None:
        if self._is_gone(self._topics.look(watch.topic).topic):  # and with it all rights
            self._gone(watch)
        else:
            self._refuse(watch.key, code_of(error), str(error))

    async def _tell_some(self) -> None:
        await self._peer.drained()
        async with self._turn:
            self._push_some()
            await asyncio.sleep(0)  # others' slices get a turn of the loop of their own

    def _push_some(self) -> None:
        """Tells as many as one slice allows."""
        until = self._now() + _SLICE_S
        while self._due and self._peer.is_drained:
            session = self._due.pop(next(iter(self._due)))
            if self._watches.get(session.key) is session and session.right.stands:
                self._push(session)
            if self._now() >= until:
                break

    def _push(self, session: _Session) -> None:
        seen = self._news(session)
        if seen is not None and seen.topic is not None:
            self._tell(session, seen, self._dags.of(session.topic, seen.topic, seen))

    def _news(self, session: _Session) -> WatchedTopic | None:
        """Returns the news that the client gets of its topic; None if it knows, or has no more to
        hear.
        """
        seen = self._topics.look(session.topic)
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

    def _tell(self, session: _Session, seen: WatchedTopic, dag: pb.ScalableTopicDAG) -> None:
        session.told = seen.mark
        update = pb.CommandScalableTopicUpdate(
            session_id=session.key,
            dag=dag,
            resolved_topic_name=full_name(session.topic),
        )
        try:
            self._peer.send(update)
        except FrameError as error:
            reason = f"the layout of {full_name(session.topic)} is too large to be sent: {error}"
            self._refuse(session.key, pb.ServerError.UnknownError, reason)

    def _gone(self, session: _Session) -> None:
        self._drop(session.key)
        self._refuse(
            session.key,
            pb.ServerError.TopicNotFound,
            f"Scalable topic not found: {full_name(session.topic)}; create it first",
            deleted=True,
        )

    def _refuse(
        self, number: int, code: pb.ServerError, why: str, *, deleted: bool = False
    ) -> None:
        dag = pb.ScalableTopicDAG(epoch=0, deleted=True) if deleted else None
        self._peer.send(
            pb.CommandScalableTopicUpdate(session_id=number, error=code, message=why, dag=dag)
        )

    def _unfollow(self, watch: _Session) -> None:
        self._topics.remove(watch.topic, watch.wake)


def layout_watches(
    watches: Watches,
    settings: ClientSettings,
    now: Callable[[], float] = clock.now,
    guard: AccessGuard | None = None,
) -> OpenSession:
    """The part that serves watches. `guard`: ends those whose right is gone; None: of none."""
    dags = Dags(settings)
    turn = asyncio.Lock()

    def open_session(peer: Peer) -> Routes:
        pushes = _Pushes(peer, watches, dags, turn, now, guard)
        return {
            pb.BaseCommand.SCALABLE_TOPIC_LOOKUP: pushes.open,
            pb.BaseCommand.SCALABLE_TOPIC_CLOSE: pushes.close,
        }

    return open_session
