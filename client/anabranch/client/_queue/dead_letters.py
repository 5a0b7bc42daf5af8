"""A queue's dead letters (`_consumer.dead_letters`): when they go, and what if they cannot.

Kafka counts the deliveries of a message, and discards it, untold, after too many. So a subscription
with dead letters has a limit below Kafka's (`core.subscriptions`). Its consumers send messages that
have reached the limit, or were rejected, to another topic. They acknowledge a message only when it
is stored there. So it may be there twice, but is never lost.

A letter that cannot be stored ends nothing. It stays locked, so that Kafka counts few deliveries,
and the consumer tries again each second. It is released when the lock is nearly over, and its next
consumer tries on. After the last delivery Kafka discards it all the same. Then only this consumer
has it, and tries on as long as it lives.

Only the consumer that was told of an error knows it. Kafka keeps only the number of deliveries.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec
from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.dead_letters import (
    DeadLetter,
    DeadLetterReason,
    DeadLetterSender,
    Produce,
    said,
)
from anabranch.client._consumer.messages import Message
from anabranch.client._errors import ClientError
from anabranch.client._queue.messages import ACCEPT, RELEASE, Delivery
from anabranch.core.errors import InvalidInputError
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire.logging import get_logger

_KNOWN_MAX: Final = 10_000  # messages whose errors are remembered
_CLOSE_S_MAX: Final = 5.0
_AGAIN_S: Final = 1.0
_TELL_S: Final = 10.0
_LONE_BYTES_MAX: Final = 64 * 1024 * 1024

Place = tuple[str, int, int]  # Kafka's topic, partition and offset


class _Waiting(msgspec.Struct, frozen=True):
    """A message that is being put aside. `is_last` is True if Kafka does not deliver it again.

    `until` is the time from which another consumer tries, by `time.monotonic`.
    """

    delivery: Delivery
    index: int
    raw: KafkaMessage
    letter: DeadLetter
    is_last: bool
    until: float

    @property
    def lone_bytes(self) -> int:
        """Its size in bytes if only this consumer will have it, else 0."""
        return len(self.raw) if self.until == math.inf else 0


class DeadLetterProducer:
    """Puts messages of one consumer's deliveries aside. Use it on the consumer's event loop.

    `where` returns the present topic for letters, "" if it
    is not known or if there is none any more.
    """

    def __init__(self, who: tuple[str, str], produce: Produce, where: Callable[[], str]) -> None:
        self._errors: dict[Place, str] = {}  # that the application told of released messages
        self._subscription = who[1]
        self._sender = DeadLetterSender(who, produce)
        self._where = where
        self._tasks: dict[asyncio.Task[None], _Waiting] = {}
        self._failing: set[Place] = set()
        self._lone_bytes = 0  # the sum for messages that nobody else will have
        self._told = LogRateLimit(_TELL_S)
        self._logger = get_logger(__name__).bind(topic=who[0], subscription=who[1])

    @property
    def failing(self) -> int:
        """The number of messages that could not be put aside so far."""
        return len(self._failing)

    def note_error(self, message: Message, error: object) -> None:
        """Notes the reason of a failed delivery. It names an exception with its class."""
        self._remember(_place(message.raw), said(error))

    def _remember(self, place: Place, error: str) -> None:
        self._errors.pop(place, None)
        self._errors[place] = error
        if len(self._errors) > _KNOWN_MAX:
            del self._errors[next(iter(self._errors))]

    def put(
        self,
        delivery: Delivery,
        index: int,
        message: Message,
        reason: DeadLetterReason,
        count_max: int,
    ) -> bool:
        """Stores a message in the topic, then acknowledges it. Returns False if the message is not
        the consumer's.

        `count_max` is the number of deliveries that Kafka allows.
        """
        if delivery.is_over:
            return False
        if not delivery.hold(index):
            return not delivery.is_over  # it is being put aside
        raw = message.raw
        deliveries = int(raw.delivery_count() or 1)
        error = self._errors.pop(_place(raw), "")
        letter = DeadLetter.about(self._subscription, message, deliveries, reason, error)
        is_last = deliveries >= count_max
        is_kept = is_last and self._lone_bytes < _LONE_BYTES_MAX
        until = math.inf if is_kept else delivery.hold_until
        waiting = _Waiting(delivery, index, raw, letter, is_last, until)
        task = asyncio.create_task(self._store(waiting), name="dead letter")
        self._lone_bytes += waiting.lone_bytes
        self._tasks[task] = waiting
        task.add_done_callback(self._stored)
        return True

    async def close(self) -> None:
        """Waits a moment for letters that are being stored, and releases the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S_MAX)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()

    async def _store(self, waiting: _Waiting) -> None:
        """Tries until the letter is stored. Raises TimeoutError if another consumer is to try."""
        left_s = max(0.0, waiting.until - time.monotonic())
        where = self._where()
        async with asyncio.timeout(None if left_s == math.inf else left_s):
            while True:
                where = self._where() or where
                try:
                    await self._sender.send(where, waiting.raw, waiting.letter)
                except (ClientError, InvalidInputError, TimeoutError) as error:
                    self._failing.add(_place(waiting.raw))
                    self._tell(where, waiting, error)
                else:
                    return
                await asyncio.sleep(_AGAIN_S)

    def _tell(self, where: str, waiting: _Waiting, error: Exception) -> None:
        if times := self._told.due(where, time.monotonic()):
            self._logger.error(
                "consumer.dead_letter_failed",
                dead_letters=where,
                waiting=self.failing,
                times=times,
                why=str(error) or type(error).__name__,
                **waiting.letter.fields(),
            )

    def _stored(self, task: asyncio.Task[None]) -> None:
        waiting = self._tasks.pop(task)
        self._failing.discard(_place(waiting.raw))
        self._lone_bytes -= waiting.lone_bytes
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            waiting.delivery.acknowledge_held(waiting.index, ACCEPT)
            return
        waiting.delivery.acknowledge_held(waiting.index, RELEASE)
        about = waiting.letter.fields()
        if waiting.is_last:
            self._logger.error("consumer.message_discarded", **about)
        elif waiting.letter.error:
            self._remember(_place(waiting.raw), waiting.letter.error)
        if not isinstance(error, asyncio.CancelledError | TimeoutError):
            self._logger.error("consumer.dead_letter_fault", **about, exc_info=error)


def _place(raw: KafkaMessage) -> Place:
    return raw.topic() or "", raw.partition() or 0, raw.offset() or 0


def limit_of(deliveries_max: int, kafkas_max: int) -> int:
    """Returns the deliveries of a message before it is put aside, which takes a delivery of its
    own.

    >>> limit_of(5, 10), limit_of(9, 5), limit_of(3, 2)
    (5, 4, 1)
    """
    return max(1, min(deliveries_max, kafkas_max - 1))


def goes_aside(delivery: int, limit: int) -> bool:
    """Tells whether a message that fails in this delivery, counted from 1, is put aside."""
    return delivery >= limit
