"""Consumers' sessions with the controller of their topic: they come, report, and leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from anabranch.broker.errors import (
    ConflictError,
    DeadlineError,
    KafkaFailedError,
    NotFoundError,
    UnavailableError,
)
from anabranch.broker.log import get_logger
from anabranch.broker.topics.access import Access
from anabranch.broker.topics.service import Attached, Consumer
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.core import names
from anabranch.core.instances import Bucket
from anabranch.core.names import full_name
from anabranch.core.records import SubscriptionChange
from anabranch.core.segment_topics import kafka_group
from anabranch.core.state import StateReader
from anabranch.core.subscriptions import Subscription, SubscriptionKind, SubscriptionOp
from anabranch.core.topic_proposals import subscription_change
from anabranch.core.verdicts import Verdict
from anabranch.wire import clock

_STARTED_MAX: Final = 10_000
_SO_ALREADY: Final = (
    Verdict.CONSUMER_EXISTS,
    Verdict.UNKNOWN_CONSUMER,
    Verdict.UNKNOWN_SUBSCRIPTION,
)


class ConsumerBusyError(ConflictError):
    """The name is in use by another process that is connected."""


class SessionOverError(NotFoundError):
    """The controller does not count on this consumer any more: it must subscribe again."""


class SubscriptionGoneError(NotFoundError):
    """The subscription was deleted, and its consumers' sessions with it; another may be there."""


class Asked(msgspec.Struct, frozen=True):
    """What a consumer subscribes with; `topic` is `tenant/namespace/name`."""

    topic: str
    subscription: str
    kind: SubscriptionKind
    consumer: str
    instance: int
    group_id: str = ""  # of the subscription that holdings and drained speak of
    holdings: tuple[Bucket, ...] = ()
    drained: tuple[Bucket, ...] = ()


class Session(msgspec.Struct, frozen=True):
    """A consumer that the controller counts on, under its connection number."""

    number: int
    asked: Asked


