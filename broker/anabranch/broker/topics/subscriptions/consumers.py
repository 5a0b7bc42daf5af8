"""Consumers' sessions with the controller of their topic: they come, report, and leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from anabranch.broker.errors import (
    DeadlineExceededError,
    NotFoundError,
    OperationError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.controllers.service import Attached, ConsumerConnection
from anabranch.broker.topics.subscriptions.groups import (
    Groups,
    StartPositions,
    start_positions,
    written_parts,
)
from anabranch.broker.topics.subscriptions.positions import Group
from anabranch.broker.topics.subscriptions.refusals import (
    SessionOverError,
    SubscriptionGoneError,
    refusal,
    taken_over,
)
from anabranch.broker.topics.subscriptions.usage import Usage
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.core import names
from anabranch.core.entities.subscription import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.log.records import SubscriptionChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import full_name
from anabranch.core.subscriptions.admission import (
    AdmissionStep,
    SubscribeRequest,
    admit,
    is_same_life,
)
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.known_positions import StandingPositions
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.tenants.limits import TenantLimit

_SO_ALREADY: Final = (
    Verdict.CONSUMER_EXISTS,
    Verdict.UNKNOWN_CONSUMER,
    Verdict.UNKNOWN_SUBSCRIPTION,
)


_CONSUMERS: Final = TenantLimit.MAX_CONSUMERS_PER_SUBSCRIPTION
_LIMITED: Final = {
    SubscriptionOp.CREATE: TenantLimit.MAX_SUBSCRIPTIONS_PER_TOPIC,
    SubscriptionOp.JOIN: _CONSUMERS,
}


class ConsumerRequest(SubscribeRequest, frozen=True, kw_only=True):
    """A wish, and where a subscription begins that is not there yet."""

    start_ms: int = EARLIEST


class RegisteredConsumer(msgspec.Struct, frozen=True):
    """A consumer that the controller counts on, under its connection number."""

    number: int
    asked: ConsumerRequest
    begun_at: int  # of the subscription as it was then


class Consumers:
    """The sessions that this node, as a controller, keeps, for use in its event loop."""

    def __init__(self, access: TopicAccess, groups: Groups) -> None:
        self._access = access
        self.usage = Usage(access)
        self.standing = StandingPositions(lambda: access.runtime.view)
        self.proposals = access.proposals
        self._runtime = access.runtime
        self._service = access.service
        self.groups = groups
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = get_logger(broker=access.runtime.core.me)

    @property
    def view(self) -> StateReader:
        """The state as this node has folded it."""
        return self._runtime.view

    def must_control(self, topic: str) -> None:
        """Raises ElsewhereError or UnavailableError unless this node is the controller now."""
        self._access.topic(topic)
        self._access.must_control(topic)

    def dismiss(self, topic: str, subscription: str, why: str) -> None:
        """Lets its consumers subscribe again."""
        what = f"subscription {subscription} of {full_name(topic)}"
        self._service.dismiss({topic}, f"{what}: {why}", subscription)

    async def create(
        self, topic: str, subscription: str, kind: SubscriptionKind, start_ms: int = EARLIEST
    ) -> None:
        """Creates a subscription, unless it is there.

        It begins at the messages of that time or a later one, at EARLIEST, or at LATEST.
        """
        names.subscription(subscription)
        async with self.alone(topic, subscription):
            if self._runtime.view.subscription(topic, subscription) is None:
                await self._make(topic, subscription, kind, start_ms)
            await self._let_begin(topic, subscription)

    async def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Deletes a subscription. Force also deletes one with consumers, and ends their sessions.

        Raises NotFoundError, and ConflictError for a subscription that has, or may have, consumers.
        """
        async with self.alone(topic, subscription):
            before = self.known(topic, subscription)
            if not force:
                remedy = ", or delete it by force"
                self.usage.must_be_unused(topic, subscription, before, remedy)
            await self.change(topic, subscription, SubscriptionOp.DELETE)
            why = f"subscription {subscription} of {full_name(topic)} was deleted"
            self._service.dismiss({topic}, why, subscription)
        group = self._access.group_id(topic, subscription, before)
        self._log.info("subscription.deleted", topic=topic, subscription=subscription, group=group)
        self.groups.delete(group)

    async def subscribe(
        self, asked: ConsumerRequest, consumer: ConsumerConnection
    ) -> RegisteredConsumer:
        """Registers the consumer; it is given its assignment at once, and every later one.

        Raises ElsewhereError, NotFoundError, ConflictError, UnavailableError or InvalidInputError,
        and SubscriptionGoneError for one that was subscribed to a subscription that is gone.
        """
        names.subscription(asked.subscription)
        names.consumer(asked.consumer)
        self._access.must_be_enabled()
        self._access.topic(asked.topic)
        self._access.must_control(asked.topic)
        with self._service.pinned(asked.topic):
            self._service.reconcile(asked.topic)  # earlier knowledge of consumers counts
            async with self.alone(asked.topic, asked.subscription):
                await self._register(asked)
            return self._open(asked, consumer)

    def report(
        self, session: RegisteredConsumer, released: Iterable[Bucket], drained: Iterable[Bucket]
    ) -> bool:
        """Takes a report; returns whether `settle` is due.

        Raises SessionOverError or ElsewhereError if the report is not counted.
        """
        asked = session.asked
        self._access.must_control(asked.topic)
        controller = self._service.controller(asked.topic)
        if self._runtime.view.subscription(asked.topic, asked.subscription) is None:
            raise SubscriptionGoneError(
                f"subscription {asked.subscription} of {full_name(asked.topic)} was deleted"
            )
        let_go, done = tuple(released), tuple(drained)
        if controller is None or not controller.heard(
            asked.subscription, asked.consumer, session.number, let_go, done, self._runtime.now()
        ):
            raise SessionOverError(
                f"the session of consumer {asked.consumer} of {full_name(asked.topic)} is over: "
                "subscribe again"
            )
        return bool(let_go or done)

    def note_waiting(self, session: RegisteredConsumer, dead_letters: int) -> None:
        """So many messages its consumer could not put aside so far."""
        attached = self._service.consumers.get(session.number)
        if attached is not None and attached.dead_letters_waiting != dead_letters:
            self._service.consumers[session.number] = msgspec.structs.replace(
                attached, dead_letters_waiting=dead_letters
            )

    def dead_letters_waiting(self) -> Mapping[tuple[str, str], int]:
        """Returns the number of messages that could not be put aside so far, by topic and
        subscription.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for each in self._service.consumers.values():
            counts[each.topic, each.subscription] += each.dead_letters_waiting
        return +counts

    def settle(self, session: RegisteredConsumer) -> None:
        """Hands out buckets that a report has set free; call it once the report is answered."""
        self._service.reconcile(session.asked.topic)

    async def leave(self, session: RegisteredConsumer, *, keeps_share: bool = False) -> None:
        """The consumer gives everything back and its registration ends.

        `keeps_share`: that lasts as long as the grace, for another process of the name.
        """
        asked = session.asked
        op = SubscriptionOp.LAPSED if keeps_share else SubscriptionOp.LEAVE
        whom: dict[str, Any] = {"instance": asked.instance} if keeps_share else {}
        self._service.consumers.pop(session.number, None)
        self._access.must_control(asked.topic)
        controller = self._service.controller(asked.topic)
        if controller is None:
            return
        with self._service.pinned(asked.topic):
            async with self.alone(asked.topic, asked.subscription):
                known = self._runtime.view.subscription(asked.topic, asked.subscription)
                if asked.kind is SubscriptionKind.QUEUE:
                    controller.left(asked.subscription, asked.consumer)  # was never registered
                elif known is not None and known.instance_of(asked.consumer) == asked.instance:
                    controller.left(asked.subscription, asked.consumer, keeps_share=keeps_share)
                    await self.change(
                        asked.topic, asked.subscription, op, consumer=asked.consumer, **whom
                    )
            self.closed(session)

    def closed(self, session: RegisteredConsumer, *, hung_up: bool = False) -> None:
        """Ends a session whose connection is gone; the consumer's share waits for it as long as its
        grace.

        `hung_up`: the connection ended as the end of a process ends one.
        """
        asked = session.asked
        self._service.consumers.pop(session.number, None)
        controller = self._service.controller(asked.topic)
        if controller is not None:
            controller.closed(
                asked.subscription,
                asked.consumer,
                session.number,
                self._runtime.now(),
                hung_up=hung_up,
            )
            self._service.reconcile(asked.topic)

    # --- steps --------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(
        self, topic: str, subscription: str, timeout_s: float | None = None
    ) -> AsyncIterator[None]:
        """One request of a subscription at a time: their proposals would only beat one another.

        Raises DeadlineExceededError when the request takes longer than that, or than a look-up may.
        """
        limit_s = self._access.settings.now.lookup_timeout_s if timeout_s is None else timeout_s
        key = f"{topic}/{subscription}"
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        what = f"subscription {subscription} of {full_name(topic)}"
        told = f"{what} is being changed by others all the time; try again"
        try:
            async with asyncio.timeout(limit_s), lock:
                told = f"perhaps {what} was changed: look before you try again"
                yield
        except TimeoutError:
            raise DeadlineExceededError(told) from None

    def known(self, topic: str, subscription: str) -> Subscription:
        known = self._runtime.view.subscription(topic, subscription)
        if known is None:
            self._access.topic(topic)
            raise NotFoundError(f"Subscription not found: {subscription} on {full_name(topic)}")
        return known

    async def _make(
        self, topic: str, subscription: str, kind: SubscriptionKind, start_ms: int
    ) -> None:
        if kind is SubscriptionKind.QUEUE and start_ms != EARLIEST:
            await self.must_place_queues(topic, subscription)
        begin = await self.beginning(topic, start_ms, kind)
        await self.change(topic, subscription, SubscriptionOp.CREATE, kind=kind, begin=begin)

    async def beginning(self, topic: str, start_ms: int, kind: SubscriptionKind) -> StartPositions:
        """Does the same as `start_positions`."""
        return await start_positions(self._access, self.groups.positions, topic, start_ms, kind)

    async def _let_begin(self, topic: str, subscription: str) -> None:
        """Not only by who created it: that node may have ended between the two."""
        known = self.known(topic, subscription)
        if known.kind is SubscriptionKind.QUEUE:
            await self.start_share_group(topic, subscription, known)

    async def must_place_queues(self, topic: str, subscription: str) -> None:
        """Raises PreconditionError where Kafka cannot be told where a queue begins."""
        if not await self.groups.can_begin_anywhere():
            raise PreconditionError(
                f"subscription {subscription} of {full_name(topic)} cannot be of type QUEUE and "
                "begin elsewhere than at the earliest message: nodes cannot set the offsets of a "
                "share group if SASL guards Kafka by another mechanism than PLAIN or SCRAM. Take "
                "another type, or use Kafka's own kafka-share-groups.sh --reset-offsets on its "
                "group before anybody consumes it"
            )

    async def start_share_group(self, topic: str, subscription: str, known: Subscription) -> None:
        """Lets a queue begin where the log has it. Raises KafkaFailedError or UnavailableError."""
        parts = written_parts(self._service.prefix, topic, self._access.topic(topic))
        group = Group(self._access.group_id(topic, subscription, known), parts, known)
        # Kafka's own setting says of all others that they begin at the first message.
        starts = {place: offset for place, offset in group.starts().items() if offset}
        await self.groups.start(group.name, starts)

    def _admit(self, asked: ConsumerRequest) -> AdmissionStep:
        # Others came first, and a controller that is being handed over knows of nobody.
        self._access.must_control(asked.topic)
        known = self._runtime.view.subscription(asked.topic, asked.subscription)
        room = self._access.room(_CONSUMERS, asked.topic)
        return admit(asked, known, self._coordinator(asked), room.limit)

    def _coordinator(self, asked: ConsumerRequest) -> SubscriptionCoordinator | None:
        controller = self._service.controller(asked.topic)
        return None if controller is None else controller.coordinators.get(asked.subscription)

    def _fence(self, asked: ConsumerRequest) -> None:
        """Tells the process that has the name; until it has left, or lapsed, the other waits."""
        known = self._coordinator(asked)
        rival = None if known is None else known.rival(asked.consumer, asked.instance)
        attached = None if rival is None else self._service.consumers.get(rival)
        if attached is not None:
            attached.consumer.fenced(taken_over(asked))

    async def _register(self, asked: ConsumerRequest) -> None:
        while (step := self._admit(asked)) is not AdmissionStep.OPEN:
            match step:
                case AdmissionStep.CREATE:
                    await self._make(asked.topic, asked.subscription, asked.kind, asked.start_ms)
                case AdmissionStep.JOIN:
                    await self.change(
                        asked.topic,
                        asked.subscription,
                        SubscriptionOp.JOIN,
                        consumer=asked.consumer,
                        instance=asked.instance,
                    )
                case _:
                    if step is AdmissionStep.FENCE:
                        self._fence(asked)
                    raise self._refusal(asked, step)
        await self._let_begin(asked.topic, asked.subscription)

    def _refusal(self, asked: ConsumerRequest, step: AdmissionStep) -> OperationError:
        if step is AdmissionStep.FULL:
            return self._access.room(_CONSUMERS, asked.topic, asked.subscription).full()
        self._access.must_control(asked.topic)  # or it may know less than the consumer
        known = self._runtime.view.subscription(asked.topic, asked.subscription)
        return refusal(asked, step, known)

    def _open(self, asked: ConsumerRequest, consumer: ConsumerConnection) -> RegisteredConsumer:
        self._access.must_control(asked.topic)
        controller = self._service.controller(asked.topic)
        known = self.known(asked.topic, asked.subscription)
        number = self._service.connection_number()
        session = RegisteredConsumer(number, asked, known.created_offset)
        same = is_same_life(asked, known)
        if controller is None or not controller.opened(
            asked.subscription,
            asked.consumer,
            asked.instance,
            session.number,
            asked.holdings,
            asked.drained if same else (),
            self._runtime.now(),
            anew=not same,
        ):
            raise UnavailableError(
                f"consumer {asked.consumer} of {full_name(asked.topic)} was registered and removed "
                "again at once; try again"
            )
        self._service.consumers[session.number] = Attached(
            asked.topic, asked.subscription, consumer
        )
        self._log.info(
            "consumer.opened",
            topic=asked.topic,
            subscription=asked.subscription,
            consumer=asked.consumer,
            connection=session.number,
        )
        self._service.reconcile(asked.topic)
        return session

    async def change(
        self,
        topic: str,
        subscription: str,
        op: SubscriptionOp,
        *,
        begin: StartPositions | None = None,
        of: Subscription | None = None,
        **fields: Any,
    ) -> SubscriptionChange | None:
        """Returns the record of a change; None if another request was as fast and has made it
        already.

        `begin`: the beginning that was found a moment ago. `of`: returns None, too, if the
        subscription has begun anew since that was read, or is another one.
        """
        what = _LIMITED.get(op)
        room = None if what is None else self._access.room(what, topic, subscription)

        def build() -> SubscriptionChange | None:
            before = self._runtime.view.subscription(topic, subscription)
            if (before is not None) is (op is SubscriptionOp.CREATE):
                return None
            if before and of and before.created_offset != of.created_offset:
                return None
            now = self._access.topic(topic)
            if begin is not None:
                fields.update(begin.fields(topic, now))
            if room is not None:
                present: Iterable[object] = self._runtime.view.subscriptions(topic)
                if before is not None:
                    present = () if fields["consumer"] in before.consumers else before.consumers
                fields["limit"] = room.taken(present)
            return subscription_change(
                self.proposals.actor(),
                topic,
                now,
                subscription,
                before,
                op,
                self.proposals.new_id(),
                **fields,
            )

        refusals = {**self._access.refusals(topic), **dict.fromkeys(_SO_ALREADY)}
        if room is not None:
            refusals[Verdict.LIMIT_REACHED] = room.full
        deadline = self.proposals.deadline(self._access.settings.now.lookup_timeout_s)
        return await self.proposals.settle(build, refusals, deadline)
