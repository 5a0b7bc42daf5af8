"""`Message` and `Batch`: received messages, made from librdkafka's on access.

Wrapping every message would cost as much as reading it, so a batch keeps librdkafka's objects.

An application learns in three ways that its consumer has lost the bucket of received messages:
acknowledging raises BucketLostError, `while_held` cancels, and `is_revoked` answers questions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast, overload

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.serialization import MessageField, SerializationContext

from anabranch.client._consumer.assignment import Partition, SegmentBucket
from anabranch.client._consumer.holding import Holding, Loss
from anabranch.client._consumer.reads import partition_of
from anabranch.client._errors import BucketLostError, DecryptionError, DeserializationError
from anabranch.client._settings import Deserializer, ReceivingSettings

Headers = list[tuple[str, bytes | None]]


def _value_reader(settings: ReceivingSettings) -> Deserializer | None:
    """Returns the reader of values: it decrypts them first, but leaves out a message without a
    value.
    """
    deserializer = settings.value_deserializer
    decrypt: Any = settings.decrypt
    if decrypt is None:
        return deserializer

    def read(data: bytes | None, context: Any) -> Any:
        plain = data
        if data is not None:
            try:
                plain = decrypt(data)
            except Exception as error:
                raise DecryptionError(f"{type(error).__name__}: {error}") from error
            if not isinstance(plain, bytes | bytearray | memoryview):
                raise DecryptionError(f"decrypt gave a {type(plain).__name__} instead of bytes")
            plain = bytes(plain)
        return plain if deserializer is None else deserializer(plain, context)

    return read


class Source:
    """The origin of the messages of one holding, with the readers of their bytes.

    `is_held` returns True while the consumer has the holding. Any thread may call it.
    """

    __slots__ = (
        "_is_held",
        "counted",
        "holding",
        "key_deserializer",
        "number",
        "topic",
        "value_deserializer",
    )

    def __init__(
        self,
        topic: str,
        number: int,
        holding: Holding,
        settings: ReceivingSettings,
        is_held: Callable[[Holding], bool] = lambda _: True,
    ) -> None:
        self._is_held = is_held
        self.topic = topic
        self.number = number
        self.holding = holding
        self.counted = 0  # the end of what was counted for the load of the segment
        self.key_deserializer = settings.key_deserializer
        self.value_deserializer = _value_reader(settings)

    def is_revoked(self, end: int) -> bool:
        """Returns True if it was taken away before everything below `end` was acknowledged for
        good.
        """
        return not self.holding.is_committed(end) and not self._is_held(self.holding)


class Message:
    """One message. It deserializes key and value on access."""

    __slots__ = ("_raw", "source")

    def __init__(self, raw: KafkaMessage, source: Source) -> None:
        self._raw = raw
        self.source = source

    @property
    def key(self) -> Any:
        """The key's bytes, or the result of the key's deserializer. Raises DeserializationError."""
        return self._read(self._raw.key(), self.source.key_deserializer, MessageField.KEY)

    @property
    def value(self) -> Any:
        """The value's bytes, or the result of the value's deserializer.

        Raises DeserializationError, DecryptionError.
        """
        return self._read(self._raw.value(), self.source.value_deserializer, MessageField.VALUE)

    @property
    def headers(self) -> Headers:
        """Names and values, in the order of the producer. A name may come twice."""
        return list(cast(Headers, self._raw.headers() or ()))

    @property
    def event_time_ms(self) -> int | None:
        """The producer's event time, or the time of sending: milliseconds since 1970, UTC.
        None if Kafka has none.
        """
        kind, time_ms = self._raw.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else int(time_ms)

    @property
    def topic(self) -> str:
        """The scalable topic: tenant/namespace/name."""
        return self.source.topic

    @property
    def segment_id(self) -> int:
        return self.source.holding.place.segment_id

    @property
    def bucket(self) -> int:
        """The bucket, which is the partition of the segment's Kafka topic."""
        return self.source.holding.place.bucket

    @property
    def offset(self) -> int:
        """The offset of the message in its bucket."""
        return self._raw.offset() or 0

    @property
    def is_revoked(self) -> bool:
        """True if the message was taken from its consumer before it was acknowledged.

        Another consumer may have it by now or soon. Any thread may ask, also while the event loop
        is blocked.
        """
        return self.source.is_revoked(self.offset + 1)

    @property
    def raw(self) -> KafkaMessage:
        """The message as librdkafka returned it."""
        return self._raw

    def __repr__(self) -> str:
        return f"Message({self.topic} {self.segment_id}/{self.bucket} @{self.offset})"

    def _read(self, data: Any, read: Deserializer | None, field: Any) -> Any:
        if read is None:
            return data
        headers: Any = self.headers
        context = SerializationContext(self.topic, field, headers)
        try:
            return read(data, context)
        except DecryptionError as error:
            raise DecryptionError(
                f"the {field} of {self!r} cannot be decrypted: {error}"
            ) from error.__cause__
        except Exception as error:
            raise DeserializationError(
                f"the {field} of {self!r} cannot be deserialized: {error}"
            ) from error


