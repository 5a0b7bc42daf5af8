"""`Gaps`: the position of a bucket whose messages are not done in their order.

The position is a *watermark*, below which all is done, and a *map* of what is done above it. Both
go into one commit: the watermark as Kafka's offset, the map as text in its metadata. So no message
may start unless the map certainly fits, in whatever order those that run will end (`admits`).

The map also says how many owners have ended without progress (`lives`).

A map names its group, partition and watermark in a checksum. A map of something else, or a damaged
one, is no map, and what was done above the watermark is delivered again.
"""

from __future__ import annotations

import binascii
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, unique
from itertools import chain, pairwise
from typing import Final, NamedTuple

from anabranch.client._consumer.assignment import Partition
from anabranch.client._consumer.lives import Lives
from anabranch.core.subscriptions.known_positions import MAP
from anabranch.wire.varint import varint

Run = tuple[int, int]  # offsets that are done: the first one, and the exclusive end

BYTES_MAX: Final = 3_000  # of runs or bits; 4 in 3 as text, it fits into Kafka's 4,096 characters
SPAN_MAX: Final = 8 * BYTES_MAX  # offsets whose bits always fit
GAP_MAX: Final = 1_000_000  # offsets between the watermark and what may start
_RUN_BYTES: Final = 6  # two numbers of 3 bytes, which GAP_MAX makes the most
_CHECK_BYTES: Final = 4
_ONE: Final = ord("1")


@unique
class _Kind(IntEnum):
    """The forms of a map; the numbers are stored, never reused."""

    RUNS = 0  # lengths, undone and done in turn, from the watermark on
    BITS = 1  # one for each offset from the watermark on, 1 for done; the lowest bit first


