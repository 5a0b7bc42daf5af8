"""`RecordBatch`: messages of one bucket that Kafka stores together, or not at all. Pure, no I/O.

The records are built in C as they come (aiokafka's builder). So a message costs a quarter of a
microsecond, and no object of its own. A message that must go elsewhere is read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import msgspec

SEQUENCES: Final = 2**31  # then Kafka's numbers begin at 0 again
CODECS: Final = {"none": 0, "snappy": 2, "lz4": 3, "zstd": 4}
_MAGIC: Final = 2
_NO_PRODUCER: Final = (-1, -1, -1)


@cache
def record_batches() -> Any:
    """Imports aiokafka's module of record batches on first use.

    Its package takes a fifth of the SDK's start, and a program that only consumes needs none of it.
    """
    from aiokafka.record import default_records

    return default_records


class PendingMessage(msgspec.Struct, eq=False):
    """A message in our hands: new, refused, or waiting until its partition writer has left.

    `timestamp_ms` is its event time, or the time of sending. `since` is the time of sending on the
    producer's clock, or 0 if it was not noted.
    """

    key: str | bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, Any]] = ()
    timestamp_ms: int = 0
    on_delivery: Any = None
    since: float = 0.0


OVERHEAD_BYTES = 256  # for a batch of one record, with our headers


def bytes_of(
    key: str | bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Returns the most bytes that a message takes in a batch of its own."""
    size = len(key or b"") + len(value or b"") + OVERHEAD_BYTES
    return size + sum(len(name) + len(content or b"") + 8 for name, content in headers)


class BatchLimits(msgspec.Struct, frozen=True):
    """The size of a batch. A larger message is a batch by itself."""

    bytes: int = 1_000_000
    messages: int = 10_000
    codec: int = 0


class ProducerId(msgspec.Struct, frozen=True):
    """Kafka's id of a producer."""

    id: int
    epoch: int


class RecordBatch:
    """Takes messages until it is full, then gets its number, and is tried until it is stored.

    `since` is the time of sending of its first message. `in_doubt` is True if a try may have stored
    it. `bytes` counts bytes of values.
    """

    __slots__ = (
        "_add",
        "_builder",
        "_data",
        "_limits",
        "bytes",
        "count",
        "in_doubt",
        "noted",
        "sequence",
        "since",
        "tries",
    )

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._builder = record_batches().DefaultRecordBatchBuilder(
            _MAGIC, limits.codec, 0, *_NO_PRODUCER, limits.bytes
        )
        self._add = self._builder.append
        self._data: bytes | bytearray = b""
        self.since = 0.0
        self.count = 0
        self.bytes = 0
        self.noted: list[tuple[int, PendingMessage]] = []  # those that somebody waits for
        self.sequence = -1  # the number of its first message, once it has one
        self.tries = 0
        self.in_doubt = False

    def take(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Any) -> bool:
        """Adds a message. Returns False if it does not fit."""
        count = self.count
        if count >= self._limits.messages:
            return False
        if self._add(count, timestamp_ms, key, value, headers) is None:
            return False
        self.count = count + 1
        if value:
            self.bytes += len(value)
        return True

    def note(self, message: PendingMessage) -> None:
        """Remembers the message that was taken last, because its sender waits for it."""
        self.noted.append((self.count - 1, message))

    def number(self, producer: ProducerId, sequence: int) -> None:
        """Ends the batch, with that number for its first message."""
        self.sequence = sequence
        self._builder.set_producer_state(producer.id, producer.epoch, sequence)
        self._data = self._builder.build()

    @property
    def data(self) -> bytes | bytearray:
        """The bytes for Kafka, once it is numbered."""
        return self._data

    @property
    def after(self) -> int:
        """The number of the message after it."""
        return (self.sequence + self.count) % SEQUENCES

    def messages(self) -> list[PendingMessage]:
        """Returns its messages in their order. It takes no more."""
        data = self._data or self._builder.build()
        found = [
            PendingMessage(
                record.key, record.value, record.headers, record.timestamp, None, self.since
            )
            for record in record_batches().DefaultRecordBatch(bytes(data))
        ]
        for place, message in self.noted:
            message.since = message.since or self.since
            found[place] = message
        return found
