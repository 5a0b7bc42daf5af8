"""`TopicsConsumer`: one consumer over a selection of topics, including topics that are created
later.

Each topic has a consumer of its own. They share connections, clients of Kafka and numbers
(`resources`). The application's calls take turns among the topics that have something
(`TopicTurns`).

A task follows each topic while the list has it, or something of it is here. So a topic is opened
again only once it is closed, and never has two consumers here:

* It opens the topic in its turn, because only `OPENING_MAX` are opened at once.
* Messages are given out until the topic leaves the list, or its consumer fails.
* Then the topic drains: its given-out messages may be acknowledged, until all of them are or
  `settle_s` is over. Then it is closed.
* A topic that cannot be opened, or fails, is tried again with back-off while the list has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from anabranch.client._aio import MessageT, Receiving, Tasks
from anabranch.client._consumer.consumer import Consumer, Membership, Produce
from anabranch.client._consumer.session import warn_if_blocked
from anabranch.client._errors import (
    ClientError,
    ClosedError,
    ConsumerFencedError,
    TopicNotFoundError,
)
from anabranch.client._many.resources import SharedResources
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
_WATCH_S_MAX: Final = 30.0  # for the first layout of a topic, when many are asked for
_BACK_OFF_S_MIN: Final = 0.5
_BACK_OFF_S_MAX: Final = 60.0
# A topic must have been open for so long that its next failure counts as the first again.
_STEADY_S: Final = 60.0
_LOOK_S: Final = 0.5  # between two looks at whether the event loop runs
_SESSION_S: Final = 10.0  # by the nodes' default


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


@dataclass(slots=True, eq=False)
class _Topic:
    """One topic that the list has, or that is here yet."""

    name: str
    is_listed: bool = True
    is_giving: bool = False  # its messages are given out
    failures: int = 0
    since: float = 0.0  # it was opened
    opening: asyncio.Task[None] | None = None
    poke: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Waits for the condition, looking after each poke, for `timeout_s` seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self.poke.clear()
                    await self.poke.wait()

    @property
    def back_off_s(self) -> float:
        """The seconds until it is tried again."""
        if not self.failures:
            return 0.0
        return min(_BACK_OFF_S_MAX, _BACK_OFF_S_MIN * 2.0 ** min(self.failures - 1, 20))


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
        self._settle_s = None if math.isinf(settle_s) else settle_s
        self._now: Callable[[], float] = clock.now
        self._list = TopicListWatch(who.nodes, who.selection)
        self._parts = SharedResources(who.nodes)
        self._turns = TopicTurns()
        self._topics: dict[str, _Topic] = {}
        self._draining: dict[_Topic, None] = {}
        self._consumers: dict[str, ConsumerT] = {}  # for topics that are open or drain
        self._has_consumer: set[str] = set()  # topics that have one, be it before it is open
        self._failing: dict[str, str] = {}
        # The topics of the first list, which begin at `start`, with their incarnations.
        self._first: dict[str, int] = {}
        self._untried: set[str] = set()  # topics of the first list, neither opened nor refused yet
        self._all_tried = asyncio.Event()
        self._tasks = Tasks(self._task_failed)
        self._followers: set[asyncio.Task[None]] = set()
        self._readable = asyncio.Event()
        self._opening_turn = asyncio.Semaphore(OPENING_MAX)
        self._closing_turn = asyncio.Semaphore(_CLOSING_MAX)
        self._failure: BaseException | None = None
        self._close_failure: Exception | None = None
        self._is_closing = False
        self._is_over = False  # every topic goes at once
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
        self._first, self._untried = dict.fromkeys(topics, 0), set(topics)
        self._listed(sorted(topics))
        self._tried("")
        self._tasks.spawn(self._look())
        try:
            async with asyncio.timeout(self._settings.subscribe_timeout_s):
                await self._all_tried.wait()
        except TimeoutError:
            self._logger.warning("consumer.topics_opening", topics=len(self._untried))
        if self._failure is not None:
            raise self._failure
        return self

    @property
    def topics(self) -> list[str]:
        """The topics that it consumes now, sorted: `tenant/namespace/name`."""
        return sorted(each.name for each in list(self._topics.values()) if each.is_giving)

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
        await asyncio.gather(*ends, self._parts.close(), return_exceptions=True)

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
        for name in change.removed:
            self._failing.pop(name, None)
            self._first.pop(name, None)  # a topic that takes its name comes later
            self._tried(name)
            topic = self._topics.get(name)
            if topic is not None:
                topic.is_listed, topic.failures = False, 0
                self._stop_giving(topic)
        self._listed(change.added)
        self._logger.info(
            "consumer.topics_changed", added=len(change.added), removed=len(change.removed)
        )

    def _listed(self, topics: Iterable[str]) -> None:
        for name in topics:
            topic = self._topics.get(name)
            if topic is not None:
                topic.is_listed = True
            elif not self._is_over:
                topic = self._topics[name] = _Topic(name)
                task = self._tasks.spawn(self._follow(topic))
                self._followers.add(task)
                task.add_done_callback(self._followers.discard)

    def _tried(self, topic: str) -> None:
        self._untried.discard(topic)
        if not self._untried:
            self._all_tried.set()

    def _wants(self, topic: _Topic) -> bool:
        return topic.is_listed and not self._is_over and self._failure is None

    async def _follow(self, topic: _Topic) -> None:
        """Consumes a topic while the list has it, and drains and closes it then."""
        while self._wants(topic):
            async with self._opening_turn:
                if self._wants(topic):
                    topic.opening = self._tasks.spawn(self._open(topic))
                    await asyncio.wait([topic.opening])
                    topic.opening = None
            self._tried(topic.name)
            consumer = self._consumers.get(topic.name)
            if consumer is not None:
                await topic.until(lambda: not topic.is_giving)
                await self._drain(topic, consumer)
                await self._close_topic(topic, consumer)
            await topic.until(lambda: not self._wants(topic), topic.back_off_s)
        del self._topics[topic.name]

    async def _open(self, topic: _Topic) -> None:
        try:
            consumer = await self._opened(topic.name)
        except AnabranchError as error:
            self._failed(topic.name, error)
            return
        self._consumers[topic.name] = consumer
        self._failing.pop(topic.name, None)
        topic.is_giving, topic.since = self._wants(topic), self._now()
        if topic.is_giving:
            self._came(topic.name, consumer)
            self._topic_readable(topic.name)  # messages from before count, too

    async def _opened(self, topic: str) -> ConsumerT:
        who = self._who
        watch = LayoutWatch(self._parts.nodes, f"topic://{topic}")
        layout = await watch.start(_WATCH_S_MAX)
        settings = (
            self._late_settings if self._is_late(topic, layout.incarnation) else self._settings
        )
        try:
            watch.traffic = who.traffic.topic(watch)
            membership = Membership(
                self._parts.nodes,
                watch,
                who.kafka,
                self.subscription,
                self.consumer_name,
                who.produce,
                self._parts,
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

    def _is_late(self, topic: str, incarnation: int) -> bool:
        """Returns True if the topic came after the first list.

        A topic may be deleted and created again without a list that lacks it, for example while no
        node could be reached. Its incarnation tells.
        """
        if self._first.get(topic) in (0, incarnation):
            self._first[topic] = incarnation
            return False
        self._first.pop(topic, None)
        return True

    async def _drain(self, topic: _Topic, consumer: ConsumerT) -> None:
        """Waits until nothing that was given out is left to acknowledge."""
        self._draining[topic] = None
        await topic.until(lambda: self._is_over or not self._in_flight(consumer), self._settle_s)
        del self._draining[topic]

    async def _close_topic(self, topic: _Topic, consumer: ConsumerT) -> None:
        try:
            async with self._closing_turn:
                await consumer.close(keep_share=self._keeps_share)
        except Exception as error:  # noqa: BLE001 - the others must go on all the same
            self._logger.warning("consumer.topic_not_closed_well", topic=topic.name, why=str(error))
            if self._is_closing and topic.is_listed:  # one that is gone has no positions
                self._close_failure = self._close_failure or error
        finally:
            del self._consumers[topic.name]
            self._left(consumer)
            self._has_consumer.discard(topic.name)

    def _failed(self, name: str, error: Exception) -> None:
        """Notes that the topic could not be opened, or goes on no more.

        A consumer that is fenced in one topic is fenced in all. To come again would fence the other
        one in turn.
        """
        topic = self._topics.get(name)
        if topic is None or (name in self._consumers and not topic.is_giving):
            return
        if topic.is_giving and self._now() - topic.since >= _STEADY_S:
            topic.failures = 0
        topic.failures += 1
        if topic.is_listed:
            self._failing[name] = str(error)
        self._stop_giving(topic)
        if isinstance(error, ConsumerFencedError):
            self._keeps_share = True
            self._end_topics()
            self._task_failed(error)
        gone = isinstance(error, TopicNotFoundError)  # the list will say so, too
        tell = self._logger.info if gone else self._logger.warning
        tell("consumer.topic_failed", topic=name, why=str(error), again_s=topic.back_off_s)

    def _stop_giving(self, topic: _Topic) -> None:
        topic.is_giving = False
        self._turns.leave(topic.name)
        self._went(topic.name)
        if topic.opening is not None and not topic.is_listed:
            topic.opening.cancel()
        topic.poke.set()

    def _end_topics(self) -> None:
        self._is_over = True
        for topic in self._topics.values():
            self._stop_giving(topic)
            if topic.opening is not None:
                topic.opening.cancel()

    def _topic_readable(self, name: str) -> None:
        topic = self._topics.get(name)
        if topic is not None and topic.is_giving:
            self._turns.ready(name)
            self._readable.set()
        else:
            self._settling()

    def _settling(self) -> None:
        """Notes an acknowledgement or a loss. A draining topic may be settled by it."""
        for topic in self._draining:
            topic.poke.set()

    async def _look(self) -> None:
        """Warns of a blocked event loop, once for all topics."""
        while True:
            due = self._now() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            warn_if_blocked(self._logger, self._now() - due, _SESSION_S)

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

    # Its end.

    async def _close_all(self) -> None:
        self._readable.set()
        try:
            await self._list.close()
            self._end_topics()
            if self._followers:
                await asyncio.wait(self._followers)
        finally:
            await self._tasks.cancel()
            ends = [consumer.close() for consumer in self._consumers.values()]
            await asyncio.gather(*ends, return_exceptions=True)
            await self._parts.close()
        if self._close_failure is not None:
            raise self._close_failure
