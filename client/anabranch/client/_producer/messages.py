"""Arguments and results of producers: headers, event times, delivery results.

`Outgoing` turns the application's arguments into the message that is appended. `Callbacks` tell the
application the results.

A producer that encrypts, or is told to, stamps each message with the bounds of its key's hashes
(`core.topics.entries`). If it encrypts, it also stores each message as a batch of its own (PIP-486,
"Security"). A relay cannot read such a batch, and so cannot take it apart for a topic with another
layout. A message without a key gets no bounds, because it may go anywhere.
"""

from __future__ import annotations

import inspect
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka.serialization import MessageField, SerializationContext

from anabranch.client._errors import (
    DeliveryError,
    EncryptionError,
    MessageTooLargeError,
    SerializationError,
)
from anabranch.client._producer.batch import OVERHEAD_BYTES, PendingMessage, bytes_of
from anabranch.client._settings import ProducerSettings
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import hash32
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.topics.entries import (
    BOUNDS_HEADERS,
    bounds_headers,
)
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX
from anabranch.wire import clock
from anabranch.wire.logging import get_logger

_FAULTS_APART_S: Final = 1.0
_logger = get_logger(__name__)

Headers = Mapping[str, Any] | Sequence[tuple[str, Any]]


class DeliveryResult(msgspec.Struct, frozen=True, gc=False):
    """The place of a message: its offset in the bucket, which is a partition of the segment's Kafka
    topic.

    `timestamp_ms` is its event time, or the time of the append. Offset and time are -1 for a
    message whose acknowledgement was lost, but which a sealed segment was found to hold.

    `is_repeat`: an earlier process of the producer's name has stored the number, so it was not
    stored again. Then segment, bucket and offset are those, or -1 if they are not known any more.
    """

    topic: str
    segment_id: int
    bucket: int
    offset: int
    timestamp_ms: int
    is_repeat: bool = False


class BatchStats(msgspec.Struct, frozen=True):
    """Counts of the batches that a producer wrote to a bucket.

    `bytes` are those of the stored batches, so compressed. `bytes_max` is the largest size of a
    batch.
    """

    segment_id: int
    bucket: int
    batches: int
    messages: int
    bytes: int
    bytes_max: int

    @property
    def mean_messages(self) -> float:
        """The mean number of messages of a batch, 0 without any batch."""
        return self.messages / self.batches if self.batches else 0.0

    @property
    def mean_bytes(self) -> float:
        """The mean bytes of a batch, 0 without any batch."""
        return self.bytes / self.batches if self.batches else 0.0

    @property
    def fill_ratio(self) -> float:
        """The mean bytes of a batch as a part of `bytes_max`, 0 to about 1."""
        return self.mean_bytes / self.bytes_max


OnDelivery = Callable[[DeliveryResult | None, Exception | None], None]


def now_ms() -> int:
    """Returns the time of sending, in milliseconds since 1970."""
    return int(time.time() * 1000)


