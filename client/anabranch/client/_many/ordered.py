"""`StreamTopicsConsumer` and `CheckpointTopicsConsumer`: ordered consumers over many topics."""

from __future__ import annotations

import asyncio
import functools
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Self, TypeVar

import msgspec

from anabranch.client._consumer.checkpoint import Checkpoint, CheckpointConsumer
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.messages import (
    Batch,
    Lost,
    Message,
    parts_of,
    raise_lost,
    while_held,
)
from anabranch.client._consumer.stream import OrderedConsumer, StreamConsumer
from anabranch.client._errors import ClientError, ClosedError, DeadlineError, TopicNotFoundError
from anabranch.client._many.consumer import TopicsConsumer, TopicsSubscription
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.errors import AnabranchError, InvalidInputError

OrderedT = TypeVar("OrderedT", bound=OrderedConsumer)
TopicsPositionOf = Callable[[str, int, int], Awaitable[int | None] | int | None]

_MESSAGES_MAX: Final = 1_000
_TURN: Final = 100  # the event loop has its turn after so many messages at the latest


class OrderedTopicsConsumer(TopicsConsumer[OrderedT, Message, ConsumerSettings]):
    """Receives the messages of each bucket of many topics in order. Topics take turns."""

    def __init__(self, who: TopicsSubscription, settings: ConsumerSettings) -> None:
        super().__init__(who, settings, settings.settle_s)
        self._lost: dict[Lost, None] = {}  # still to be told, for topics that were left
        self._received = 0
        self._given: dict[str, None] = {}  # topics with messages that were given out

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
        """Returns messages of the topics whose turn it is, None if no topic has any."""
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

    def while_held(self, received: Message | Batch) -> AbstractAsyncContextManager[None]:
        """Returns a context that is cancelled if a bucket of `received` is taken away, as for one
        topic.
        """
        self._home.check()
        return while_held(received)

    def _in_flight(self, consumer: OrderedT) -> bool:
        return consumer.in_flight

    def _left(self, consumer: OrderedT) -> None:
        self._lost |= dict.fromkeys(consumer.take_lost())

    def _take_lost(self) -> list[Lost]:
        lost, self._lost = list(self._lost), {}
        return lost

    def _make(
        self, membership: Membership, watch: LayoutWatch, settings: ConsumerSettings
    ) -> OrderedT:
        return self._made(membership, watch, settings)

    @abstractmethod
    def _made(
        self, membership: Membership, watch: LayoutWatch, settings: ConsumerSettings
    ) -> OrderedT:
        """Returns a consumer of one topic."""


class StreamTopicsConsumer(OrderedTopicsConsumer[StreamConsumer]):
    """A stream consumer over many topics. Each topic keeps the promises of `StreamConsumer`."""

    def __init__(self, who: TopicsSubscription, settings: ConsumerSettings) -> None:
        super().__init__(who, settings)
        self._unflushed: dict[str, None] = {}  # topics of which something was acknowledged

    def acknowledge(self, received: Message | Batch) -> None:
        """Notes that everything up to this message or batch has been processed, in its topics.

        Raises BucketLostError as `StreamConsumer.acknowledge` does.
        """
        self._home.check()
        lost: list[Lost] = []
        for source, end in parts_of(received):
            consumer = self._consumers.get(source.topic)
            if consumer is not None:
                self._unflushed[source.topic] = None
                lost += consumer.note_acknowledged([(source.holding, end)])
            elif source.is_revoked(end):  # its topic was left
                lost.append(Lost.of(source.topic, source.holding))
        self._settling()
        raise_lost(lost)

    def acknowledge_all(self) -> None:
        """Notes that everything that was received so far has been processed.

        Raises BucketLostError as `StreamConsumer.acknowledge_all` does.
        """
        self._home.check()
        given, self._given = self._given, {}
        lost = self._take_lost()
        for topic in given:
            consumer = self._consumers.get(topic)
            if consumer is not None:
                self._unflushed[topic] = None
                lost += consumer.note_all_acknowledged()
        self._settling()
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
    """The progress of a consumer over many topics: a `Checkpoint` of each topic."""

    topics: dict[str, Checkpoint] = {}

    def to_json(self) -> bytes:
        """Encodes it.

        >>> TopicsCheckpoint({"public/default/a": Checkpoint(7, {3: {0: 15}})}).to_json()
        b'{"topics":{"public/default/a":{"incarnation":7,"positions":{"3":{"0":15}}}}}'
        """
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decodes it. Raises InvalidInputError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"this is no checkpoint of topics: {error}") from None


class CheckpointTopicsConsumer(OrderedTopicsConsumer[CheckpointConsumer]):
    """A checkpoint consumer over many topics. Each topic keeps the promises of
    `CheckpointConsumer`.

    A topic that came later, and so is not in the checkpoint, begins at its first messages. So does
    a topic that was deleted and created again since.
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
        # The stored progress of each topic, as far as this consumer knows it.
        self._stored = {} if checkpoint is None else dict(checkpoint.topics)

    def checkpoint(self) -> TopicsCheckpoint:
        """Returns the progress in each topic of this consumer. Without `position_of` it adds the
        stored progress of the others, as far as it knows it.
        """
        self._home.check()
        found = {} if self._position_of is not None else dict(self._stored)
        for topic, consumer in self._consumers.items():
            each = consumer.checkpoint()
            if each.positions:  # one that is closing does not name all that it had
                found[topic] = each if topic not in found else each.over(found[topic])
        return TopicsCheckpoint(found)

    def saved(self, checkpoint: TopicsCheckpoint) -> None:
        """Notes that the caller has stored this checkpoint, and all before it, where a crash does
        not reach.

        Raises BucketLostError as `CheckpointConsumer.saved` does, for any topic. Topics that this
        consumer has no more, or that were created again, do not count.
        """
        self._home.check()
        lost = self._take_lost()
        for topic, other in self._consumers.items():
            if topic not in checkpoint.topics:
                lost += other.take_lost()
        for topic, each in checkpoint.topics.items():
            consumer = self._consumers.get(topic)
            if consumer is None:
                continue
            try:
                lost += consumer.note_saved(each)
            except ClientError:  # the checkpoint is of a former topic of this name
                continue
            known = self._stored.get(topic)
            stored = each if known is None else each.over(known)
            self._stored[topic] = consumer.without_removed(stored)
        self._settling()
        raise_lost(lost)

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
        first = known if asked is None else None  # else what is stored by others is newer
        return CheckpointConsumer(membership, settings, first, position_of)
