"""The files by which a container's clocks and disk are disturbed while its processes run.

`docker/faults/clock.c` and `disk.c`, preloaded into the processes, map them; they say what the
numbers mean.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_NUMBER: Final = struct.Struct("=q")
_CLOCK_NUMBERS: Final = 5
_DISK_NUMBERS: Final = 2
_NS: Final = 1_000_000_000
_US: Final = 1_000_000


class ClockControl:
    """A container's clocks. They are right until told otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = self._step_ns = self._ppm = self._from_ns = self._offset_ns = 0
        path.write_bytes(bytes(_NUMBER.size * _CLOCK_NUMBERS))

    def step(self, seconds: float) -> None:
        """Steps the real time by that much from what is right."""
        self._step_ns = round(seconds * _NS)
        self._tell()

    def drift(self, rate: float) -> None:
        """Lets all clocks run `rate` times as fast from now on; no clock jumps by that."""
        now_ns = time.monotonic_ns()
        self._offset_ns += round((now_ns - self._from_ns) * self._ppm / 1e6)
        self._from_ns = now_ns
        self._ppm = round((rate - 1) * 1e6)
        self._tell()

    def _tell(self) -> None:
        self._version += 2
        values = (self._step_ns, self._ppm, self._from_ns, self._offset_ns)
        _write(self._path, (self._version - 1, *values))
        _write(self._path, (self._version,))


class DiskControl:
    """A container's disk. It is sound until told otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(_NUMBER.size * _DISK_NUMBERS))

    def read_only(self) -> None:
        """Refuses to be written."""
        _write(self._path, (1, 0))

    def slow(self, seconds: float) -> None:
        """Takes that much longer for each write and each sync."""
        _write(self._path, (0, round(seconds * _US)))

    def heal(self) -> None:
        """Is sound again."""
        _write(self._path, (0, 0))


def _write(path: Path, values: Sequence[int]) -> None:
    """Each number at once, and one after the other: their readers read meanwhile."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for at, value in enumerate(values):
            _NUMBER.pack_into(mapped, at * _NUMBER.size, value)
