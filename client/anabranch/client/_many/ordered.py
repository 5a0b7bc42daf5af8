"""`StreamTopicsConsumer` and `CheckpointTopicsConsumer`: ordered consumers over many topics."""

from __future__ import annotations

import asyncio
import functools
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, Self, TypeVar

import msgspec

from anabranch.client._consumer.checkpoint import Checkpoint, CheckpointConsumer
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.messages import Batch, Message
from anabranch.client._consumer.stream import OrderedConsumer, StreamConsumer
from anabranch.client._errors import ClientError, ClosedError, DeadlineError, TopicNotFoundError
from anabranch.client._many.consumer import TopicsConsumer, TopicsSubscription
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.errors import AnabranchError, InvalidInputError

OrderedT = TypeVar("OrderedT", bound=OrderedConsumer)
TopicsPositionOf = Callable[[str, int, int], Awaitable[int | None]]

_MESSAGES_MAX: Final = 1_000
_TURN: Final = 100  # the event loop has its turn after so many messages at the latest


class OrderedTopicsConsumer(TopicsConsumer[OrderedT, Message, ConsumerSettings]):
    """Receives the messages of each bucket of many topics in order; topics take turns."""

    def __init__(self, who: TopicsSubscription, settings: ConsumerSettings) -> None:
        super().__init__(who, settings, settings.settle_timeout_s)
        self._received = 0
        self._given: dict[str, None] = {}  # topics of which something was given out

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises DeadlineError, ClosedError."""
        self._received += 1
        if self._received % _TURN == 0:
            await asyncio.sleep(0)
        return (await self._next(1, timeout_s))[0]

    async def receive_many(
        self, messages_max: int = _MESSAGES_MAX, timeout_s: float | None = None
    ) -> Batch:
        """As many as are there, of whichever topics, at least one. Raises as `receive`."""
        if messages_max < 1:
            raise InvalidInputError(f"messages_max must be at least 1: {messages_max}")
        await asyncio.sleep(0)
        return await self._next(messages_max, timeout_s)

    async def _next(self, messages_max: int, timeout_s: float | None) -> Batch:
        batch = self._polled(messages_max)  # also when there is no time to wait
        try:
            async with asyncio.timeout(None if batch is not None else timeout_s):
                while batch is None:
                    self._readable.clear()
                    batch = self._polled(messages_max)
                    if batch is None:
                        await self._readable.wait()
                        batch = self._polled(messages_max)
        except TimeoutError:
            raise DeadlineError(
                f"no message of {self.selection} came in {timeout_s:g} s"
                + (f"; {len(self._failing)} topics are failing" if self._failing else "")
            ) from None
        return batch

    def _polled(self, messages_max: int) -> Batch | None:
        """What the topics have whose turn it is; None if none has anything."""
        self._check()
        parts: list[Batch] = []
        left = messages_max
        while left and self._turns:
            topic, most = self._turns.next()
            consumer = self._consumers.get(topic)
            part = None
            if consumer is not None:
                try:
                    part = consumer.poll(min(left, most))
                except AnabranchError as error:
                    self._failed(topic, error)
                    continue
            self._turns.took(topic, 0 if part is None else len(part))
            if part is not None:
                left -= len(part)
                parts.append(part)
                self._given[topic] = None
        return Batch.joined(parts) if parts else None

    def _in_flight(self, consumer: OrderedT) -> bool:
        return consumer.in_flight

    def _make(
        self, membership: Membership, watch: LayoutWatch, settings: ConsumerSettings
    ) -> OrderedT:
        return self._made(membership, watch, settings)

    @abstractmethod
    def _made(
        self, membership: Membership, watch: LayoutWatch, settings: ConsumerSettings
    ) -> OrderedT:
        """A consumer of one topic."""


class StreamTopicsConsumer(OrderedTopicsConsumer[StreamConsumer]):
    """A stream consumer over many topics: what `StreamConsumer` says holds for each of them."""

    def __init__(self, who: TopicsSubscription, settings: ConsumerSettings) -> None:
        super().__init__(who, settings)
        self._unflushed: dict[str, None] = {}  # topics of which something was acknowledged

    def acknowledge(self, received: Message | Batch) -> bool:
        """Everything up to this message, or this batch, has been processed, in its topics.

        False if something of it will be delivered again, perhaps to another consumer.
        """
        if isinstance(received, Message):
            sources = [(received.source, received.offset + 1)]
        else:
            known = received.sources()
            sources = [(known[number], end) for number, end in received.ends.items()]
        kept = True
        for source, end in sources:
            consumer = self._consumers.get(source.topic)
            if consumer is None or not consumer.has(source.holding):
                kept = False
                continue
            self._unflushed[source.topic] = None
            kept = consumer.acknowledge_up_to(source.holding, end) and kept
        self._settling()
        return kept

    def acknowledge_all(self) -> bool:
        """Everything that was received so far has been processed."""
        given, self._given = self._given, {}
        kept = True
        for topic in given:
            consumer = self._consumers.get(topic)
            if consumer is None:
                continue  # it was settled, or its time was over
            self._unflushed[topic] = None
            kept = consumer.acknowledge_all() and kept
        self._settling()
        return kept

    async def flush(self, timeout_s: float = 10.0) -> None:
        """Returns once everything that is acknowledged is committed.

        Raises DeadlineError, SessionLapsedError: of the first topic that does.
        """
        topics, self._unflushed = self._unflushed, {}
        flushed = [self._flush(topic, timeout_s) for topic in topics]
        for failure in await asyncio.gather(*flushed, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _flush(self, topic: str, timeout_s: float) -> None:
        consumer = self._consumers.get(topic)
        if consumer is None:
            return  # its end has committed it
        try:
            await consumer.flush(timeout_s)
        except (TopicNotFoundError, ClosedError):
            return
        except BaseException:
            self._unflushed[topic] = None
            raise

    def _made(
        self, membership: Membership, _watch: LayoutWatch, settings: ConsumerSettings
    ) -> StreamConsumer:
        return StreamConsumer(membership, settings)


class TopicsCheckpoint(msgspec.Struct, frozen=True):
    """How far a consumer over many topics has read: of each topic a `Checkpoint`."""

    topics: dict[str, Checkpoint] = {}

    def to_json(self) -> bytes:
        """Written down.

        >>> TopicsCheckpoint({"public/default/a": Checkpoint(7, {3: {0: 15}})}).to_json()
        b'{"topics":{"public/default/a":{"incarnation":7,"positions":{"3":{"0":15}}}}}'
        """
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read back. Raises InvalidInputError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"this is no checkpoint of topics: {error}") from None


class CheckpointTopicsConsumer(OrderedTopicsConsumer[CheckpointConsumer]):
    """A checkpoint consumer over many topics: what `CheckpointConsumer` says holds for each.

    A topic that is not in the checkpoint, because it came later, begins at its first messages; one
    that was deleted and made again since, too.
    """

    def __init__(
        self,
        who: TopicsSubscription,
        settings: ConsumerSettings,
        checkpoint: TopicsCheckpoint | None = None,
        position_of: TopicsPositionOf | None = None,
    ) -> None:
        kind = type(checkpoint)
        if checkpoint is not None and not issubclass(kind, TopicsCheckpoint):
            raise InvalidInputError(f"checkpoint must be a TopicsCheckpoint: {kind.__name__}")
        super().__init__(who, settings)
        self._position_of = position_of
        # What is stored of each topic, as far as this consumer knows.
        self._stored = {} if checkpoint is None else dict(checkpoint.topics)

    def checkpoint(self) -> TopicsCheckpoint:
        """How far each topic is that this consumer has; of the others, without `position_of`,
        what it knows to be stored.
        """
        found = {} if self._position_of is not None else dict(self._stored)
        for topic, consumer in self._consumers.items():
            each = consumer.checkpoint()
            if each.positions:
                found[topic] = each
        return TopicsCheckpoint(found)

    def saved(self, checkpoint: TopicsCheckpoint) -> bool:
        """This checkpoint, with what came before it, is stored where a crash does not reach.

        False as that of `CheckpointConsumer`, for any topic; what is of a topic that this consumer
        has no more, or that was made again, counts for nothing.
        """
        kept = True
        for topic, each in checkpoint.topics.items():
            consumer = self._consumers.get(topic)
            if consumer is None:
                continue
            try:
                kept = consumer.saved(each) and kept
            except ClientError:  # of a former topic of this name
                continue
            known = self._stored.get(topic)
            self._stored[topic] = each if known is None else each.over(known)
        self._settling()
        return kept

    def _made(
        self, membership: Membership, watch: LayoutWatch, settings: ConsumerSettings
    ) -> CheckpointConsumer:
        known = self._stored.get(watch.topic)
        if known is not None and known.incarnation != watch.layout.incarnation:
            self._logger.warning("consumer.checkpoint_of_former_topic", topic=watch.topic)
            del self._stored[watch.topic]
            known = None
        asked = self._position_of
        position_of = None if asked is None else functools.partial(asked, watch.topic)
        return CheckpointConsumer(membership, settings, known, position_of)
