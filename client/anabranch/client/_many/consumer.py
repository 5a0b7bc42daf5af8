"""`TopicsConsumer`: one consumer over a selection of topics, including topics that are created
later.

Each topic has a consumer of its own. They share connections, clients of Kafka and numbers
(`resources`). `TopicMembership` decides the set of topics and the next step of each, and one task
acts on it. The application's calls take turns among the topics that have something (`TopicTurns`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from anabranch.client._aio import MessageT, Receiving, Tasks
from anabranch.client._consumer.consumer import Consumer, Membership, Produce
from anabranch.client._errors import (
    ClientError,
    ClosedError,
    ConsumerFencedError,
    TopicNotFoundError,
)
from anabranch.client._many.beginnings import Beginnings
from anabranch.client._many.membership import MemberState, OrderKind, TopicMembership
from anabranch.client._many.resources import ManyTopicsParts, SharedResources
from anabranch.client._many.turns import TopicTurns
from anabranch.client._settings import ReceivingSettings
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.topic_list import ListChange, TopicSelection
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core import names
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.wire import clock
from anabranch.wire.logging import get_logger

ConsumerT = TypeVar("ConsumerT", bound=Consumer[Any])
SettingsT = TypeVar("SettingsT", bound=ReceivingSettings)

OPENING_MAX: Final = 64  # topics that are being opened at once
_CLOSING_MAX: Final = 64
_WATCH_S_MAX: Final = 30.0  # for the first layout of a topic, when thousands are asked for
_BUCKETS: Final = 4  # the buckets of a new topic by default


class TopicsSubscription(msgspec.Struct, frozen=True):
    """Names one consumer of a subscription and its selection of topics, with its ways to nodes and
    Kafka.
    """

    nodes: Nodes
    kafka: Mapping[str, Any]
    selection: TopicSelection
    subscription: str
    consumer_name: str
    produce: Produce
    traffic: TrafficReporter


class TopicsConsumer(Receiving[MessageT], Generic[ConsumerT, MessageT, SettingsT]):
    """One consumer over many topics, on one event loop. `Client` makes it.

    A topic that fails, or cannot be subscribed to, is logged and tried again. The others go on.
    """

    def __init__(self, who: TopicsSubscription, settings: SettingsT, settle_s: float) -> None:
        kind = type(who.selection)
        if not issubclass(kind, TopicSelection):
            raise InvalidInputError(f"topics must be a TopicSelection: {kind.__name__}")
        self.selection = who.selection
        self.subscription = names.subscription(who.subscription)
        self.consumer_name = names.consumer(who.consumer_name or f"consumer-{secrets.token_hex(8)}")
        self._lives_here(f"consumer {self.consumer_name} of {who.selection}")
        self._who = who
        self._settings = settings
        self._late_settings = msgspec.structs.replace(settings, start="earliest")
        self._now: Callable[[], float] = clock.now
        self._list = TopicListWatch(who.nodes, who.selection)
        self._parts = ManyTopicsParts(who.nodes, 0)
        self._members = TopicMembership(settle_s, OPENING_MAX)
        self._turns = TopicTurns()
        self._consumers: dict[str, ConsumerT] = {}  # for topics that are open or drain
        self._has_consumer: set[str] = set()  # topics that have one, be it before it is open
        self._under_way: dict[str, asyncio.Task[None]] = {}  # openings
        self._failing: dict[str, str] = {}
        self._gone: set[str] = set()  # topics that the list has no more, and are here yet
        self._beginnings = Beginnings()
        self._first: set[str] = set()  # topics of the first list, neither opened nor refused yet
        self._all_tried = asyncio.Event()
        self._tasks = Tasks(self._task_failed)
        self._poke = asyncio.Event()
        self._readable = asyncio.Event()
        self._emptied = asyncio.Event()
        self._closing_turn = asyncio.Semaphore(_CLOSING_MAX)
        self._failure: BaseException | None = None
        self._close_failure: Exception | None = None
        self._is_closing = False
        self._keeps_share = False  # for the closing of its topics
        self._closing: asyncio.Task[None] | None = None
        self._logger = get_logger(__name__).bind(
            selection=str(self.selection),
            subscription=self.subscription,
            consumer=self.consumer_name,
        )

    # For the application.

    async def start(self) -> Self:
        """Returns when each present topic is subscribed to, or cannot be for now, or after
        `subscribe_timeout_s`. Raises the errors of `TopicListWatch.start`.
        """
        topics = await self._list.start(self._settings.subscribe_timeout_s)
        self._list.listeners.append(self._list_changed)
        self._check_count(len(topics))
        self._parts = ManyTopicsParts(self._who.nodes, _BUCKETS * len(topics))
        self._first, self._beginnings = set(topics), Beginnings(topics)
        self._members.listed(sorted(topics), self._now())
        self._tried("")
        self._tasks.spawn(self._drive())
        try:
            async with asyncio.timeout(self._settings.subscribe_timeout_s):
                await self._all_tried.wait()
        except TimeoutError:
            self._logger.warning("consumer.topics_opening", topics=len(self._first))
        if self._failure is not None:
            raise self._failure
        return self

    @property
    def topics(self) -> list[str]:
        """The topics that it consumes now, sorted: `tenant/namespace/name`."""
        is_open = MemberState.OPEN
        return sorted(t for t in list(self._consumers) if self._members.state(t) is is_open)

    @property
    def failing(self) -> dict[str, str]:
        """Topics whose subscription failed, with the reason. The consumer tries them again."""
        return dict(self._failing)

    @property
    def is_closed(self) -> bool:
        """True once nothing of it is left to close."""
        return self._is_closing and (self._closing is None or self._closing.done())

    async def close(self, *, keep_share: bool = False) -> None:
        """Leaves all subscriptions, as each kind of consumer describes.
        `Consumer.close` describes `keep_share`.
        """
        if self._home.is_elsewhere:
            await self._close_elsewhere()
            return
        if self._closing is None:
            self._is_closing, self._keeps_share = True, keep_share or self._keeps_share
            self._closing = asyncio.create_task(self._close_all(), name="consumer close")
        await asyncio.shield(self._closing)

    async def _end_without_loop(self) -> None:
        self._is_closing = True
        ends = [consumer._end_without_loop() for consumer in self._consumers.values()]
        await asyncio.gather(*ends, self._parts.drop(), return_exceptions=True)

    # The differences between kinds of consumers.

    @abstractmethod
    def _make(self, membership: Membership, watch: LayoutWatch, settings: SettingsT) -> ConsumerT:
        """Returns a consumer of one topic. Raises ClientError, InvalidInputError."""

    @abstractmethod
    def _in_flight(self, consumer: ConsumerT) -> bool:
        """Returns True if a message that it gave out can still be acknowledged."""

    def _check_count(self, topics: int) -> None:
        """Raises InvalidInputError for more topics than such a consumer can have."""

    def _came(self, topic: str, consumer: ConsumerT) -> None:
        """Notes that the topic is open."""

    def _went(self, topic: str) -> None:
        """Notes that nothing more of the topic is to be given out."""

    def _left(self, consumer: ConsumerT) -> None:
        """Notes that the topic is closed."""

    # Topics come and go.

    def _list_changed(self, change: ListChange) -> None:
        now = self._now()
        self._members.unlisted(change.removed, now)
        self._members.listed(change.added, now)
        self._gone = (self._gone & self._consumers.keys()).union(change.removed) - set(change.added)
        for topic in change.removed:
            self._failing.pop(topic, None)
            self._beginnings.gone(topic)
            self._stop_giving(topic)
            self._tried(topic)
        self._logger.info(
            "consumer.topics_changed", added=len(change.added), removed=len(change.removed)
        )
        self._poke.set()

    def _tried(self, topic: str) -> None:
        self._first.discard(topic)
        if not self._first:
            self._all_tried.set()

    async def _drive(self) -> None:
        while True:
            self._poke.clear()
            now = self._now()
            for topic in self._members.draining:
                consumer = self._consumers.get(topic)
                if consumer is None or not self._in_flight(consumer):
                    self._members.settled(topic, now)
            for order in self._members.orders(now):
                if order.kind is OrderKind.OPEN:
                    task = self._tasks.spawn(self._open(order.topic))
                    self._under_way[order.topic] = task
                else:
                    self._tasks.spawn(self._close_topic(order.topic))
            if self._members.is_empty:
                self._emptied.set()
            pause_s = self._members.wake_at() - self._now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if pause_s > 1e6 else max(pause_s, 0.001)):
                    await self._poke.wait()

    async def _open(self, topic: str) -> None:
        try:
            consumer = await self._opened(topic)
        except AnabranchError as error:
            self._failed(topic, error)
        else:
            self._consumers[topic] = consumer
            self._failing.pop(topic, None)
            self._members.opened(topic, self._now())
            self._came(topic, consumer)
            self._topic_readable(topic)  # messages from before count, too
        finally:
            self._under_way.pop(topic, None)
            self._tried(topic)
            self._poke.set()

    async def _opened(self, topic: str) -> ConsumerT:
        who = self._who
        watch = LayoutWatch(self._parts.nodes, f"topic://{topic}")
        layout = await watch.start(_WATCH_S_MAX)
        is_late = self._beginnings.is_late(topic, layout.incarnation)
        settings = self._late_settings if is_late else self._settings
        try:
            watch.traffic = who.traffic.topic(watch)
            membership = Membership(
                self._parts.nodes,
                watch,
                who.kafka,
                self.subscription,
                self.consumer_name,
                who.produce,
                SharedResources(self._parts, is_late=is_late),
                functools.partial(self._topic_readable, topic),
            )
            consumer = self._make(membership, watch, settings)
            self._has_consumer.add(topic)
            await consumer.start()
        except BaseException:
            self._has_consumer.discard(topic)
            await watch.close()
            raise
        return consumer

    async def _close_topic(self, topic: str) -> None:
        opening = self._under_way.get(topic)
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        self._stop_giving(topic)
        consumer = self._consumers.get(topic)
        try:
            if consumer is not None:
                async with self._closing_turn:
                    await consumer.close(keep_share=self._keeps_share)
        except Exception as error:  # noqa: BLE001 - the others must go on all the same
            self._logger.warning("consumer.topic_not_closed_well", topic=topic, why=str(error))
            if (
                self._is_closing and topic not in self._gone
            ):  # a topic that is gone has no positions
                self._close_failure = self._close_failure or error
        finally:
            if consumer is not None:
                del self._consumers[topic]
                self._left(consumer)
            self._has_consumer.discard(topic)
            self._members.closed(topic, self._now())
            self._poke.set()

    def _failed(self, topic: str, error: Exception) -> None:
        """Notes that the topic could not be opened, or goes on no more.

        A consumer that is fenced in one topic is fenced in all. To come again would fence the other
        one in turn.
        """
        again_s = self._members.failed(topic, self._now())
        self._failing[topic] = str(error)
        self._stop_giving(topic)
        if isinstance(error, ConsumerFencedError):
            self._keeps_share = True
            self._members.close(self._now())
            self._task_failed(error)
        gone = isinstance(error, TopicNotFoundError)  # the list will say so, too
        tell = self._logger.info if gone else self._logger.warning
        tell("consumer.topic_failed", topic=topic, why=str(error), again_s=again_s)
        self._poke.set()

    def _stop_giving(self, topic: str) -> None:
        if self._members.state(topic) is not MemberState.OPEN:
            self._turns.leave(topic)
            self._went(topic)

    def _topic_readable(self, topic: str) -> None:
        if self._members.state(topic) is MemberState.OPEN:
            self._turns.ready(topic)
            self._readable.set()
        else:
            self._settling()

    def _settling(self) -> None:
        """Notes an acknowledgement or a loss. A draining topic may be settled by it."""
        if self._members.draining:
            self._poke.set()

    def _check(self) -> None:
        self._home.check()
        if self._failure is not None:
            raise self._failure
        if self._is_closing:
            raise ClosedError(
                f"consumer {self.consumer_name} of {self.selection} was closed: subscribe anew"
            )

    def _task_failed(self, error: BaseException) -> None:
        self._logger.error("consumer.failed", why=repr(error))
        fault = ClientError(f"the consumer met a fault: {error!r}")
        self._failure = self._failure or (error if isinstance(error, ClientError) else fault)
        self._readable.set()
        self._all_tried.set()
        self._emptied.set()

    # Its end.

    async def _close_all(self) -> None:
        self._readable.set()
        try:
            await self._list.close()
            self._members.close(self._now())
            self._poke.set()
            if not self._members.is_empty and self._failure is None:
                await self._emptied.wait()
        finally:
            await self._tasks.cancel()
            ends = [consumer.close() for consumer in self._consumers.values()]
            await asyncio.gather(*ends, return_exceptions=True)
            await self._parts.close()
        if self._close_failure is not None:
            raise self._close_failure
