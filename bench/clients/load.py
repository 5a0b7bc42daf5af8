"""What the figures of clients send and measure with: keys, values that carry their time, a pace."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from array import array
from collections.abc import Iterator, Sequence

from anabranch.client import Producer

BATCH = 1_000  # messages of one call, where one takes several
BATCH_MAX = 10_000  # messages that a consumer is given at once
VALUE = b"x" * 100
KEYS = [f"key-{number}".encode() for number in range(10_000)]

_STAMP = struct.Struct("<Id")
_PAD = VALUE[_STAMP.size :]
_WARM_SHARE = 0.2
_TICK_S = 0.0005
_PAUSE_S = 0.001


def stamp(number: int) -> bytes:
    """A value of the usual size that says which message it is, and when it was made."""
    return _STAMP.pack(number, time.perf_counter()) + _PAD


def stamped(value: bytes) -> tuple[int, float]:
    """What `stamp` wrote."""
    number, at = _STAMP.unpack_from(value)
    return number, at


def due_times(count: int, rate: float) -> Iterator[int]:
    """Numbers up to `count`, each when it is due; blocks in between."""
    began = time.perf_counter()
    for number in range(count):
        ahead = began + number / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        yield number


class Pace:
    """How fast messages come, from the first batch, which is not counted, to the last one."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._counted = 0
        self._began = 0.0
        self._ended = 0.0

    @property
    def is_over(self) -> bool:
        return self._left <= 0

    def took(self, values: Sequence[bytes]) -> None:
        """A batch has come."""
        self._ended = time.perf_counter()
        self._left -= len(values)
        if self._began:
            self._counted += len(values)
        else:
            self._began = self._ended

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self._counted / (self._ended - self._began)


class Waited:
    """How long each message took; may be told by another thread."""

    def __init__(self, count: int) -> None:
        self.first = threading.Event()
        self._ms = array("d", bytes(8 * count))
        self._left = count

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    def came(self, number: int, sent_at: float) -> None:
        """A message is there. Raises RuntimeError when it was there before."""
        if self._ms[number]:
            raise RuntimeError(f"message {number} came twice")
        self._ms[number] = (time.perf_counter() - sent_at) * 1000
        self._left -= 1
        self.first.set()

    def settled(self) -> list[float]:
        """Milliseconds of all but the first messages. Raises RuntimeError when some are missing."""
        if self._left:
            raise RuntimeError(f"{self._left} of {len(self._ms)} messages did not come")
        return list(self._ms[int(len(self._ms) * _WARM_SHARE) :])


async def keep_sending(producer: Producer) -> None:
    """Stamped messages of all keys in turn, about one each millisecond, until it is cancelled."""
    number = 0
    while True:
        producer.send_nowait(stamp(number), KEYS[number % len(KEYS)])
        number += 1
        await asyncio.sleep(_PAUSE_S)
