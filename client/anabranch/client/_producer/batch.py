"""`RecordBatch`: messages of one bucket that Kafka stores together, or not at all. Pure, no I/O.

The records are built in C as they come (aiokafka's builder), so a message costs a quarter of a
microsecond, and no object of its own. Where a message must go elsewhere, it is read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

SEQUENCES: Final = 2**31  # then Kafka's numbers begin at 0 again
CODECS: Final = {"none": 0, "snappy": 2, "lz4": 3, "zstd": 4}
_MAGIC: Final = 2
_NO_PRODUCER: Final = (-1, -1, -1)


@cache
def record_batches() -> Any:
    """Aiokafka's module of record batches. Its package takes a fifth of the SDK's start, and who
    only consumes needs none of it.
    """
    from aiokafka.record import default_records

    return default_records


class PendingMessage(msgspec.Struct, eq=False):
    """A message in our hands: new, refused, or waiting for its partition writer to have left.

    `timestamp_ms`: its event time, or when it was sent. `since`: the same on the producer's clock;
    0 where that was not noted.
    """

    key: str | bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, Any]] = ()
    timestamp_ms: int = 0
    on_delivery: Any = None
    since: float = 0.0


class BatchLimits(msgspec.Struct, frozen=True):
    """How much a batch takes; a message that is larger is a batch by itself."""

    bytes: int = 1_000_000
    messages: int = 10_000
    codec: int = 0


class ProducerId(msgspec.Struct, frozen=True):
    """Under which Kafka knows who appends."""

    id: int
    epoch: int


class RecordBatch:
    """Takes messages until it is full, then gets its number, and is tried until it is stored.

    `since`: when its first message was sent. `in_doubt`: a try may have stored it. `bytes`: of
    values.
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
        self.sequence = -1  # of its first message, once it is numbered
        self.tries = 0
        self.in_doubt = False

    def take(self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Any) -> bool:
        """Adds a message; False where it does not fit."""
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
        """Remembers the message that was taken last, for whoever waits for it."""
        self.noted.append((self.count - 1, message))

    def number(self, producer: ProducerId, sequence: int) -> None:
        """Ends it, under that number of its first message."""
        self.sequence = sequence
        self._builder.set_producer_state(producer.id, producer.epoch, sequence)
        self._data = self._builder.build()

    @property
    def data(self) -> bytes | bytearray:
        """What Kafka gets, once it is numbered."""
        return self._data

    @property
    def after(self) -> int:
        """The number of the message after it."""
        return (self.sequence + self.count) % SEQUENCES

    def messages(self) -> list[PendingMessage]:
        """Returns its messages, in their order; nothing more is taken."""
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