def event_time(given: Any) -> int:
    """Checks an event time: milliseconds since 1970. Raises InvalidInputError.

    Only Kafka knows if it is older than what the topic keeps.

    >>> event_time(1_700_000_000_000)
    1700000000000
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        found = operator.index(given)
    except TypeError:
        raise InvalidInputError(
            f"event_time_ms is a number of milliseconds since 1970, not {given!r}"
        ) from None
    ahead_ms = found - time.time() * 1000
    if found < 0 or ahead_ms > FUTURE_MS_MAX:
        raise InvalidInputError(
            f"event_time_ms is in milliseconds since 1970, not negative and at most "
            f"{FUTURE_MS_MAX // 60_000} minutes in the future: {found}; leave it out for the time "
            "of sending"
        )
    return found


def header_pairs(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """Returns headers in the form for appending. Raises InvalidInputError.

    >>> header_pairs({"a": "b", "none": None})
    [('a', b'b'), ('none', None)]
    """
    items: Any = headers.items() if isinstance(headers, Mapping) else headers or ()
    pairs = []
    try:
        for name, content in items:
            data = content.encode() if isinstance(content, str) else content
            if not isinstance(name, str) or not isinstance(data, bytes | None):
                raise InvalidInputError(
                    f"header {name!r} must have a str for its name, and bytes, str or None: it has "
                    f"a {type(content).__name__}"
                )
            name.encode()
            pairs.append((name, data))
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"a header cannot be encoded: {error}") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"headers are a mapping, or pairs of name and content: {headers!r:.100}"
        ) from None
    return pairs


class Outgoing:
    """Makes the messages of one producer of `topic`, a URL.

    `subject`: the topic's name for serializers, by which registries know schemas.
    """

    def __init__(self, topic: str, settings: ProducerSettings, subject: Callable[[], str]) -> None:
        self._topic = topic
        self._settings = settings
        self._subject = subject

    def held(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        time_ms: int,
        on_delivery: OnDelivery | None,
        limit_bytes: int,
        mark: tuple[str, bytes] | None = None,
    ) -> PendingMessage:
        """Returns the checked message in the form for appending, with the header `mark`.

        Raises InvalidInputError, SerializationError, EncryptionError, MessageTooLargeError.
        """
        settings = self._settings
        pairs = header_pairs(headers)
        key_bytes = self._serialized(settings.key_serializer, key, MessageField.KEY, pairs)
        value_bytes = self._serialized(settings.value_serializer, value, MessageField.VALUE, pairs)
        if settings.encrypt is not None:
            value_bytes = self._encrypted(settings.encrypt, value_bytes)
        if settings.stamps:
            pairs = _stamped(pairs, key_bytes)
        if mark is not None:
            pairs = [*(pair for pair in pairs if pair[0] != mark[0]), mark]
        size = bytes_of(key_bytes, value_bytes, pairs)
        if size > limit_bytes:
            raise MessageTooLargeError(
                f"a message of {size} bytes (with {OVERHEAD_BYTES} for its envelope) is larger "
                f"than {self._topic} takes, {limit_bytes} bytes: make it smaller, or raise the "
                "nodes' setting maxMessageSize"
            )
        return PendingMessage(key_bytes, value_bytes, pairs, time_ms, on_delivery)

    def _serialized(
        self, serializer: Callable[..., Any] | None, content: Any, field: MessageField, headers: Any
    ) -> bytes | None:
        if serializer is not None:
            context = SerializationContext(self._subject(), field, headers)
            try:
                content = serializer(content, context)
            except Exception as error:
                raise SerializationError(
                    f"the {field} serializer of {self._topic} refused a {type(content).__name__}: "
                    f"{error}"
                ) from error
        if isinstance(content, str):
            try:
                return content.encode()
            except UnicodeEncodeError as error:
                raise SerializationError(f"a {field} of {self._topic}: {error}") from None
        if content is None or isinstance(content, bytes):
            return content
        if isinstance(content, bytearray | memoryview):
            return bytes(content)
        if serializer is not None:
            raise SerializationError(
                f"the {field} serializer of {self._topic} gave a {type(content).__name__} instead "
                "of bytes"
            )
        raise SerializationError(
            f"a {field} of {self._topic} is a {type(content).__name__}: give bytes or str, or set "
            f"the producer's {field}_serializer"
        )

    def _encrypted(self, encrypt: Callable[[bytes], Any], value: bytes | None) -> bytes | None:
        """Encrypts a value. A tombstone, which has no value, stays one."""
        if value is None:
            return None
        try:
            found = encrypt(value)
        except Exception as error:
            raise EncryptionError(
                f"encrypt of the producer of {self._topic} failed, nothing was sent: "
                f"{type(error).__name__}: {error}"
            ) from error
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found)
        if inspect.iscoroutine(found):
            found.close()
        raise EncryptionError(
            f"encrypt of the producer of {self._topic} gave a {type(found).__name__} instead of "
            "bytes, nothing was sent"
        )


def _stamped(
    pairs: list[tuple[str, bytes | None]], key: bytes | None
) -> list[tuple[str, bytes | None]]:
    """Returns the headers with the bounds of that key, and no others: a relay may have
    copied some.
    """
    kept = [pair for pair in pairs if pair[0] not in BOUNDS_HEADERS]
    return kept if key is None else [*kept, *bounds_headers(hash32(key))]


class Callbacks:
    """The callbacks for messages to `topic`, a URL.
    `tell` calls them, outside of a poll, in which nothing may be sent.
    """

    def __init__(self, topic: str, now: Callable[[], float] = clock.now) -> None:
        self._topic = topic
        self._untold: list[tuple[OnDelivery, DeliveryResult | None, Exception | None]] = []
        self._now = now
        self._faults = LogRateLimit(_FAULTS_APART_S)  # for faults of callbacks
        self._failed_count = 0  # messages without a waiting sender
        self._first_failure: Exception | None = None

    def delivered(self, held: PendingMessage, result: DeliveryResult) -> None:
        """Notes that Kafka has the message, for its waiting sender."""
        self._untold.append((held.on_delivery, result, None))

    def failed(self, held: PendingMessage, error: Exception) -> None:
        """Notes that the message is given up."""
        if held.on_delivery is not None:
            self._untold.append((held.on_delivery, None, error))
            return
        self._failed_count += 1
        self._first_failure = self._first_failure or error

    def tell(self) -> None:
        """Makes the calls."""
        untold, self._untold = self._untold, []
        for on_delivery, result, error in untold:
            try:
                on_delivery(result, error)
            except Exception as fault:  # noqa: BLE001 - the user's, who is told by the log
                self._log_fault(fault)

    def _log_fault(self, fault: Exception) -> None:
        """Logs faults with a rate limit, because one for a message may come for thousands in a
        second.
        """
        if count := self._faults.due(self._topic, self._now()):
            _logger.error(
                "producer.callback_failed", topic=self._topic, times=count, exc_info=fault
            )

    def raise_failures(self) -> None:
        """Raises DeliveryError if messages failed for which nobody waits, once for each."""
        count, first = self._failed_count, self._first_failure
        if count:
            self._failed_count, self._first_failure = 0, None
            raise DeliveryError(f"{count} messages failed, the first: {first}") from first
