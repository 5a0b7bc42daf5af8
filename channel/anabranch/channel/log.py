"""The log as its users see it: entries, a writer, a reader, and a log in memory.

The WAL has one partition, so an offset is a place in one total order. Offsets ascend but may have
gaps. An append is answered by a callback, and its verdict only by reading the record back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from anabranch.channel.codec import SCHEMA_HEADER, encode_record, read_entry, schema_header
from anabranch.channel.errors import AppendError, LogTrimmedError, NewerSchemaError
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
        """What the entry proposes; None for what every reader alike calls unreadable.

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
        """Where the next poll goes on."""
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
    writer.append(record.key, encode_record(record), schema_header(record), on_done)


class MemoryLog:
    """A log in memory: a LogWriter whose appends are in the log when they return.

    `now_ms` stamps the entries; like Kafka's, the stamps never go back.
    """

    def __init__(self, now_ms: Callable[[], int], name: str = "memory") -> None:
        self.name = name
        self._now_ms = now_ms
        self._entries: list[Entry] = []
        self._first_offset = 0

    @property
    def first_offset(self) -> int:
        """The first offset that the log still holds, or its end when it holds none."""
        return self._first_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next entry gets."""
        return self._first_offset + len(self._entries)

    def append(self, key: str, value: bytes, header: tuple[str, bytes], on_done: OnDone) -> None:
        self.append_raw(key.encode(), value, header[1])
        on_done(None)

    def append_raw(self, key: bytes | None, value: bytes | None, schema: bytes | None) -> Entry:
        """Appends whatever a stranger may have written."""
        stamp = max(self._now_ms(), self._entries[-1].timestamp_ms if self._entries else 0)
        entry = Entry(self.end_offset, stamp, key, value, schema)
        self._entries.append(entry)
        return entry

    def read(self, next_offset: int, max_records: int) -> list[Entry]:
        """Entries from an offset on. Raises LogTrimmedError."""
        if next_offset < self._first_offset:
            raise LogTrimmedError(self.name, next_offset, self._first_offset)
        start = next_offset - self._first_offset
        return self._entries[start : start + max_records]

    def trim(self, first_offset: int) -> None:
        """Drops what lies before an offset; never grows the log back."""
        dropped = min(max(0, first_offset - self._first_offset), len(self._entries))
        del self._entries[:dropped]
        self._first_offset += dropped

    def reader(self, next_offset: int = 0) -> MemoryReader:
        """A reader of its own."""
        return MemoryReader(self, next_offset)


class MemoryReader:
    """A LogReader of a MemoryLog. It never waits: nobody could append meanwhile."""

    def __init__(self, log: MemoryLog, next_offset: int) -> None:
        self._log = log
        self._next_offset = next_offset

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def poll(self, max_records: int, timeout_s: float = 0.0) -> list[Entry]:
        entries = self._log.read(self._next_offset, max_records)
        if entries:
            self._next_offset = entries[-1].offset + 1
        return entries
