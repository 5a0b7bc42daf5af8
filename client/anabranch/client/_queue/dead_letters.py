"""Dead letters: what a queue's consumers could not process, put aside in a scalable topic.

Kafka counts how often it gave a message out, and discards it, untold, when that was too often. So a
subscription with dead letters has a limit of its own below Kafka's (`core.subscriptions`), and its
consumers send what has reached it, or was rejected, to another topic, with what is known of it in
headers. It is acknowledged only when it is stored there: it may come to be there twice, not never.
What keeps it from being stored ends the consumer, since each further delivery counts.

Only the consumer that was told of an error knows it; the attempts of others are told by their
number, which Kafka keeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum, unique
from typing import Any, Final, Self

import msgspec
from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.consumer import Produce
from anabranch.client._consumer.messages import Message
from anabranch.client._errors import ClientError, DeadLetterError, MessageTooLargeError
from anabranch.client._producer.messages import PRODUCER_HEADER
from anabranch.client._producer.producer import Producer
from anabranch.client._queue.messages import ACCEPT, RELEASE, Delivery
from anabranch.client._settings import ProducerSettings
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import full_name
from anabranch.wire.logging import get_logger

_PREFIX: Final = "anabranch-dead-letter-"
_FIELDS: Final = ("topic", "subscription", "segment", "bucket", "offset", "deliveries", "reason")
_TIME: Final = "event-time-ms"
_ATTEMPTS: Final = "attempts"
_ERROR_CHARS_MAX: Final = 500
_KNOWN_MAX: Final = 10_000  # messages whose errors are remembered
_CLOSE_S_MAX: Final = 5.0
_STORE_S_MAX: Final = 10.0

Place = tuple[str, int, int]  # Kafka's topic, partition and offset


@unique
class DeadLetterReason(StrEnum):
    """Why a message was put aside."""

    DELIVERIES = "deliveries"  # as often as it may be were in vain
    REJECTED = "rejected"


class Attempt(msgspec.Struct, frozen=True):
    """One delivery that ended in an error, as the consumer said that put the message aside."""

    delivery: int
    at_ms: int
    error: str


class DeadLetter(msgspec.Struct, frozen=True):
    """Where a message came from, and why it was put aside; `of` reads it from a message.

    `topic`: `topic://tenant/namespace/name`. `deliveries`: how often Kafka gave it out.
    `attempts`: those that the consumer which put it aside was told the error of.
    """

    topic: str
    subscription: str
    segment_id: int
    bucket: int
    offset: int
    deliveries: int
    reason: DeadLetterReason
    event_time_ms: int | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def error(self) -> str:
        """The last one that is known; else empty."""
        return self.attempts[-1].error if self.attempts else ""

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """What the headers of a dead letter say; None for any other message."""
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
                attempts=msgspec.json.decode(found.get(_ATTEMPTS, "[]"), type=tuple[Attempt, ...]),
            )
        except (ValueError, msgspec.MsgspecError):
            return None

    def headers(self) -> list[tuple[str, str]]:
        """What `of` reads."""
        numbers = (self.segment_id, self.bucket, self.offset, self.deliveries)
        contents = (self.topic, self.subscription, *map(str, numbers), self.reason.value)
        pairs = [(_PREFIX + name, content) for name, content in zip(_FIELDS, contents, strict=True)]
        if self.event_time_ms is not None:
            pairs.append((f"{_PREFIX}{_TIME}", str(self.event_time_ms)))
        if self.attempts:
            said = msgspec.json.encode(self.attempts).decode()
            pairs.append((f"{_PREFIX}{_ATTEMPTS}", said))
        return pairs


class Errors:
    """What an application said of messages that it released; the newest ten thousand."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[Attempt, ...]] = {}

    def note(self, message: Message, delivery: int, error: object) -> None:
        """An attempt has failed. An exception is named with its class."""
        said = (
            f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        )
        attempt = Attempt(delivery, time.time_ns() // 1_000_000, said[:_ERROR_CHARS_MAX])
        place = _place(message.raw)
        self._known[place] = (*self._known.pop(place, ()), attempt)
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def forget(self, raw: KafkaMessage) -> tuple[Attempt, ...]:
        """All that is known of a message, for the last time."""
        return self._known.pop(_place(raw), ())


class DeadLetterProducer:
    """Puts messages of one consumer's deliveries aside. To be used on its event loop.

    `on_failure` is called with a DeadLetterError when one cannot be stored.
    """

    def __init__(
        self,
        who: tuple[str, str],
        produce: Produce,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.errors = Errors()
        self._topic, self._subscription = who
        self._produce = produce
        self._on_failure = on_failure
        self._producers: dict[str, Producer] = {}
        self._making = asyncio.Lock()
        self._tasks: dict[asyncio.Task[None], tuple[Delivery, int]] = {}
        self._logger = get_logger(__name__).bind(topic=who[0], subscription=who[1])

    def put(
        self, where: str, delivery: Delivery, index: int, message: Message, reason: DeadLetterReason
    ) -> bool:
        """Stores a message in the topic `where`, then acknowledges it. False: it is not ours."""
        if delivery.is_over:
            return False
        if not delivery.hold(index):
            return not delivery.is_over  # it is being put aside
        raw = message.raw
        kind, time_ms = raw.timestamp()
        letter = DeadLetter(
            full_name(self._topic),
            self._subscription,
            message.segment_id,
            message.bucket,
            message.offset,
            int(raw.delivery_count() or 1),
            reason,
            int(time_ms) if kind else None,
            self.errors.forget(raw),
        )
        task = asyncio.create_task(self._store(where, raw, letter), name="dead letter")
        self._tasks[task] = (delivery, index)
        task.add_done_callback(self._stored)
        return True

    async def close(self) -> None:
        """Waits a moment for what is being stored; the rest is released."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S_MAX)
        for task in list(self._tasks):
            task.cancel()
        for producer in self._producers.values():
            await producer.abandon()

    async def _store(self, where: str, raw: KafkaMessage, letter: DeadLetter) -> None:
        try:
            async with asyncio.timeout(_STORE_S_MAX):
                await self._send(where, raw, letter)
        except (ClientError, InvalidInputError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise DeadLetterError(
                f"message {letter.segment_id}/{letter.bucket} @{letter.offset} of {letter.topic}, "
                f"delivered {letter.deliveries} times, could not be put aside in "
                f"{where}: {why}; Kafka discards what is given out too "
                "often, so the consumer has stopped: mend that topic, and begin again"
            ) from error

    async def _send(self, where: str, raw: KafkaMessage, letter: DeadLetter) -> None:
        producer = await self._producer(where)
        given: Any = raw.headers() or ()
        kept: list[tuple[str, Any]] = [
            (name, content or b"")
            for name, content in given
            if name != PRODUCER_HEADER and not name.startswith(_PREFIX)
        ]
        try:
            await producer.send(raw.value(), raw.key(), headers=[*kept, *letter.headers()])
        except MessageTooLargeError:  # rather without its history than not at all
            short = msgspec.structs.replace(letter, attempts=())
            await producer.send(raw.value(), raw.key(), headers=short.headers())

    async def _producer(self, where: str) -> Producer:
        async with self._making:
            found = self._producers.get(where)
            if found is None or found.is_closed:
                settings = ProducerSettings(linger_ms=1, delivery_timeout_s=_STORE_S_MAX)
                found = self._producers[where] = await self._produce(where, settings)
            return found

    def _stored(self, task: asyncio.Task[None]) -> None:
        delivery, index = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if not task.cancelled() and error is None:
            delivery.acknowledge_held(index, ACCEPT)
            return
        delivery.acknowledge_held(index, RELEASE)
        if error is not None:
            self._logger.error("consumer.dead_letter_failed", why=str(error))
            self._on_failure(error)


def _place(raw: KafkaMessage) -> Place:
    return raw.topic() or "", raw.partition() or 0, raw.offset() or 0


def limit_of(deliveries_max: int, kafkas_max: int) -> int:
    """How often a message is given out before it is put aside, which takes a delivery of its own.

    >>> limit_of(5, 10), limit_of(9, 5), limit_of(3, 2)
    (5, 4, 1)
    """
    return max(1, min(deliveries_max, kafkas_max - 1))
