"""What the workload's processes saw: a file of JSON lines each, in one folder that all can read.

A line is with the kernel when it is said, so it outlives a SIGKILL of who said it. `at` is the
monotonic clock, which all containers of one machine share. What one process said, another one acts
upon: so causes and effects of several processes are in an order that does not rest on the product.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

Line = Mapping[str, Any]

SUFFIX: Final = ".jsonl"


class History:
    """The file of one process, `name`; it goes on where a killed one of that name ended. Used as a
    context manager.
    """

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}{SUFFIX}"
        self.past = tuple(_lines(path.read_bytes())) if path.exists() else ()
        self._name = name
        self._file = path.open("ab", buffering=0)
        if self._file.tell():
            self._file.write(b"\n")  # ends a line that was cut off

    def say(self, what: str, **fields: Any) -> None:
        line = {"at": time.monotonic(), "what": what, "by": self._name, **fields}
        self._file.write(json.dumps(line).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Follower:
    """Reads what all processes but `except_for` have said since it was last asked."""

    def __init__(self, folder: Path, except_for: str = "") -> None:
        self._folder = folder
        self._except_for = except_for
        self._read: dict[Path, int] = {}

    def more(self) -> Iterator[Line]:
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path.stem == self._except_for:
                continue
            at = self._read.get(path, 0)
            if path.stat().st_size == at:
                continue
            with path.open("rb") as file:
                file.seek(at)
                whole = file.read().rpartition(b"\n")[0]
            self._read[path] = at + len(whole) + 1 if whole else at
            yield from _lines(whole)


def read(*where: Path) -> list[Line]:
    """The lines of all files, and of all processes in a folder, by time; one that was cut off is
    left out.
    """
    paths = [
        path
        for each in where
        for path in (sorted(each.glob(f"*{SUFFIX}")) if each.is_dir() else (each,))
        if path.exists()
    ]
    found = [line for path in paths for line in _lines(path.read_bytes())]
    return sorted(found, key=lambda line: float(line["at"]))


def _lines(data: bytes) -> Iterator[Line]:
    for line in data.split(b"\n"):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        yield found
