"""Where the checkpoint consumers' effects go: a file for each bucket, on disk when it is stored.

A line is one transaction: the effects of some messages, and the position behind them. It is stored
only if the file is still where the writer began, so that a consumer which lost its bucket meanwhile
without hearing of it cannot write. What is delivered twice to a consumer is stored twice, though:
that effects are there once is the product's promise, not the sink's.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Effect = tuple[str, int, int]  # key and number of a message, and its offset


@dataclass(frozen=True, slots=True)
class Stored:
    """One transaction, as it is in the file of its bucket."""

    at: float
    segment_id: int
    bucket: int
    position: int
    effects: Sequence[Effect]


class Sink:
    """All consumers of the subscription use the same folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def position(self, segment_id: int, bucket: int) -> int | None:
        """The offset behind what is stored of a bucket; None where nothing is."""
        path = self._path(segment_id, bucket)
        if not path.exists():
            return None
        last = list(_transactions(path.read_bytes()))[-1:]
        return int(last[0]["position"]) if last else None

    def store(
        self, place: tuple[int, int], begun: int | None, position: int, effects: Sequence[Effect]
    ) -> bool:
        """Stores one transaction of a bucket; False if another one came after `begun`."""
        with self._path(*place).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self.position(*place) != begun:
                return False
            line = {"at": time.monotonic(), "position": position, "effects": effects}
            # Begins with an end, in case that the line before was cut off.
            file.write(b"\n" + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return True

    def read(self) -> Iterator[Stored]:
        """All transactions, bucket by bucket."""
        for path in sorted(self._folder.iterdir()):
            segment_id, bucket = map(int, path.stem.split("-"))
            for line in _transactions(path.read_bytes()):
                effects = [(str(key), int(number), int(at)) for key, number, at in line["effects"]]
                yield Stored(line["at"], segment_id, bucket, line["position"], effects)

    def _path(self, segment_id: int, bucket: int) -> Path:
        return self._folder / f"{segment_id}-{bucket}.transactions"


def _transactions(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue
