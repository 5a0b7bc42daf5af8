"""`QueueTopicsConsumer`: a queue consumer over many topics, each of which is a share group.

Kafka has a client read one share group, so each topic costs a client of Kafka and its threads: 100
topics are the most. Each topic has a task. It asks for one delivery once the one before was given
out and somebody receives, and then waits for the topic's turn.
"""

from __future__ import annotations

import asyncio
from typing import Final

from anabranch.client._consumer.consumer import Membership
from anabranch.client._errors import ClientError, DeadlineError
from anabranch.client._many.consumer import TopicsConsumer, TopicsSubscription
from anabranch.client._queue.consumer import QueueConsumer
from anabranch.client._queue.messages import ACCEPT, QueueBatch, QueueMessage
from anabranch.client._settings import QueueSettings
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.errors import AnabranchError, InvalidInputError

TOPICS_MAX: Final = 100
_SETTLE_S: Final = 30.0  # Kafka's lock, unless the group has another
_REMEDY: Final = (
    f"a queue consumer has at most {TOPICS_MAX} topics, as each takes a client of Kafka: select "
    "fewer by a narrower pattern or by properties, with one consumer for each selection, or use "
    "a stream subscription, which has no such bound"
)


class QueueTopicsConsumer(TopicsConsumer[QueueConsumer, QueueMessage, QueueSettings]):
    """A queue consumer over many topics. Each topic keeps the promises of `QueueConsumer`."""

    def __init__(self, who: TopicsSubscription, settings: QueueSettings) -> None:
        super().__init__(who, settings, _SETTLE_S)
        self._batches: dict[str, QueueBatch] = {}  # each waits for its topic's turn
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._given: dict[str, QueueMessage] = {}  # the last one of each topic
        self._received = asyncio.Condition()
        self._wanted = 0  # calls that wait

    async def receive(self, timeout_s: float | None = None) -> QueueMessage:
        """Returns the next message.
        Raises DeadlineError after `timeout_s` seconds, or ClosedError.
        """
        return (await self._next(1, timeout_s))[0]

    async def receive_many(self, timeout_s: float | None = None) -> QueueBatch:
        """Returns the rest of the delivery of the topic whose turn it is.
        Raises the errors of `receive`.
        """
        return await self._next(self._settings.messages_max, timeout_s)

    def acknowledge(self, message: QueueMessage) -> bool:
        """Notes that the message has been processed.
        Returns False if it is too late, and the message is delivered again.
        """
        self._home.check()
        kept = message.delivery.acknowledge(message.index, ACCEPT)
        self._settling()
        return kept

    def acknowledge_all(self) -> bool:
        """Notes that every received and unsettled message has been processed.
        Returns False if that is too late for one.
        """
        self._home.check()
        given, self._given = self._given, {}
        done = [m.delivery.acknowledge_open(m.index + 1, ACCEPT) for m in given.values()]
        self._settling()
        return all(done)

    def release(self, message: QueueMessage, *, delay_s: float = 0.0, error: object = None) -> bool:
        """Has the message delivered again, as `QueueConsumer.release` does."""
        self._home.check()
        consumer = self._consumers.get(message.topic)
        kept = consumer is not None and consumer.release(message, delay_s=delay_s, error=error)
        self._settling()
        return kept

    def reject(self, message: QueueMessage, *, error: object = None) -> bool:
        """Rejects the message for good, as `QueueConsumer.reject` does."""
        self._home.check()
        consumer = self._consumers.get(message.topic)
        kept = consumer is not None and consumer.reject(message, error=error)
        self._settling()
        return kept

    # Taking.

    async def _next(self, messages_max: int, timeout_s: float | None) -> QueueBatch:
        self._home.check()
        self._wanted += 1
        try:
            async with self._received:
                self._received.notify_all()
            async with asyncio.timeout(timeout_s):
                while (batch := self._polled(messages_max)) is None:
                    self._readable.clear()
                    await self._readable.wait()
                return batch
        except TimeoutError:
            raise DeadlineError(
                f"no message of {self.selection} came in {timeout_s:g} s; try again, or wait longer"
            ) from None
        finally:
            self._wanted -= 1

    def _polled(self, messages_max: int) -> QueueBatch | None:
        self._check()
        while self._turns:
            topic, most = self._turns.next()
            batch = self._batches.get(topic)
            if batch is None or batch.is_over:
                self._drop(topic)
                continue
            given = batch[: min(messages_max, most)]
            left = batch[len(given) :]
            self._turns.took(topic, len(given))
            self._given[topic] = given[-1]
            if left:
                self._batches[topic] = left
            else:
                self._drop(topic)
            return given
        return None

    def _drop(self, topic: str) -> None:
        """Drops a batch that is given out, or whose time is over, so that the next one may come."""
        self._batches.pop(topic, None)
        self._turns.leave(topic)
        fetching = self._fetching.pop(topic, None)
        consumer = self._consumers.get(topic)
        if fetching is not None and fetching.done() and consumer is not None:
            self._came(topic, consumer)

    async def _fetch(self, topic: str, consumer: QueueConsumer) -> None:
        """Waits until one delivery is there."""
        async with self._received:
            while not self._wanted:  # Kafka would count a delivery that is not taken
                await self._received.wait()
        try:
            batch = await consumer.receive_many()
        except AnabranchError as error:
            if not consumer.is_leaving:
                self._failed(topic, error)
            return
        self._batches[topic] = batch
        self._topic_readable(topic)

    # Topics come and go.

    def _came(self, topic: str, consumer: QueueConsumer) -> None:
        self._fetching[topic] = self._tasks.spawn(self._fetch(topic, consumer))

    def _went(self, topic: str) -> None:
        fetching = self._fetching.pop(topic, None)
        if fetching is not None:
            fetching.cancel()
        batch, consumer = self._batches.pop(topic, None), self._consumers.get(topic)
        if batch is not None and consumer is not None and not batch.is_over:
            for message in batch:  # it was not given out
                consumer.release(message)

    def _topic_readable(self, topic: str) -> None:
        if topic in self._batches:
            super()._topic_readable(topic)

    def _in_flight(self, consumer: QueueConsumer) -> bool:
        return consumer.in_flight

    def _check_count(self, topics: int) -> None:
        if topics > TOPICS_MAX:
            raise InvalidInputError(f"{self.selection} has {topics} topics: {_REMEDY}")

    def _make(
        self, membership: Membership, _watch: LayoutWatch, settings: QueueSettings
    ) -> QueueConsumer:
        if len(self._has_consumer) >= TOPICS_MAX:
            raise ClientError(_REMEDY)
        return QueueConsumer(membership, settings)
