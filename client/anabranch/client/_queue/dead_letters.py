"""Dead letters: messages that a queue's consumers could not process, put aside in a scalable topic.

Kafka counts the deliveries of a message, and discards it, untold, after too many. So a subscription
with dead letters has a limit below Kafka's (`core.subscriptions`). Its consumers send messages that
have reached the limit, or were rejected, to another topic, with their history in headers. They
acknowledge a message only when it is stored there. So it may be there twice, but is never lost.

The added headers give way to the message, which has room in any topic that has the same limit.

A letter that cannot be stored ends nothing. It stays locked, so that Kafka counts few deliveries,
and the consumer tries again each second. It is released when the lock is nearly over, and its next
consumer tries on. After the last delivery Kafka discards it all the same. Then only this consumer
has it, and tries on as long as it lives.

Only the consumer that was told of an error knows it. Kafka keeps only the number of deliveries.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum, unique
from typing import Any, Final, Self

import msgspec
from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.messages import Message
from anabranch.client._errors import ClientError, MessageTooLargeError
from anabranch.client._producer.producer import Producer
from anabranch.client._queue.messages import ACCEPT, RELEASE, Delivery
from anabranch.client._settings import ProducerSettings
from anabranch.core.errors import InvalidInputError
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.names import full_name
from anabranch.wire.logging import get_logger

_PREFIX: Final = "anabranch-dead-letter-"
_FIELDS: Final = ("topic", "subscription", "segment", "bucket", "offset", "deliveries", "reason")
_TIME: Final = "event-time-ms"
_ERROR: Final = "error"
_ERROR_CHARS_MAX: Final = 500
_KNOWN_MAX: Final = 10_000  # messages whose errors are remembered
_CLOSE_S_MAX: Final = 5.0
_SEND_S_MAX: Final = 10.0
_AGAIN_S: Final = 1.0
_TELL_S: Final = 10.0
_LONE_BYTES_MAX: Final = 64 * 1024 * 1024

Place = tuple[str, int, int]  # Kafka's topic, partition and offset
Produce = Callable[[str, ProducerSettings], Awaitable[Producer]]


@unique
class DeadLetterReason(StrEnum):
    """The reason why a message was put aside."""

    DELIVERIES = "deliveries"  # all that are allowed were in vain
    REJECTED = "rejected"


class DeadLetter(msgspec.Struct, frozen=True):
    """The origin of a message, and the reason why it was put aside. `DeadLetter.of` reads it from a
    message.

    `topic` is `topic://tenant/namespace/name`. `deliveries` is the number of Kafka's deliveries.
    `error` is the last one that was told to the consumer that put it aside, "" for none. Times are
    in milliseconds since 1970.
    """

    topic: str
    subscription: str
    segment_id: int
    bucket: int
    offset: int
    deliveries: int
    reason: DeadLetterReason
    event_time_ms: int | None = None
    error: str = ""

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """Decodes the headers of a dead letter. Returns None for any other message."""
        found = {
            name.removeprefix(_PREFIX): (content or b"").decode(errors="replace")
            for name, content in message.headers
            if name.startswith(_PREFIX)
        }
        if not found.keys() >= set(_FIELDS):
            return None
        try:
            return cls(
                topic=found["topic"],
                subscription=found["subscription"],
                segment_id=int(found["segment"]),
                bucket=int(found["bucket"]),
                offset=int(found["offset"]),
                deliveries=int(found["deliveries"]),
                reason=DeadLetterReason(found["reason"]),
                event_time_ms=int(found[_TIME]) if _TIME in found else None,
                error=found.get(_ERROR, ""),
            )
        except ValueError:
            return None

    def headers(self) -> list[tuple[str, str]]:
        """Returns the headers that `of` decodes."""
        numbers = (self.segment_id, self.bucket, self.offset, self.deliveries)
        contents = (self.topic, self.subscription, *map(str, numbers), self.reason.value)
        pairs = [(_PREFIX + name, content) for name, content in zip(_FIELDS, contents, strict=True)]
        if self.event_time_ms is not None:
            pairs.append((f"{_PREFIX}{_TIME}", str(self.event_time_ms)))
        if self.error:
            pairs.append((f"{_PREFIX}{_ERROR}", self.error))
        return pairs


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

    `produce` makes a producer of a topic. `where` returns the present topic for letters, "" if it
    is not known or if there is none any more.
    """

    def __init__(self, who: tuple[str, str], produce: Produce, where: Callable[[], str]) -> None:
        self._errors: dict[Place, str] = {}  # that the application told of released messages
        self._topic, self._subscription = who
        self._produce = produce
        self._where = where
        self._producers: dict[str, asyncio.Task[Producer]] = {}
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
        said = (
            f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        )
        text = said[:_ERROR_CHARS_MAX].encode(errors="replace").decode()
        self._remember(_place(message.raw), text)

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
        kind, time_ms = raw.timestamp()
        deliveries = int(raw.delivery_count() or 1)
        letter = DeadLetter(
            full_name(self._topic),
            self._subscription,
            message.segment_id,
            message.bucket,
            message.offset,
            deliveries,
            reason,
            int(time_ms) if kind else None,
            self._errors.pop(_place(raw), ""),
        )
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
        making = list(self._producers.values())
        for task in (*self._tasks, *making):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for made in await asyncio.gather(*making, return_exceptions=True):
            if isinstance(made, Producer):
                await made.abandon()

    async def _store(self, waiting: _Waiting) -> None:
        """Tries until the letter is stored. Raises TimeoutError if another consumer is to try."""
        left_s = max(0.0, waiting.until - time.monotonic())
        where = self._where()
        async with asyncio.timeout(None if left_s == math.inf else left_s):
            while True:
                where = self._where() or where
                try:
                    await self._send(where, waiting.raw, waiting.letter)
                except (ClientError, InvalidInputError, TimeoutError) as error:
                    self._failing.add(_place(waiting.raw))
                    self._tell(where, waiting, error)
                else:
                    return
                await asyncio.sleep(_AGAIN_S)

    async def _send(self, where: str, raw: KafkaMessage, letter: DeadLetter) -> None:
        given: Any = raw.headers() or ()
        kept: list[tuple[str, Any]] = [
            (name, content) for name, content in given if not name.startswith(_PREFIX)
        ]
        made = self._producers.get(where)
        if made is None:
            settings = ProducerSettings(linger_ms=1, delivery_timeout_s=_SEND_S_MAX)
            made = asyncio.ensure_future(self._produce(where, settings))
            self._producers[where] = made
        try:
            producer = await asyncio.shield(made)
            for fits in (letter, msgspec.structs.replace(letter, error="")):
                with contextlib.suppress(MessageTooLargeError):
                    await producer.send(raw.value(), raw.key(), headers=[*kept, *fits.headers()])
                    return
            await producer.send(raw.value(), raw.key(), headers=kept)
        except MessageTooLargeError:
            raise
        except Exception:
            if self._producers.get(where) is made:  # the topic may be another one by then
                del self._producers[where]
                if made.exception() is None:
                    await made.result().abandon()
            raise
        self._logger.warning("consumer.dead_letter_bare", **_about(raw, letter))

    def _tell(self, where: str, waiting: _Waiting, error: Exception) -> None:
        if times := self._told.due(where, time.monotonic()):
            self._logger.error(
                "consumer.dead_letter_failed",
                dead_letters=where,
                waiting=self.failing,
                times=times,
                why=str(error) or type(error).__name__,
                **_about(waiting.raw, waiting.letter),
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
        about = _about(waiting.raw, waiting.letter)
        if waiting.is_last:
            self._logger.error("consumer.message_discarded", **about)
        elif waiting.letter.error:
            self._remember(_place(waiting.raw), waiting.letter.error)
        if not isinstance(error, asyncio.CancelledError | TimeoutError):
            self._logger.error("consumer.dead_letter_fault", **about, exc_info=error)


def _about(raw: KafkaMessage, letter: DeadLetter) -> dict[str, Any]:
    """Returns the fields for the log."""
    return {
        "kafka_topic": raw.topic(),
        "bucket": letter.bucket,
        "offset": letter.offset,
        "deliveries": letter.deliveries,
        "reason": letter.reason.value,
    }


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
