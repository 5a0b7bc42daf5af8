"""A log in memory: what it takes is in it at once."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.channel.errors import LogTrimmedError
from anabranch.channel.log.entries import Entry, OnDone


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