class Gaps:
    """The done, running and read messages of one bucket. Offsets; ends are exclusive.

    `watermark`: below it all is done. `starts` and `ends`: of the runs that are done above it, in
    order and apart from each other. `read_end`: the end of what was taken to be worked on.
    `version` grows with what is done; `saved` is the version that is committed. `bytes_max` bounds
    the runs or bits of its map.
    """

    __slots__ = (
        "_reached",
        "bytes_max",
        "ends",
        "is_free",
        "lives",
        "read_end",
        "running",
        "saved",
        "saving",
        "span_end",
        "starts",
        "version",
        "watermark",
    )

    def __init__(
        self, watermark: int, runs: Iterable[Run] = (), lives: Lives | None = None
    ) -> None:
        self.begin_life(Lives() if lives is None else lives)
        self.bytes_max = BYTES_MAX
        self.watermark = watermark
        self.read_end = watermark
        self.span_end = watermark
        self.running: set[int] = set()
        self.version = self.saved = self.saving = 0
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._reached = watermark
        for start, end in runs:
            self._insert(start, end)
        self.version = 0

    @property
    def runs(self) -> Iterator[Run]:
        """The runs that are done above the watermark, in order."""
        return zip(self.starts, self.ends, strict=True)

    @property
    def is_saved(self) -> bool:
        """Tells whether all that is done is committed."""
        return self.version == self.saved

    def is_known(self, offset: int) -> bool:
        """Tells whether a message is done already, or runs."""
        if offset < self.watermark or offset in self.running:
            return True
        place = bisect_right(self.starts, offset) - 1
        return place >= 0 and offset < self.ends[place]

    def admits(self, start: int, offset: int) -> bool:
        """Tells whether the map fits, however those that run and this one end.

        `start`: where the part of the bucket begins that ends with the message. What begins at the
        watermark adds nothing when it ends, so that something can always start.
        """
        if start <= self.watermark:
            return True
        span = max(self.span_end, offset + 1) - self.watermark
        if span <= 8 * self.bytes_max:
            return True
        return span <= GAP_MAX and self._fits(len(self.running) + 1)

    def _fits(self, more: int) -> bool:
        return _RUN_BYTES * (len(self.starts) + more) <= self.bytes_max

    def begin_life(self, lives: Lives) -> None:
        """Notes what is known of former owners. `is_free`: this one need tell nothing more."""
        self.lives, self.is_free = lives, False

    def is_told(self, offset: int) -> bool:
        """Tells whether it is committed what has to be before that message begins; if not, it is to
        be committed now.
        """
        if self.lives.must_tell(offset):
            self.version += 1
            self.lives.told_at = self.version
        self.is_free = not self.waits and not self.lives.is_careful
        return not self.waits

    def name_nobody(self) -> None:
        """Notes that the suspect runs no more, which is to be committed before anything begins."""
        self.lives.suspect = None
        self.version += 1
        self.lives.told_at = self.version

    @property
    def waits(self) -> bool:
        """True while a message waits for a commit to begin."""
        return self.saved < self.lives.told_at

    def leave(self) -> None:
        """Notes that the bucket is given up in good order, which the next owner is to know."""
        if self.lives.said:
            self.version += 1
        self.lives.end()

    def take(self, offset: int) -> int:
        """Notes that a message was read. Returns where its part of the bucket begins.

        Kafka has no message between the one before and this one: those offsets end with it. What
        runs there was read before, and Kafka has removed it since: it ends with its handler.
        """
        start = min(self.read_end, offset)
        if start < min(offset, self.span_end):
            for running in sorted(each for each in self.running if start <= each < offset):
                self._add(start, running)
                start = running + 1
        self.read_end = max(self.read_end, offset + 1)
        return start

    def skip(self, start: int, offset: int) -> None:
        """Notes that a message was taken that is known, with the part that begins at `start`."""
        self._add(start, offset + (offset not in self.running))

    def start(self, offset: int) -> None:
        self.running.add(offset)
        self.span_end = max(self.span_end, offset + 1)

    def finish(self, start: int, offset: int) -> None:
        """Notes that a message is done, and the part of the bucket that begins at `start`."""
        self.running.discard(offset)
        self._add(start, offset + 1)
        self._pass_reached()

    def give_up(self, offset: int) -> None:
        """Notes that a message runs no more, and is not done."""
        self.running.discard(offset)
        self._pass_reached()

    def reach(self, offset: int) -> None:
        """Notes that Kafka has no message from what was read up to here."""
        self._reached = max(self._reached, offset)
        self._pass_reached()

    def rewind(self) -> int:
        """Notes that it is read once more. Returns the offset to read from."""
        self.read_end = self._reached = self.watermark
        return self.watermark

    def unread(self, start: int) -> None:
        """Notes that what was read from there on, and neither runs nor is done, is read again."""
        self.read_end = self._reached = start

    def _add(self, start: int, end: int) -> None:
        watermark = self.watermark
        self._insert(start, end)
        if self.watermark > watermark:
            self.lives.progress()

    def _insert(self, start: int, end: int) -> None:
        start = max(start, self.watermark)
        if start >= end:
            return
        self.version += 1
        self.span_end = max(self.span_end, end)
        first = bisect_left(self.ends, start)  # of the runs that it touches
        after = bisect_right(self.starts, end)
        if first < after:
            start, end = min(start, self.starts[first]), max(end, self.ends[after - 1])
        if start == self.watermark:
            self.watermark = end
            del self.starts[first:after], self.ends[first:after]
            self._pass_reached()
        else:
            self.starts[first:after] = [start]
            self.ends[first:after] = [end]

    def _pass_reached(self) -> None:
        """Passes over a tail without messages, once all before it is done."""
        if not self.read_end <= self.watermark < self._reached:
            return
        if not any(self.watermark <= each < self._reached for each in self.running):
            self.read_end = self._reached
            self._add(self.watermark, self._reached)  # with what is done in it


class Done(NamedTuple):
    """The content of a map: runs above the watermark, and what its owner said of lives."""

    runs: list[Run]
    lives: int = 0
    suspect: int | None = None


