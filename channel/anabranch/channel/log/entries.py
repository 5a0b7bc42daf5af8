"""The log as its users see it: entries, a writer, a reader.

The WAL has one partition, so an offset is a place in one total order. Offsets ascend but may have
gaps. An append is answered by a callback, and its verdict only by reading the record back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from anabranch.channel.codec import SCHEMA_HEADER, encode_record, read_entry, schema_header
from anabranch.channel.errors import AppendError, NewerSchemaError
from anabranch.core.log.records import Record

_BATCH_MAX: Final = 10_000
_POLL_S: Final = 0.2
_QUIET_S_MAX: Final = 30.0

OnDone = Callable[[AppendError | None], None]
"""Told once for each append, from any thread: it may only hand over."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of the log; `schema` is its schema header, read only where the value needs it."""

    offset: int
    timestamp_ms: int  # the log's own
    key: bytes | None
    value: bytes | None
    schema: bytes | None = None

    def record(self) -> Record | None:
        """Returns what the entry proposes; None for what every reader alike calls unreadable.

        Raises NewerSchemaError.
        """
        schema = self.schema
        if schema is None:
            return read_entry(self.key, self.value)
        try:
            return read_entry(self.key, self.value, lambda: [(SCHEMA_HEADER, schema)])
        except NewerSchemaError as error:
            raise NewerSchemaError(error.schema, f"offset {self.offset} of the log") from None


class LogWriter(Protocol):
    """Appends to the log. Safe to call from any thread."""

    def append(self, key: str, value: bytes, header: tuple[str, bytes], on_done: OnDone) -> None:
        """Hands a record over to be appended; never blocks.

        `on_done` gets None once the record is in the log for certain, an AppendFailedError if it
        is certainly not, else an AppendUnknownError.
        """
        ...


class LogReader(Protocol):
    """Reads the log from one place on. One thread at a time."""

    @property
    def next_offset(self) -> int:
        """Returns where the next poll goes on."""
        ...

    def poll(self, max_records: int, timeout_s: float) -> list[Entry]:
        """The next entries in order; waits for the first one only, and not beyond the time-out.

        Raises LogTrimmedError, LogLostError or KafkaRefusedError; an unreachable Kafka looks like
        a log without news.
        """
        ...


def read_until(
    reader: LogReader,
    end: int,
    unreachable: Callable[[], Exception],
    now: Callable[[], float] = time.monotonic,
) -> Iterator[list[Entry]]:
    """The entries before `end`, and perhaps some after it, as they come.

    The reader passes gaps (`to_end`). Raises as its poll, and what `unreachable` makes once the
    place has not moved for a while.
    """
    heard, place = now(), reader.next_offset
    while reader.next_offset < end:
        yield reader.poll(_BATCH_MAX, _POLL_S)
        if reader.next_offset > place:
            heard, place = now(), reader.next_offset
        elif now() - heard > _QUIET_S_MAX:
            raise unreachable()


def append_record(writer: LogWriter, record: Record, on_done: OnDone) -> None:
    """Appends a proposal in its newest schema."""
    append_records(writer, ((record, on_done),))


def append_records(writer: LogWriter, records: Iterable[tuple[Record, OnDone]]) -> None:
    """Appends proposals in this order, each in its newest schema.

    All are encoded before the first is handed over, so that Kafka's client finds them together.
    """
    encoded = [
        (record.key, encode_record(record), schema_header(record), on_done)
        for record, on_done in records
    ]
    for key, value, header, on_done in encoded:
        writer.append(key, value, header, on_done)
