"""`SegmentInfo`: one segment of a scalable topic (PIP-468, "SegmentInfo")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum, unique
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16

RING16_END: Final = RING16 - 1
SEGMENTS_MAX: Final = RING16  # in one layout: a segment holds at least one hash
BUCKETS_MAX: Final = 1024  # in one segment (PIP-486, N_max)

_DESCRIPTOR = re.compile(r"([0-9a-f]{4})-([0-9a-f]{4})-(0|[1-9]\d{0,17})", re.ASCII)


@unique
class SegmentState(IntEnum):
    """The state of a segment: ACTIVE ones take messages; the numbers are stored and sent, never
    reused.
    """

    ACTIVE = 0
    SEALED = 1


class SegmentInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One segment: `start` to `end` of the 16-bit ring, both inclusive.

    `buckets`: the number of entry buckets of equal width, which are the partitions of its Kafka
    topic. `sealed_at_epoch`, `sealed_at_ms`: 0 while it is ACTIVE. `end_offsets`: once it is
    SEALED, the first offset that each partition will never have. `topic_id`: that of its Kafka
    topic; "" if Kafka did not tell it.
    """

    segment_id: int
    start: int
    end: int
    state: SegmentState
    parent_ids: tuple[int, ...]
    child_ids: tuple[int, ...]
    created_at_epoch: int
    sealed_at_epoch: int
    created_at_ms: int
    sealed_at_ms: int
    buckets: int
    end_offsets: tuple[int, ...] = ()
    topic_id: str = ""

    @property
    def is_active(self) -> bool:
        return self.state is SegmentState.ACTIVE

    @property
    def size(self) -> int:
        """Returns how many hashes it covers."""
        return self.end - self.start + 1

    @property
    def descriptor(self) -> str:
        """Its name below its topic: `0000-7fff-1`."""
        return f"{self.start:04x}-{self.end:04x}-{self.segment_id}"

    def __contains__(self, hash16: int) -> bool:
        return self.start <= hash16 <= self.end

    def is_adjacent(self, other: SegmentInfo) -> bool:
        """Tells whether one ends just before the other begins."""
        return self.end + 1 == other.start or other.end + 1 == self.start


def new_segment(
    segment_id: int, start: int, end: int, buckets: int, parents: tuple[int, ...] = ()
) -> SegmentInfo:
    """An active segment whose epoch and time are filled in when it enters a layout."""
    active = SegmentState.ACTIVE
    return SegmentInfo(segment_id, start, end, active, parents, (), 0, 0, 0, 0, buckets)


def parse_descriptor(text: str) -> tuple[int, int, int]:
    """Start, end and id of `0000-7fff-1`. Raises InvalidInputError."""
    match = _DESCRIPTOR.fullmatch(text)
    if match is None or int(match[1], 16) > int(match[2], 16):
        raise InvalidInputError(
            f"segment descriptor {text!r} is not of the form hexStart-hexEnd-id, for example "
            "0000-7fff-1"
        )
    return int(match[1], 16), int(match[2], 16), int(match[3])


def tile(parts: Iterable[SegmentInfo], start: int = 0, end: int = RING16_END) -> bool:
    """Tells whether the segments, in any order, cover `start` to `end` exactly once."""
    edge = start
    for part in sorted(parts, key=lambda part: part.start):
        if part.start != edge or part.end < part.start:
            return False
        edge = part.end + 1
    return edge == end + 1
