"""`FollowedTopics`: a consumer for each topic of a list that changes.

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
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from anabranch.client._aio import Tasks
from anabranch.client._consumer.messages import Lost
from anabranch.client._errors import ConsumerFencedError, TopicNotFoundError
from anabranch.client._many.turns import TopicTurns
from anabranch.client._stream.consumer import StreamConsumer
from anabranch.core.errors import AnabranchError
from anabranch.wire import clock
from anabranch.wire.logging import EventLog

OPENING_MAX: Final = 64  # topics that are being opened at once
_CLOSING_MAX: Final = 64
_BACK_OFF_S_MIN: Final = 0.5
_BACK_OFF_S_MAX: Final = 60.0
# A topic must have been open for so long that its next failure counts as the first again.
_STEADY_S: Final = 60.0


@dataclass(slots=True, eq=False)
class Topic:
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


class FollowedTopics:
    """The topics of one consumer, on one event loop. `open_topic` makes a consumer of a topic, and
    raises AnabranchError.

    It calls `on_readable` with a topic that may have messages or has lost some, `on_left` with one
    whose messages are given out no more, and `on_failure` for a failure of all. `turns` has the
    topics whose messages may be given out.
    """

    def __init__(
        self,
        open_topic: Callable[[str], Awaitable[StreamConsumer]],
        settle_s: float,
        on_readable: Callable[[str], None],
        on_left: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
        logger: EventLog,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.consumers: dict[str, StreamConsumer] = {}  # for topics that are open or drain
        self.draining: dict[Topic, None] = {}
        self.failing: dict[str, str] = {}  # why each of these could not be opened, or failed
        self.lost: dict[Lost, None] = {}  # still to be told, for topics that were left
        self.turns = TopicTurns()
        self.untried: set[str] = set()  # topics of the first list, neither opened nor refused yet
        self.all_tried = asyncio.Event()
        self.keeps_share = False  # for the closing of its topics
        self._open_topic = open_topic
        self._settle_s = None if math.isinf(settle_s) else settle_s
        self._on_readable = on_readable
        self._on_left = on_left
        self._on_failure = on_failure
        self._logger = logger
        self._now: Callable[[], float] = clock.now
        self._tasks = Tasks(self._faulted)
        self._followers: set[asyncio.Task[None]] = set()
        self._opening_turn = asyncio.Semaphore(OPENING_MAX)
        self._closing_turn = asyncio.Semaphore(_CLOSING_MAX)
        self._close_failure: Exception | None = None
        self._is_over = False  # every topic goes at once
        self._closes = False

    def begin(self, names: Iterable[str]) -> None:
        """Follows the topics of the first list. `all_tried` tells that each has been tried."""
        self.untried = set(names)
        self.listed(sorted(self.untried))
        self._tried("")

    def listed(self, names: Iterable[str]) -> None:
        """Follows topics that the list has now."""
        for name in names:
            topic = self.topics.get(name)
            if topic is not None:
                topic.is_listed = True
            elif not self._is_over:
                topic = self.topics[name] = Topic(name)
                task = self._tasks.spawn(self._follow(topic))
                self._followers.add(task)
                task.add_done_callback(self._followers.discard)

    def unlisted(self, name: str) -> None:
        """Leaves a topic that the list has no more."""
        self.failing.pop(name, None)
        self._tried(name)
        topic = self.topics.get(name)
        if topic is not None:
            topic.is_listed, topic.failures = False, 0
            self._stop_giving(topic)

    def readable(self, name: str) -> None:
        """Notes that the topic may have messages, or has lost some."""
        topic = self.topics.get(name)
        if topic is not None and topic.is_giving:
            self.turns.ready(name)
        else:
            self.settling()
        self._on_readable(name)

    def settling(self) -> None:
        """Notes an acknowledgement or a loss. A draining topic may be settled by it."""
        for topic in self.draining:
            topic.poke.set()

    def failed(self, name: str, error: Exception) -> None:
        """Notes that the topic could not be opened, or goes on no more.

        A consumer that is fenced in one topic is fenced in all. To come again would fence the other
        one in turn.
        """
        topic = self.topics.get(name)
        if topic is None or (name in self.consumers and not topic.is_giving):
            return
        if topic.is_giving and self._now() - topic.since >= _STEADY_S:
            topic.failures = 0
        topic.failures += 1
        if topic.is_listed:
            self.failing[name] = str(error)
        self._stop_giving(topic)
        if isinstance(error, ConsumerFencedError):
            self.keeps_share = True
            self._end_topics()
            self._on_failure(error)
        gone = isinstance(error, TopicNotFoundError)  # the list will say so, too
        tell = self._logger.info if gone else self._logger.warning
        tell("consumer.topic_failed", topic=name, why=str(error), again_s=topic.back_off_s)

    async def close(self) -> None:
        """Leaves every topic. Raises the first failure of a topic that the list has."""
        self._closes = True
        try:
            self._end_topics()
            if self._followers:
                await asyncio.wait(self._followers)
        finally:
            await self._tasks.cancel()
            ends = [consumer.close() for consumer in self.consumers.values()]
            await asyncio.gather(*ends, return_exceptions=True)
        if self._close_failure is not None:
            raise self._close_failure

    def _tried(self, topic: str) -> None:
        self.untried.discard(topic)
        if not self.untried:
            self.all_tried.set()

    def _wants(self, topic: Topic) -> bool:
        return topic.is_listed and not self._is_over

    async def _follow(self, topic: Topic) -> None:
        """Consumes a topic while the list has it, and drains and closes it then."""
        while self._wants(topic):
            async with self._opening_turn:
                if self._wants(topic):
                    topic.opening = self._tasks.spawn(self._open(topic))
                    await asyncio.wait([topic.opening])
                    topic.opening = None
            self._tried(topic.name)
            consumer = self.consumers.get(topic.name)
            if consumer is not None:
                await topic.until(lambda: not topic.is_giving)
                await self._drain(topic, consumer)
                await self._close_topic(topic, consumer)
            await topic.until(lambda: not self._wants(topic), topic.back_off_s)
        del self.topics[topic.name]

    async def _open(self, topic: Topic) -> None:
        try:
            consumer = await self._open_topic(topic.name)
        except AnabranchError as error:
            self.failed(topic.name, error)
            return
        self.consumers[topic.name] = consumer
        self.failing.pop(topic.name, None)
        topic.is_giving, topic.since = self._wants(topic), self._now()
        if topic.is_giving:
            self.readable(topic.name)  # messages from before count, too

    async def _drain(self, topic: Topic, consumer: StreamConsumer) -> None:
        """Waits until nothing that was given out is left to acknowledge."""
        self.draining[topic] = None
        await topic.until(lambda: self._is_over or not consumer.in_flight, self._settle_s)
        del self.draining[topic]

    async def _close_topic(self, topic: Topic, consumer: StreamConsumer) -> None:
        try:
            async with self._closing_turn:
                await consumer.close(keep_share=self.keeps_share)
        except Exception as error:  # noqa: BLE001 - the others must go on all the same
            self._logger.warning("consumer.topic_not_closed_well", topic=topic.name, why=str(error))
            if self._closes and topic.is_listed:  # one that is gone has no positions
                self._close_failure = self._close_failure or error
        finally:
            del self.consumers[topic.name]
            self.lost |= dict.fromkeys(consumer.take_lost())

    def _stop_giving(self, topic: Topic) -> None:
        topic.is_giving = False
        self._on_left(topic.name)
        self.turns.leave(topic.name)
        if topic.opening is not None and not topic.is_listed:
            topic.opening.cancel()
        topic.poke.set()

    def _faulted(self, error: BaseException) -> None:
        self._is_over = True  # nobody can read what would still be opened
        self._on_failure(error)

    def _end_topics(self) -> None:
        self._is_over = True
        for topic in self.topics.values():
            self._stop_giving(topic)
            if topic.opening is not None:
                topic.opening.cancel()
