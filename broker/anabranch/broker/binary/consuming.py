"""Consumers' sessions with their topic's controller (73, 74, 75, 82 and 1000)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.broker.binary.forms import ClientSettings, assignment_form, buckets_of, committed_of
from anabranch.broker.binary.guarding import open_right
from anabranch.broker.errors import OperationError, PreconditionError, code_of
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.security.open_rights import UNASKED
from anabranch.broker.topics.subscriptions.consumers import (
    ConsumerRequest,
    Consumers,
    RegisteredConsumer,
)
from anabranch.broker.topics.subscriptions.dead_letters import DeadLetterPolicies, DeadLettersWanted
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.errors import AnabranchError
from anabranch.core.log.state import StateReader
from anabranch.core.names import full_name, parse_scalable_topic
from anabranch.core.security.resources import topic_resource
from anabranch.core.subscriptions.coordinator import ConsumerAssignment
from anabranch.core.subscriptions.draining import Bucket
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.commands import NO_REQUEST
from anabranch.wire.entries import can_be_named
from anabranch.wire.errors import FrameError, RefusedError
from anabranch.wire.server.server import OpenSession, Peer, Routes

_OPENS: Final = pb.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE
_KINDS: Final = {
    pb.ScalableConsumerType.STREAM: SubscriptionKind.STREAM,
    pb.ScalableConsumerType.CHECKPOINT: SubscriptionKind.CHECKPOINT,
    pb.ScalableConsumerType.QUEUE: SubscriptionKind.QUEUE,
}
_ALSO_KEPT_MAX: Final = 1_000  # of one report: some milliseconds
_TIME_MAX: Final = 2**62
_INSTANCE_MAX: Final = 2**63 - 1  # the log's numbers have a sign


class _Link:
    """One consumer of one client; its first assignment answers its subscribe."""

    def __init__(
        self, client: _Client, consumer_id: int, request_id: int, topic: str, subscription: str
    ) -> None:
        self.session: RegisteredConsumer | None = None
        self.refusal = ""  # why its first assignment could not be sent
        self.right = UNASKED
        self.lost: OperationError | None = None  # why its client may not consume any more
        self._client = client
        self._consumer_id = consumer_id
        self._request_id: int | None = request_id
        self._topic = topic
        self._subscription = subscription

    def assigned(self, assignment: ConsumerAssignment) -> None:
        """Tells the consumer its buckets from now on; drops it if no message holds them."""
        client = self._client
        if not self.right.stands:
            return
        topic = client.view.topic(self._topic)
        known = client.view.subscription(self._topic, self._subscription)
        if topic is None or known is None:
            return
        form = assignment_form(
            *(client.settings, self._topic, topic, self._subscription, known, assignment),
            client.goes_on(self._topic, self._subscription),
        )
        try:
            self._send(form)
        except FrameError as error:
            why = (
                f"the {len(form.segments)} segments of {full_name(self._topic)} for this consumer "
                f"of {self._subscription} do not fit one message ({error}): let more consumers "
                "share them, or the topic have fewer segments or entry buckets"
            )
            if self.is_answered:
                self.dropped(why)
            else:
                self.refusal = why

    def _send(self, form: pb.ScalableConsumerAssignment) -> None:
        count = sum(len(each.buckets) for each in form.segments)
        if not can_be_named(len(form.segments), count):
            raise FrameError(
                f"a consumer's reports cannot name {count} buckets of {len(form.segments)} segments"
            )
        if self._request_id is None:
            update = pb.CommandScalableTopicAssignmentUpdate(
                consumer_id=self._consumer_id, assignment=form
            )
            self._client.peer.send(update)
        else:
            answer = pb.CommandScalableTopicSubscribeResponse(
                request_id=self._request_id, assignment=form
            )
            self._client.peer.send(answer)
            self._request_id = None

    def fenced(self, why: str) -> None:
        """Its name is taken over: it is told, and heard until it has left."""
        self._client.peer.send(
            pb.CommandCloseConsumer(
                consumer_id=self._consumer_id,
                request_id=NO_REQUEST,
                reason=why,
                error=pb.ServerError.ConsumerFenced,
            )
        )

    def dropped(self, why: str) -> None:
        """Later: the controller is in the midst of its effects."""
        self._end(f"{why}: subscribe again")

    def forbidden(self, error: OperationError) -> None:
        """Its client may not consume any more; later, for the same reason."""
        self.lost = error
        self._end(str(error))

    def _end(self, why: str) -> None:
        client = self._client
        asyncio.get_running_loop().call_soon(client.dismiss, self._consumer_id, self, why)

    @property
    def is_answered(self) -> bool:
        return self._request_id is None


class _Client:
    """The consumers behind one connection."""

    def __init__(
        self,
        peer: Peer,
        consumers: Consumers,
        dead_letters: DeadLetterPolicies,
        settings: ClientSettings,
        guard: AccessGuard | None,
    ) -> None:
        self._guard = guard
        self.peer = peer
        self.settings = settings
        self._consumers = consumers
        self._dead_letters = dead_letters
        self._links: dict[int, _Link] = {}
        self._instance = secrets.randbits(63)  # of consumers that do not name theirs
        peer.closed.add_done_callback(lambda _: self._end())

    @property
    def view(self) -> StateReader:
        return self._consumers.access.runtime.view

    async def subscribe(self, command: pb.BaseCommand) -> None:
        """SCALABLE_TOPIC_SUBSCRIBE: answered by the first assignment, or with an error."""
        self.peer.open_watch()
        is_there = False
        try:
            is_there = await self._subscribe(command.scalableTopicSubscribe)
        finally:
            if not is_there:
                self.peer.close_watch()

    async def _subscribe(self, asked: pb.CommandScalableTopicSubscribe) -> bool:
        """Returns whether the consumer was there, to be dropped when it is served no more."""
        link: _Link | None = None
        try:
            wanted = self._wanted(asked)
            self.drop(asked.consumer_id, self._links.get(asked.consumer_id))
            link = _Link(
                self, asked.consumer_id, asked.request_id, wanted.topic, wanted.subscription
            )
            link.right = open_right(
                self._guard, self.peer, _OPENS, topic_resource(wanted.topic), link.forbidden
            )

            async def register() -> RegisteredConsumer:
                if asked.HasField("dead_letter") and not asked.begun_at:
                    said = asked.dead_letter
                    policy = DeadLettersWanted(said.topic, said.deliveries_max or None)
                    await self._dead_letters.make(wanted, policy, self._guard)
                return await self._consumers.subscribe(wanted, link)

            link.session = await self._consumers.access.proposals.decided(register)
            self._told(link.session, asked.begun_at, asked.holdings)
        except AnabranchError as error:
            if self._guard is not None:
                self._guard.note(error, "SCALABLE_TOPIC_SUBSCRIBE", self.peer.host)
            self._answer(asked, code_of(error), str(error))
            return False
        finally:
            if link is not None and link.session is None:
                link.right.close()
        self.drop(asked.consumer_id, self._links.get(asked.consumer_id))
        self._links[asked.consumer_id] = link
        if not link.is_answered:
            self.drop(asked.consumer_id, link)
            if link.lost is not None:
                self._answer(asked, code_of(link.lost), str(link.lost))
            elif link.refusal:
                self._answer(asked, pb.ServerError.NotAllowedError, link.refusal)
            else:  # the lease lapsed, or the consumer was dropped, at this very moment
                self._answer(
                    asked, pb.ServerError.ServiceNotReady, "the controller has just changed"
                )
        return True

    async def report(self, command: pb.BaseCommand) -> None:
        """SCALABLE_CONSUMER_REPORT."""
        said = command.scalableConsumerReport
        session = self._session(said.consumer_id)
        topic = self.view.topic(session.asked.topic)
        released, drained = buckets_of(said.released, topic), buckets_of(said.drained, topic)
        due = self._consumers.report(session, released, drained)
        self._told(session, session.begun_at, said.released)
        self._consumers.note_waiting(session, said.dead_letters_waiting)
        kept = [each for each in said.also_kept[:_ALSO_KEPT_MAX] if self._keeps(each)]
        self.peer.send(pb.CommandSuccess(request_id=said.request_id, kept=kept))
        if due:
            self._consumers.settle(session)

    def _keeps(self, consumer_id: int) -> bool:
        """Returns whether an empty report keeps the consumer's session."""
        link = self._links.get(consumer_id)
        if link is None or link.session is None:
            return False
        try:
            self._consumers.report(link.session, (), ())
        except AnabranchError:
            return False  # its own report is told why
        return True

    async def unsubscribe(self, command: pb.BaseCommand) -> None:
        """SCALABLE_TOPIC_UNSUBSCRIBE."""
        said = command.scalableTopicUnsubscribe
        link, session = self._links.get(said.consumer_id), self._session(said.consumer_id)
        await self._consumers.leave(session, keeps_share=said.keep_share)
        self.drop(said.consumer_id, link)  # unless there is another one by now
        self.peer.send(pb.CommandSuccess(request_id=said.request_id))

    def drop(self, consumer_id: int, link: _Link | None) -> None:
        """The consumer is served no more under this id."""
        if link is None or self._links.get(consumer_id) is not link:
            return
        del self._links[consumer_id]
        self.peer.close_watch()
        link.right.close()
        if link.session is not None:
            self._consumers.closed(link.session, hung_up=self.peer.has_hung_up)

    def dismiss(self, consumer_id: int, link: _Link, why: str) -> None:
        """The consumer's session is over, and the consumer is told."""
        if self._links.get(consumer_id) is not link:
            return
        self.drop(consumer_id, link)
        if link.is_answered:  # else the answer says so
            self.peer.send(
                pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=NO_REQUEST, reason=why)
            )

    def _told(
        self, session: RegisteredConsumer, begun_at: int, places: Sequence[pb.SegmentBuckets]
    ) -> None:
        """Passes on the committed positions of a consumer's buckets, held or let go of."""
        asked, committed = session.asked, committed_of(places)
        self._consumers.standing.told(asked.topic, asked.subscription, begun_at, committed)

    def goes_on(self, topic: str, subscription: str) -> Mapping[Bucket, int]:
        """Positions that the log has not yet."""
        return self._consumers.standing.of(topic, subscription)

    def _session(self, consumer_id: int) -> RegisteredConsumer:
        link = self._links.get(consumer_id)
        if link is None or link.session is None:
            raise RefusedError(
                pb.ServerError.ConsumerNotFound,
                f"consumer {consumer_id} of this connection has no session: subscribe first",
            )
        return link.session

    def _wanted(self, asked: pb.CommandScalableTopicSubscribe) -> ConsumerRequest:
        name = parse_scalable_topic(asked.topic)
        topic = self.view.topic(name)
        if asked.HasField("instance") and not 0 < asked.instance <= _INSTANCE_MAX:
            raise PreconditionError(f"instance is {asked.instance}: 1 to {_INSTANCE_MAX}")
        return ConsumerRequest(
            topic=name,
            subscription=asked.subscription,
            kind=_KINDS[asked.consumer_type],
            consumer=asked.consumer_name,
            instance=asked.instance if asked.HasField("instance") else self._instance,
            begun_at=asked.begun_at,
            holdings=buckets_of(asked.holdings, topic),
            drained=buckets_of(asked.drained, topic),
            start_ms=_start_of(asked.start),
        )

    def _answer(
        self, asked: pb.CommandScalableTopicSubscribe, code: pb.ServerError, why: str
    ) -> None:
        self.peer.send(
            pb.CommandScalableTopicSubscribeResponse(
                request_id=asked.request_id, error=code, message=why
            )
        )

    def _end(self) -> None:
        for consumer_id, link in list(self._links.items()):
            self.drop(consumer_id, link)


def consumer_sessions(
    consumers: Consumers,
    dead_letters: DeadLetterPolicies,
    settings: ClientSettings,
    guard: AccessGuard | None = None,
) -> OpenSession:
    """The part that serves consumers.

    `guard`: asked of topics of dead letters, and ends those whose right is gone; None: of none.
    """

    def open_session(peer: Peer) -> Routes:
        client = _Client(peer, consumers, dead_letters, settings, guard)
        return {
            pb.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: client.subscribe,
            pb.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: client.unsubscribe,
            pb.BaseCommand.SCALABLE_CONSUMER_REPORT: client.report,
        }

    return open_session


def _start_of(start: int) -> int:
    """Raises PreconditionError."""
    if not EARLIEST <= start <= _TIME_MAX:
        raise PreconditionError(
            f"start is {start}: milliseconds since 1970 of the first messages to come, "
            f"{EARLIEST} for the earliest, or {LATEST} for what comes after the latest"
        )
    return start