class Consumers:
    """The sessions that this node, as a controller, keeps. To be used in its event loop."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self._access = access
        self._requests = access.requests
        self._runtime = access.runtime
        self._service = access.service
        self._timeout_s = timeout_s
        self._started: dict[str, None] = {}  # share groups that begin at the first message
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = get_logger(broker=access.runtime.core.me)

    @property
    def view(self) -> StateReader:
        """The state as this node has folded it."""
        return self._runtime.view

    async def create(self, topic: str, subscription: str, kind: SubscriptionKind) -> None:
        """Creates a subscription, at the beginning of every segment, unless it is there."""
        names.subscription(subscription)
        async with self.alone(topic, subscription):
            await self._subscription(topic, subscription, kind)

    async def delete(self, topic: str, subscription: str) -> None:
        """Deletes a subscription with its consumers' sessions. Raises NotFoundError."""
        async with self.alone(topic, subscription):
            before = self.known(topic, subscription)
            await self.change(topic, subscription, SubscriptionOp.DELETE)
            why = f"subscription {subscription} of {full_name(topic)} was deleted"
            self._service.dismiss({topic}, why, subscription)
        group = self.group_id(topic, subscription, before)
        self._log.info("subscription.deleted", topic=topic, subscription=subscription, group=group)
        self._service.delete_group(group)

    def group_id(self, topic: str, subscription: str, known: Subscription) -> str:
        """The Kafka group of a subscription."""
        return kafka_group(self._service.prefix, topic, subscription, known.created_offset)

    async def subscribe(self, asked: Asked, consumer: Consumer) -> Session:
        """Registers the consumer; it is given its assignment at once, and every later one.

        Raises ElsewhereError, NotFoundError, ConflictError, UnavailableError or InvalidInputError,
        and SubscriptionGoneError for one that was subscribed to a subscription that is gone.
        """
        names.subscription(asked.subscription)
        names.consumer(asked.consumer)
        self._access.topic(asked.topic)
        self._access.must_control(asked.topic)
        with self._service.pinned(asked.topic):
            self._service.reconcile(asked.topic)  # what is known before this one counts
            async with self.alone(asked.topic, asked.subscription):
                await self._register(asked)
            return self._open(asked, consumer)

    def report(
        self, session: Session, released: Iterable[Bucket], drained: Iterable[Bucket]
    ) -> bool:
        """Takes a report; whether `settle` is due. Raises SessionOverError or ElsewhereError when
        it is not counted.
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
            asked.subscription, asked.consumer, session.number, let_go, done, clock.now()
        ):
            raise SessionOverError(
                f"the session of consumer {asked.consumer} of {full_name(asked.topic)} is over: "
                "subscribe again"
            )
        return bool(let_go or done)

    def settle(self, session: Session) -> None:
        """Hands out what a report has set free; to be called once that is answered."""
        self._service.reconcile(session.asked.topic)

    async def leave(self, session: Session) -> None:
        """The consumer gives everything back and its registration ends."""
        asked = session.asked
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
                    controller.left(asked.subscription, asked.consumer)
                    await self.change(
                        asked.topic,
                        asked.subscription,
                        SubscriptionOp.LEAVE,
                        consumer=asked.consumer,
                    )
            self.closed(session)

    def closed(self, session: Session) -> None:
        """The consumer's connection is gone; its share waits for it as long as its grace."""
        asked = session.asked
        self._service.consumers.pop(session.number, None)
        controller = self._service.controller(asked.topic)
        if controller is not None:
            controller.closed(asked.subscription, asked.consumer, session.number, clock.now())
            self._service.reconcile(asked.topic)

    # --- steps --------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(
        self, topic: str, subscription: str, timeout_s: float | None = None
    ) -> AsyncIterator[None]:
        """One request of a subscription at a time: their proposals would only beat one another.

        Raises DeadlineError when the request takes longer than that, or than a look-up may.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        key = f"{topic}/{subscription}"
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        what = f"subscription {subscription} of {full_name(topic)}"
        told = f"{what} is being changed by others all the time; try again"
        try:
            async with asyncio.timeout(limit_s), lock:
                told = f"whether {what} was changed is not known: look before you try again"
                yield
        except TimeoutError:
            raise DeadlineError(told) from None

    def known(self, topic: str, subscription: str) -> Subscription:
        known = self._runtime.view.subscription(topic, subscription)
        if known is None:
            self._access.topic(topic)
            raise NotFoundError(f"Subscription not found: {subscription} on {full_name(topic)}")
        return known

    async def _subscription(
        self, topic: str, subscription: str, kind: SubscriptionKind
    ) -> Subscription:
        known = self._runtime.view.subscription(topic, subscription)
        if known is None:
            await self.change(topic, subscription, SubscriptionOp.CREATE, kind=kind)
            known = self.known(topic, subscription)
        if known.kind is SubscriptionKind.QUEUE:
            # Not only by who created it: that node may have ended between the two.
            await self.start_share_group(self.group_id(topic, subscription, known))
        return known

    async def start_share_group(self, group: str) -> None:
        """Nobody may read before it is done: Kafka would let the group begin at its latest."""
        if group in self._started:
            return
        try:
            await asyncio.wrap_future(self._service.lanes.start_share_group(group))
        except KafkaRefusedError as error:
            raise KafkaFailedError(str(error)) from None
        except KafkaUnreachableError as error:
            raise UnavailableError(str(error)) from None
        if len(self._started) >= _STARTED_MAX:
            del self._started[next(iter(self._started))]
        self._started[group] = None

    def _must_last(self, asked: Asked) -> None:
        """Raises SubscriptionGoneError if what the consumer was subscribed to is not there.

        A subscription that was put somewhere else has another group as well, but knows its ordered
        consumers yet. A queue's read on in the former group: they are to begin anew.
        """
        if not asked.group_id:
            return  # it subscribes for the first time
        known = self._runtime.view.subscription(asked.topic, asked.subscription)
        if known is not None and (
            asked.group_id == self.group_id(asked.topic, asked.subscription, known)
            or known.instance_of(asked.consumer) == asked.instance
        ):
            return
        self._access.must_control(asked.topic)  # else this node may know less than the consumer
        what = f"subscription {asked.subscription} of {full_name(asked.topic)}"
        if known is None:
            raise SubscriptionGoneError(f"{what} was deleted")
        raise SubscriptionGoneError(
            f"{what} was deleted and made again, or put somewhere else, while consumer "
            f"{asked.consumer} was away: subscribe again with a new consumer"
        )

    async def _register(self, asked: Asked) -> None:
        self._must_last(asked)
        known = await self._subscription(asked.topic, asked.subscription, asked.kind)
        if known.kind is not asked.kind:
            raise ConflictError(
                f"subscription {asked.subscription} of {full_name(asked.topic)} is of type "
                f"{known.kind.name}: use it as such, or another subscription"
            )
        controller = self._service.controller(asked.topic)
        coordinator = controller and controller.coordinators.get(asked.subscription)
        if coordinator and coordinator.is_taken(asked.consumer, asked.instance):
            raise ConsumerBusyError(
                f"consumer {asked.consumer} is connected to subscription {asked.subscription} of "
                f"{full_name(asked.topic)} already: give this one another name, or close that one"
            )
        if known.kind is SubscriptionKind.QUEUE:
            return
        if coordinator and coordinator.is_lapsing(asked.consumer, asked.instance):
            raise UnavailableError(
                f"another process was consumer {asked.consumer} of {full_name(asked.topic)} and "
                "may be serving yet: try again until its session has lapsed"
            )
        if known.instance_of(asked.consumer) != asked.instance:
            await self.change(
                asked.topic,
                asked.subscription,
                SubscriptionOp.JOIN,
                consumer=asked.consumer,
                instance=asked.instance,
            )

    def _open(self, asked: Asked, consumer: Consumer) -> Session:
        self._access.must_control(asked.topic)
        controller = self._service.controller(asked.topic)
        session = Session(self._service.connection_number(), asked)
        known = self.known(asked.topic, asked.subscription)
        # What was put somewhere else has yet to be given all of it, and what a consumer holds for
        # the former group it serves until it hears of the new one.
        same = asked.group_id == self.group_id(asked.topic, asked.subscription, known)
        if controller is None or not controller.opened(
            asked.subscription,
            asked.consumer,
            asked.instance,
            session.number,
            asked.holdings,
            asked.drained if same else (),
            clock.now(),
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
        self, topic: str, subscription: str, op: SubscriptionOp, **fields: Any
    ) -> None:
        """Does nothing where what is asked for is so already: somebody else was as fast."""

        def build() -> SubscriptionChange | None:
            before = self._runtime.view.subscription(topic, subscription)
            if (before is not None) is (op is SubscriptionOp.CREATE):
                return None
            self._access.must_control(topic)
            return subscription_change(
                self._requests.actor(),
                topic,
                self._access.topic(topic),
                subscription,
                before,
                op,
                self._runtime.new_id(),
                **fields,
            )

        refusals = self._access.refusals(topic) | dict.fromkeys(_SO_ALREADY)
        await self._requests.settle(build, refusals, self._requests.deadline(self._timeout_s))
