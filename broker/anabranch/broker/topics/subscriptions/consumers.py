"""Consumers' sessions with the controller of their topic: they come, report, and leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from anabranch.broker.errors import ConflictError, NotFoundError, OperationError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.service import Attached, ConsumerConnection
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.channel.kafka.offsets import EARLIEST
from anabranch.core import names
from anabranch.core.entities.subscription import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.names import full_name
from anabranch.core.subscriptions.admission import (
    AdmissionStep,
    SubscribeRequest,
    admit,
    is_same_life,
)
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.tenants.limits import TenantLimit
from anabranch.wire.anabranch_pb2 import ServerError

_CONSUMERS: Final = TenantLimit.MAX_CONSUMERS_PER_SUBSCRIPTION


class ConsumerFencedError(ConflictError):
    """Another process has taken the name over."""

    code = ServerError.ConsumerFenced


class SessionOverError(NotFoundError):
    """The controller does not count on this consumer any more: it must subscribe again."""

    code = ServerError.ConsumerNotFound


class SubscriptionGoneError(NotFoundError):
    """The subscription was deleted, and its consumers' sessions with it; another may be there."""

    code = ServerError.SubscriptionNotFound


def taken_over(asked: SubscribeRequest) -> str:
    """Returns the text for the process that had the name."""
    return (
        f"another process has taken over the name {asked.consumer} in {_what(asked)}: give each "
        "one its own name"
    )


def refusal(
    asked: SubscribeRequest, step: AdmissionStep, known: Subscription | None
) -> OperationError:
    """Returns the error that refuses a consumer at this step; full limits have their own."""
    what, who = _what(asked), asked.consumer
    match step:
        case AdmissionStep.DELETED:
            return SubscriptionGoneError(f"{what} was deleted")
        case AdmissionStep.REPLACED:
            return SubscriptionGoneError(
                f"{what} was deleted and made again, or put somewhere else, while consumer {who} "
                "was away: subscribe again with a new consumer"
            )
        case AdmissionStep.OTHER_KIND if known is not None:
            return ConflictError(
                f"{what} is of type {known.kind.name}: use it as such, or another subscription"
            )
        case AdmissionStep.FENCED:
            return ConsumerFencedError(taken_over(asked))
        case _:
            return UnavailableError(
                f"another process was consumer {who} of {full_name(asked.topic)} and may be "
                "serving yet: try again until it has left, or its session has lapsed"
            )


def _what(asked: SubscribeRequest) -> str:
    return f"subscription {asked.subscription} of {full_name(asked.topic)}"


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

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.access = access = subscriptions.access
        self.standing = subscriptions.standing
        self._subscriptions = subscriptions
        self._runtime = access.runtime
        self._service = access.service
        self._log = get_logger(broker=access.runtime.core.me)

    async def subscribe(
        self, asked: ConsumerRequest, consumer: ConsumerConnection
    ) -> RegisteredConsumer:
        """Registers the consumer; it is given its assignment at once, and every later one.

        Raises ElsewhereError, NotFoundError, ConflictError, UnavailableError or InvalidInputError,
        and SubscriptionGoneError for one that was subscribed to a subscription that is gone.
        """
        names.subscription(asked.subscription)
        names.consumer(asked.consumer)
        self.access.must_be_enabled()
        self.access.topic(asked.topic)
        self.access.must_control(asked.topic)
        with self._service.pinned(asked.topic):
            self._service.reconcile(asked.topic)  # earlier knowledge of consumers counts
            async with self._subscriptions.alone(asked.topic, asked.subscription):
                await self._register(asked)
            return self._open(asked, consumer)

    def report(
        self, session: RegisteredConsumer, released: Iterable[Bucket], drained: Iterable[Bucket]
    ) -> bool:
        """Takes a report; returns whether `settle` is due.

        Raises SessionOverError or ElsewhereError if the report is not counted.
        """
        asked = session.asked
        self.access.must_control(asked.topic)
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
        if attached is not None:
            attached.dead_letters_waiting = dead_letters

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
        self.access.must_control(asked.topic)
        controller = self._service.controller(asked.topic)
        if controller is None:
            return
        with self._service.pinned(asked.topic):
            async with self._subscriptions.alone(asked.topic, asked.subscription):
                known = self._runtime.view.subscription(asked.topic, asked.subscription)
                if asked.kind is SubscriptionKind.QUEUE:
                    controller.left(asked.subscription, asked.consumer)  # was never registered
                elif known is not None and known.instance_of(asked.consumer) == asked.instance:
                    controller.left(asked.subscription, asked.consumer, keeps_share=keeps_share)
                    await self._subscriptions.change(
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

    def _admit(self, asked: ConsumerRequest) -> AdmissionStep:
        # Others came first, and a controller that is being handed over knows of nobody.
        self.access.must_control(asked.topic)
        known = self._runtime.view.subscription(asked.topic, asked.subscription)
        room = self.access.room(_CONSUMERS, asked.topic)
        coordinator = self._service.coordinator(asked.topic, asked.subscription)
        return admit(asked, known, coordinator, room.limit)

    def _fence(self, asked: ConsumerRequest) -> None:
        """Tells the process that has the name; until it has left, or lapsed, the other waits."""
        known = self._service.coordinator(asked.topic, asked.subscription)
        rival = None if known is None else known.rival(asked.consumer, asked.instance)
        attached = None if rival is None else self._service.consumers.get(rival)
        if attached is not None:
            attached.consumer.fenced(taken_over(asked))

    async def _register(self, asked: ConsumerRequest) -> None:
        topic, subscription = asked.topic, asked.subscription
        while (step := self._admit(asked)) is not AdmissionStep.OPEN:
            match step:
                case AdmissionStep.CREATE:
                    await self._subscriptions.make(topic, subscription, asked.kind, asked.start_ms)
                case AdmissionStep.JOIN:
                    await self._subscriptions.change(
                        topic,
                        subscription,
                        SubscriptionOp.JOIN,
                        consumer=asked.consumer,
                        instance=asked.instance,
                    )
                case _:
                    if step is AdmissionStep.FENCE:
                        self._fence(asked)
                    raise self._refusal(asked, step)
        await self._subscriptions.let_begin(topic, subscription)

    def _refusal(self, asked: ConsumerRequest, step: AdmissionStep) -> OperationError:
        if step is AdmissionStep.FULL:
            return self.access.room(_CONSUMERS, asked.topic, asked.subscription).full()
        self.access.must_control(asked.topic)  # or it may know less than the consumer
        known = self._runtime.view.subscription(asked.topic, asked.subscription)
        return refusal(asked, step, known)

    def _open(self, asked: ConsumerRequest, consumer: ConsumerConnection) -> RegisteredConsumer:
        self.access.must_control(asked.topic)
        controller = self._service.controller(asked.topic)
        known = self._subscriptions.known(asked.topic, asked.subscription)
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
                f"the registration of consumer {asked.consumer} of {full_name(asked.topic)} has "
                "just ended, or is about to: try again"
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