def written(gaps: Gaps, group: str, partition: Partition) -> str:
    """Encodes the map for a commit of the watermark; "" if there is nothing to say.

    It has the lowest runs that fit, which are all but where Kafka has turned out to take less.
    """
    starts, ends, lives, suspect = gaps.starts, gaps.ends, gaps.lives.said, gaps.lives.suspect
    if not starts and not lives:
        return ""
    kind, data = _encoded(gaps.watermark, starts, ends)
    while len(data) > gaps.bytes_max:
        half = len(starts) // 2
        starts, ends = starts[:half], ends[:half]
        kind, data = _encoded(gaps.watermark, starts, ends)
    after = 0 if suspect is None else max(0, suspect + 1 - gaps.watermark)
    body = bytes((kind,)) + varint(lives) + varint(after) + data
    text = binascii.b2a_base64(body + _check(body, group, partition, gaps.watermark), newline=False)
    return MAP + text.decode()


def _encoded(watermark: int, starts: Sequence[int], ends: Sequence[int]) -> tuple[_Kind, bytes]:
    span = ends[-1] - watermark if ends else 0
    is_dense = 0 < span <= min(SPAN_MAX, 16 * len(ends))  # a run takes two bytes at least
    data = b"" if is_dense else _runs_written(watermark, starts, ends)
    if is_dense or 0 < span <= min(SPAN_MAX, len(data) * 8 - 1):
        return _Kind.BITS, _bits_written(watermark, starts, ends)
    return _Kind.RUNS, data


def read(text: str, group: str, partition: Partition, watermark: int, end: int) -> Done | None:
    """Decodes a map; None if it is not one of this commit, or reaches beyond `end`."""
    try:
        data = binascii.a2b_base64(text.removeprefix(MAP), strict_mode=True)
        body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not text.startswith(MAP) or check != _check(body, group, partition, watermark):
            return None
        decode = {_Kind.RUNS: _runs_read, _Kind.BITS: _bits_read}[_Kind(body[0])]
        lives, at = _number(body, 1)
        after, at = _number(body, at)
        runs = decode(watermark, body[at:])
    except (ValueError, IndexError):
        return None
    if runs and runs[-1][1] > end:
        return None
    return Done(runs, lives, watermark + after - 1 if after else None)


def _check(body: bytes, group: str, partition: Partition, watermark: int) -> bytes:
    about = "\n".join((group, partition[0], str(partition[1]), str(watermark), ""))
    return zlib.crc32(about.encode() + body).to_bytes(_CHECK_BYTES, "big")


def _runs_written(watermark: int, starts: Sequence[int], ends: Sequence[int]) -> bytes:
    places = [watermark, *chain.from_iterable(zip(starts, ends, strict=True))]
    return b"".join(varint(b - a) for a, b in pairwise(places))


def _runs_read(watermark: int, data: bytes) -> list[Run]:
    """Raises ValueError, IndexError."""
    at, places, place = 0, [], watermark
    while at < len(data):
        length, at = _number(data, at)
        if not length:
            raise ValueError("an empty run")
        place += length
        places.append(place)
    if len(places) % 2:
        raise ValueError("half a run")
    return list(zip(places[::2], places[1::2], strict=True))


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Decodes the varint that begins there, and tells where it ends. Raises IndexError."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at


def _bits_written(watermark: int, starts: Sequence[int], ends: Sequence[int]) -> bytes:
    """Writes a bit for each offset: the parity of the edges of runs up to there."""
    top = ends[-1]
    edges = bytearray(b"0") * (top - watermark + 1)
    for edge in chain(starts, ends):
        edges[top - edge] = _ONE
    span, shift, bits = top - watermark, 1, int(edges, 2)
    while shift <= span:  # each step doubles the number of edges that a bit counts
        bits ^= bits << shift
        shift *= 2
    return (bits & ((1 << span) - 1)).to_bytes((span + 7) // 8, "little")


def _bits_read(watermark: int, data: bytes) -> list[Run]:
    digits = f"0{int.from_bytes(data, 'little'):b}0"[::-1]
    edges = [at for at, (one, next_one) in enumerate(pairwise(digits)) if one != next_one]
    return [(watermark + a, watermark + b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
