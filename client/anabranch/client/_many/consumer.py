"""`StreamTopicsConsumer`: one consumer over a selection of topics, including later ones.

Each topic has a consumer of its own (`FollowedTopics`). They share connections, clients of Kafka
and numbers (`resources`). The application's calls take turns among the topics that have something
(`TopicTurns`).
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Self

import msgspec

from anabranch.client._aio import Tasks
from anabranch.client._consumer.consumer import Membership, Signal
from anabranch.client._consumer.dead_letters import Produce
from anabranch.client._consumer.messages import (
    Batch,
    Lost,
    Message,
    parts_of,
    raise_lost,
    while_held,
)
from anabranch.client._consumer.session import warn_if_blocked
from anabranch.client._errors import (
    ClientError,
    ClosedError,
    DeadlineError,
    TopicNotFoundError,
)
from anabranch.client._many.followed import FollowedTopics
from anabranch.client._many.resources import SharedResources
from anabranch.client._settings import ConsumerSettings
from anabranch.client._stream.consumer import StreamConsumer
from anabranch.client._stream.part import RunPart
from anabranch.client._stream.run import Run
from anabranch.client._stream.running import RunsByKey
from anabranch.client._stream.settings import RunSettings
from anabranch.client._topics.list_watch import TopicListWatch
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.topic_list import ListChange, TopicSelection
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core import names
from anabranch.core.entities.subscription import dead_letter_topic
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.wire import clock
from anabranch.wire.logging import get_logger

_WATCH_S_MAX: Final = 30.0  # for the first layout of a topic, when many are asked for
_LOOK_S: Final = 0.5  # between two looks at whether the event loop runs
_SESSION_S: Final = 10.0  # by the nodes' default
_MESSAGES_MAX: Final = 1_000
_TURN: Final = 100  # the event loop has its turn after so many messages at the latest


class StreamTopicsConsumer(RunsByKey):
    """One stream consumer over many topics, on one event loop. `Client` makes it.

    Each topic keeps the promises of `StreamConsumer`. A topic that fails, or cannot be subscribed
    to, is logged and tried again. The others go on. The topics of a run share its handlers.
    """

    def __init__(
        self,
        nodes: Nodes,
        kafka: Mapping[str, Any],
        traffic: TrafficReporter,
        selection: TopicSelection,
        subscription: str,
        consumer_name: str,
        settings: ConsumerSettings,
        produce: Produce,
    ) -> None:
        kind = type(selection)
        if not issubclass(kind, TopicSelection):
            raise InvalidInputError(f"topics must be a TopicSelection: {kind.__name__}")
        self.selection = selection
        self.subscription = names.subscription(subscription)
        self.consumer_name = names.consumer(consumer_name or f"consumer-{secrets.token_hex(8)}")
        self._lives_here(f"consumer {self.consumer_name} of {selection}")
        self._kafka = kafka
        self._traffic = traffic
        self._settings = settings
        self._produce = produce
        self._late_settings = msgspec.structs.replace(settings, start="earliest")
        self._now: Callable[[], float] = clock.now
        self._list = TopicListWatch(nodes, selection)
        self._parts = SharedResources(nodes)
        # The topics of the first list, which begin at `start`, with their incarnations.
        self._first: dict[str, int] = {}
        self._received = 0
        self._has_given = False
        self._given: dict[str, None] = {}  # topics with messages that were given out
        self._unflushed: dict[str, None] = {}  # topics of which something was acknowledged
        self._tasks = Tasks(self._task_failed)
        self._readable = Signal()
        self._drain_s = settings.settle_s
        self._failure: BaseException | None = None
        self._is_closing = False
        self._closing: asyncio.Task[None] | None = None
        self._logger = get_logger(__name__).bind(
            selection=str(selection),
            subscription=self.subscription,
            consumer=self.consumer_name,
        )
        self._followed = FollowedTopics(
            self._opened,
            settings.settle_s,
            self._topic_changed,
            self._topic_left,
            self._task_failed,
            self._logger,
        )

    # For the application.

    async def start(self) -> Self:
        """Returns when each present topic is subscribed to, or cannot be for now, or after
        `subscribe_timeout_s`. Raises the errors of `TopicListWatch.start`.
        """
        topics = self._wanted(await self._list.start(self._settings.subscribe_timeout_s))
        self._list.listeners.append(self._list_changed)
        self._first = dict.fromkeys(topics, 0)
        self._followed.begin(topics)
        self._tasks.spawn(self._look())
        try:
            async with asyncio.timeout(self._settings.subscribe_timeout_s):
                await self._followed.all_tried.wait()
        except TimeoutError:
            self._logger.warning("consumer.topics_opening", topics=len(self._followed.untried))
        if self._failure is not None:
            raise self._failure
        return self

    @property
    def topics(self) -> list[str]:
        """The topics that it consumes now, sorted: `tenant/namespace/name`."""
        return sorted(each.name for each in list(self._followed.topics.values()) if each.is_giving)

    @property
    def failing(self) -> dict[str, str]:
        """Topics whose subscription failed, with the reason. The consumer tries them again."""
        return dict(self._followed.failing)

    @property
    def is_closed(self) -> bool:
        """True once nothing of it is left to close."""
        return self._is_closing and (self._closing is None or self._closing.done())

    async def receive(self, timeout_s: float | None = None) -> Message:
        """Returns the next message.
        Raises DeadlineError after `timeout_s` seconds, or ClosedError.
        """
        self._received += 1
        if self._received % _TURN == 0:
            await asyncio.sleep(0)
        return (await self._next(1, timeout_s))[0]

    async def receive_many(
        self, messages_max: int = _MESSAGES_MAX, timeout_s: float | None = None
    ) -> Batch:
        """Returns the messages that are there, of any topics, from one to `messages_max`.
        Raises the errors of `receive`.
        """
        if messages_max < 1:
            raise InvalidInputError(f"messages_max must be at least 1: {messages_max}")
        await asyncio.sleep(0)
        return await self._next(messages_max, timeout_s)

    def while_held(self, received: Message | Batch) -> AbstractAsyncContextManager[None]:
        """Returns a context that is cancelled if a bucket of `received` is taken away, as for one
        topic.
        """
        self._home.check()
        return while_held(received)

    def acknowledge(self, received: Message | Batch) -> None:
        """Notes that everything up to this message or batch has been processed, in its topics.

        Raises BucketLostError as `StreamConsumer.acknowledge` does.
        """
        self._home.check()
        self._must_not_run()
        lost: list[Lost] = []
        for source, end in parts_of(received):
            consumer = self._followed.consumers.get(source.topic)
            if consumer is not None:
                self._unflushed[source.topic] = None
                lost += consumer.note_acknowledged([(source.holding, end)])
            elif source.is_revoked(end):  # its topic was left
                lost.append(Lost.of(source.topic, source.holding))
        self._followed.settling()
        raise_lost(lost)

    def acknowledge_all(self) -> None:
        """Notes that everything that was received so far has been processed.

        Raises BucketLostError as `StreamConsumer.acknowledge_all` does.
        """
        self._home.check()
        self._must_not_run()
        given, self._given = self._given, {}
        lost, self._followed.lost = list(self._followed.lost), {}
        for topic in given:
            consumer = self._followed.consumers.get(topic)
            if consumer is not None:
                self._unflushed[topic] = None
                lost += consumer.note_all_acknowledged()
        self._followed.settling()
        raise_lost(lost)

    async def flush(self, timeout_s: float = 10.0) -> None:
        """Returns once all acknowledgements are committed.

        Raises DeadlineError or SessionLapsedError, from the first topic that does.
        """
        self._home.check()
        topics, self._unflushed = self._unflushed, {}
        flushed = [self._flush(topic, timeout_s) for topic in topics]
        for failure in await asyncio.gather(*flushed, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _flush(self, topic: str, timeout_s: float) -> None:
        consumer = self._followed.consumers.get(topic)
        if consumer is None:
            return  # its end has committed it
        try:
            await consumer.flush(timeout_s)
        except (TopicNotFoundError, ClosedError):
            return
        except BaseException:
            self._unflushed[topic] = None
            raise

    async def close(self, *, keep_share: bool = False) -> None:
        """Leaves all subscriptions, as `StreamConsumer.close` does. It describes `keep_share`."""
        self._home.check()
        if self._closing is None:
            self._is_closing = True
            self._followed.keeps_share |= keep_share
            self._closing = asyncio.create_task(self._close_all(), name="consumer close")
        await asyncio.shield(self._closing)

    # Running.

    @property
    def _has_received(self) -> bool:
        return self._has_given

    def _may_run(self, settings: RunSettings) -> None:
        if settings.retry.then == "dead_letter" and self._settings.dead_letter is None:
            raise InvalidInputError(
                f"{self._home.what} has no dead letters: subscribe with "
                "dead_letter=DeadLetterPolicy()"
            )

    def _join_run(self, run: Run) -> None:
        self._readable.listener = run.poke
        for consumer in self._followed.consumers.values():
            consumer.join(run, self._followed.settling)

    def _part_failed(self, part: RunPart, error: Exception) -> None:
        self._followed.failed(part.work.topic, error)

    def _topic_changed(self, topic: str) -> None:
        consumer = self._followed.consumers.get(topic)
        if self._run is not None and consumer is not None and consumer.part is not None:
            self._run.changed(consumer.part)
        self._readable.set()

    def _topic_left(self, topic: str) -> None:
        """Has a run start nothing more of a topic. What runs of it may end while it drains."""
        consumer = self._followed.consumers.get(topic)
        if self._run is not None and consumer is not None and consumer.part is not None:
            self._run.leave(consumer.part)

    # Taking.

    async def _next(self, messages_max: int, timeout_s: float | None) -> Batch:
        self._must_not_run()
        batch = self._polled(messages_max)  # also when there is no time to wait
        try:
            async with asyncio.timeout(None if batch is not None else timeout_s):
                while batch is None:
                    self._readable.clear()
                    batch = self._polled(messages_max)  # polling may have made it fail just now
                    if batch is None:
                        await self._readable.wait()
                        batch = self._polled(messages_max)
        except TimeoutError:
            raise DeadlineError(
                f"no message of {self.selection} came in {timeout_s:g} s"
                + (f"; {len(self.failing)} topics are failing" if self.failing else "")
            ) from None
        return batch

    def _polled(self, messages_max: int) -> Batch | None:
        """Returns messages of the topics whose turn it is, None if no topic has any."""
        self._check()
        parts: list[Batch] = []
        left = messages_max
        while left and self._followed.turns:
            topic, most = self._followed.turns.next()
            consumer = self._followed.consumers.get(topic)
            part = None
            if consumer is not None:
                try:
                    part = consumer.poll(min(left, most))
                except AnabranchError as error:
                    self._followed.failed(topic, error)
                    continue
            self._followed.turns.took(topic, 0 if part is None else len(part))
            if part is not None:
                left -= len(part)
                parts.append(part)
                self._has_given = True
                self._given[topic] = None
        return Batch.joined(parts) if parts else None

    # Topics come and go.

    def _list_changed(self, change: ListChange) -> None:
        for name in change.removed:
            self._first.pop(name, None)  # a topic that takes its name comes later
            self._followed.unlisted(name)
        self._followed.listed(self._wanted(change.added))
        self._logger.info(
            "consumer.topics_changed", added=len(change.added), removed=len(change.removed)
        )

    def _wanted(self, topics: Iterable[str]) -> list[str]:
        """Leaves out the topics of its own dead letters, which would be put aside once more."""
        policy = self._settings.dead_letter
        if policy is None:
            return list(topics)
        own = policy.topic.removeprefix("topic://")
        default = dead_letter_topic("", self.subscription)
        return [each for each in topics if each != own and not each.endswith(default)]

    async def _opened(self, topic: str) -> StreamConsumer:
        nodes = self._parts.nodes
        watch = LayoutWatch(nodes, f"topic://{topic}")
        layout = await watch.start(_WATCH_S_MAX)
        is_late = self._is_late(topic, layout.incarnation)
        try:
            watch.traffic = self._traffic.topic(watch)
            who = (nodes, watch, self._kafka, self.subscription, self.consumer_name)
            readable = functools.partial(self._followed.readable, topic)
            consumer = StreamConsumer(
                Membership(*who, self._parts, readable),
                self._late_settings if is_late else self._settings,
                self._produce,
            )
            await consumer.start()
            if self._run is not None:
                consumer.join(self._run, self._followed.settling)
        except BaseException:
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
        self._followed.all_tried.set()

    # Its end.

    async def _close_all(self) -> None:
        self._readable.set()
        try:
            if self._run is not None:
                await self._run.cancel()
            await self._list.close()
            await self._followed.close()
        finally:
            await self._tasks.cancel()
            await self._parts.close()
