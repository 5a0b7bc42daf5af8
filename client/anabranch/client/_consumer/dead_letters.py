"""Dead letters: messages that consumers could not process, put aside in a scalable topic.

A letter has the message's key, headers and stored value, and its history in headers of its own.
These give way to the message, which has room in any topic that has the same limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import StrEnum, unique
from typing import Any, Final, Self

import msgspec
from confluent_kafka import Message as KafkaMessage

from anabranch.client._consumer.messages import Message
from anabranch.client._errors import ClosedError, MessageTooLargeError
from anabranch.client._producer.producer import Producer
from anabranch.client._settings import ProducerSettings
from anabranch.core.names import full_name
from anabranch.wire.logging import get_logger

_PREFIX: Final = "anabranch-dead-letter-"
_FIELDS: Final = ("topic", "subscription", "segment", "bucket", "offset", "deliveries", "reason")
_TIME: Final = "event-time-ms"
_ERROR: Final = "error"
_ERROR_CHARS_MAX: Final = 500
_SEND_S_MAX: Final = 10.0

Produce = Callable[[str, ProducerSettings], Awaitable[Producer]]


@unique
class DeadLetterReason(StrEnum):
    """The reason why a message was put aside."""

    DELIVERIES = "deliveries"  # of a queue: all that are allowed were in vain
    ATTEMPTS = "attempts"  # of a stream's handler, likewise
    KILLED = "killed"  # its handler has ended processes
    REJECTED = "rejected"


class DeadLetter(msgspec.Struct, frozen=True):
    """The origin of a message, and the reason why it was put aside. `DeadLetter.of` reads it from a
    message.

    `topic` is `topic://tenant/namespace/name`. `deliveries` is the number of Kafka's deliveries, or
    of a handler's attempts. `error` is the last one that the consumer knew which put it aside, ""
    for none. Times are in milliseconds since 1970.
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

    @classmethod
    def about(
        cls, subscription: str, message: Message, count: int, reason: DeadLetterReason, error: str
    ) -> Self:
        """Makes the letter of a message. `count`: of its deliveries or attempts."""
        kind, time_ms = message.raw.timestamp()
        return cls(
            full_name(message.topic),
            subscription,
            message.segment_id,
            message.bucket,
            message.offset,
            count,
            reason,
            int(time_ms) if kind else None,
            error,
        )

    def fields(self) -> dict[str, Any]:
        """Returns the fields for the log, which has no error of an application."""
        return {
            "segment": self.segment_id,
            "bucket": self.bucket,
            "offset": self.offset,
            "deliveries": self.deliveries,
            "reason": self.reason.value,
        }


class DeadLetterSender:
    """Sends letters of one consumer. Use it on the consumer's event loop.

    `produce` makes a producer of a topic.
    """

    def __init__(self, who: tuple[str, str], produce: Produce) -> None:
        self._produce = produce
        self._is_closed = False
        self._producers: dict[str, asyncio.Task[Producer]] = {}
        self._logger = get_logger(__name__).bind(topic=who[0], subscription=who[1])

    async def send(self, where: str, raw: KafkaMessage, letter: DeadLetter) -> None:
        """Returns once Kafka has it. Raises the errors of a producer, and ClosedError."""
        if self._is_closed:
            raise ClosedError("the consumer of this letter was closed: subscribe anew")
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
        self._logger.warning("consumer.dead_letter_bare", **letter.fields())

    async def close(self) -> None:
        """Ends its producers, which wait only for a moment."""
        self._is_closed = True
        making = list(self._producers.values())
        for task in making:
            task.cancel()
        for made in await asyncio.gather(*making, return_exceptions=True):
            if isinstance(made, Producer):
                await made.abandon()


def said(error: object) -> str:
    """Returns the text of an error for a letter. It names an exception with its class."""
    try:
        text = (
            f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        )
    except Exception:  # noqa: BLE001 - the application's
        text = type(error).__name__
    return text[:_ERROR_CHARS_MAX].encode(errors="replace").decode()