class Batch(Sequence[Message]):
    """Messages in the order of each bucket. It makes `Message` objects on access.

    `values` and `raw` cost least if you need nothing else.
    """

    __slots__ = ("_sources", "ends", "raw")

    def __init__(
        self,
        raw: list[KafkaMessage],
        sources: Mapping[Partition, Source],
        ends: Mapping[int, int],
    ) -> None:
        self.raw = raw
        self._sources = sources
        self.ends = ends  # the exclusive end of what is in here, by fetch number

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Batch: ...
    def __getitem__(self, index: int | slice) -> Message | Batch:
        if isinstance(index, slice):
            return self._of(self.raw[index])
        return self._wrapped(self.raw[index])

    def __iter__(self) -> Iterator[Message]:
        return map(self._wrapped, self.raw)

    @property
    def is_revoked(self) -> bool:
        """True if a message of it was taken from its consumer before it was acknowledged."""
        return any(source.is_revoked(end) for source, end in self.parts())

    def values(self) -> list[Any]:
        """The values of all messages. Raises DeserializationError."""
        sources = self._sources.values()
        if all(source.value_deserializer is None for source in sources):
            return list(map(KafkaMessage.value, self.raw))
        return [message.value for message in self]

    def source_of(self, message: KafkaMessage) -> Source:
        """Returns the source of one of its messages."""
        return self._sources[partition_of(message)]

    def parts(self) -> list[tuple[Source, int]]:
        """Returns the sources of its messages, each with the exclusive end of its messages here."""
        ends = self.ends
        return [(s, ends[s.number]) for s in self._sources.values() if s.number in ends]

    @staticmethod
    def joined(parts: Sequence[Batch]) -> Batch:
        """Returns one batch of several, whose fetches have numbers of one count."""
        if len(parts) == 1:
            return parts[0]
        raw = [message for part in parts for message in part.raw]
        sources: dict[Partition, Source] = {}
        ends: dict[int, int] = {}
        for part in parts:
            sources.update(part._sources)
            ends.update(part.ends)
        return Batch(raw, sources, ends)

    def only(self, numbers: set[int]) -> Batch:
        """Returns the messages of these fetches."""
        return self._of([m for m in self.raw if self.source_of(m).number in numbers])

    def _of(self, raw: list[KafkaMessage]) -> Batch:
        ends: dict[int, int] = {}
        for message in raw:
            number, end = self.source_of(message).number, (message.offset() or 0) + 1
            ends[number] = max(end, ends.get(number, 0))
        return Batch(raw, self._sources, ends)

    def _wrapped(self, raw: KafkaMessage) -> Message:
        return Message(raw, self._sources[partition_of(raw)])


def parts_of(received: Message | Batch) -> list[tuple[Source, int]]:
    """Returns the sources of what was received, each with the exclusive end of its part."""
    if isinstance(received, Message):
        return [(received.source, received.offset + 1)]
    return received.parts()


class Lost(msgspec.Struct, frozen=True):
    """A bucket of a topic that was taken away before all its received messages were
    acknowledged.
    """

    topic: str
    place: SegmentBucket
    loss: Loss

    @classmethod
    def of(cls, topic: str, holding: Holding) -> Self:
        # A bucket that is still held, and not ours by the clock, is about to be found lapsed.
        return cls(topic, holding.place, Loss.LAPSED if holding.is_held else holding.loss)


def raise_lost(lost: Sequence[Lost]) -> None:
    """Raises BucketLostError if there are any."""
    if not lost:
        return
    first, *others = lost
    more = f", and {len(others)} more," if others else ""
    raise BucketLostError(
        f"bucket {first.place.bucket} of segment {first.place.segment_id} of {first.topic}{more} "
        "was taken away before this was acknowledged, and it is delivered again, perhaps to "
        f"another consumer: {first.loss.value}"
    )


@contextlib.asynccontextmanager
async def while_held(received: Message | Batch) -> AsyncIterator[None]:
    """Cancels its body if a bucket of `received` is taken away, and raises BucketLostError then."""
    parts = parts_of(received)

    def lost() -> list[Lost]:
        return [Lost.of(s.topic, s.holding) for s, end in parts if s.is_revoked(end)]

    raise_lost(lost())
    try:
        async with asyncio.timeout(None) as limit:

            def stop() -> None:
                if lost() and not limit.expired():
                    limit.reschedule(0.0)

            for source, _ in parts:
                source.holding.listeners.append(stop)
            try:
                yield
            finally:
                for source, _ in parts:
                    with contextlib.suppress(ValueError):  # it was told
                        source.holding.listeners.remove(stop)
    except TimeoutError:
        if not limit.expired():
            raise
    raise_lost(lost())
