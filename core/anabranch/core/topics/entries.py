"""The hashes that an entry holds: a relay must know them to forward it as it is (PIP-486).

An entry is stored as one unit: a message, or a batch of one bucket's messages. Its *effective*
bounds are the smallest and largest hash of its messages, both inclusive, tighter than those of its
bucket. A relay may copy it to a topic with another layout. The bounds tell the relay whether it
still belongs to one bucket there, or must be taken apart. The bounds travel as headers, in the
clear beside encrypted bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16, bucket_of, segment_hash

Headers = Sequence[tuple[str, bytes | None]]

SEGMENT_MIN: Final = "anabranch-segment-hash-min"
SEGMENT_MAX: Final = "anabranch-segment-hash-max"
ENTRY_MIN: Final = "anabranch-entry-hash-min"  # entry_hash_min of PIP-486
ENTRY_MAX: Final = "anabranch-entry-hash-max"
_DIGITS_MAX: Final = len(str(RING16 - 1))
BOUNDS_HEADERS: Final = (SEGMENT_MIN, SEGMENT_MAX, ENTRY_MIN, ENTRY_MAX)


class EntryBounds(msgspec.Struct, frozen=True):
    """Smallest and largest of both halves of the messages' hashes, 0 to 65535, inclusive.

    `segment_*`: the bounds of the half that chooses the segment; `entry_*`: those of the bucket's
    half.
    """

    segment_min: int
    segment_max: int
    entry_min: int
    entry_max: int


def bounds_of(positions: Iterable[int]) -> EntryBounds:
    """The effective bounds of messages at these positions (`hashing.hash32`).

    Raises InvalidInputError when there is none.
    """
    found = list(positions)
    if not found:
        raise InvalidInputError("an entry without messages has no bounds")
    high = [segment_hash(each) for each in found]
    low = [each & (RING16 - 1) for each in found]
    return EntryBounds(min(high), max(high), min(low), max(low))


def place_of(bounds: EntryBounds, layout: SegmentLayout) -> tuple[int, int] | None:
    """The active segment and the bucket that hold the whole entry.

    None when it lies across an edge of this layout, so that its messages must be sent one by one.
    """
    part = layout.find_active_segment(bounds.segment_min)
    if bounds.segment_max not in part:
        return None
    bucket = bucket_of(bounds.entry_min, part.buckets)
    return (
        (part.segment_id, bucket) if bucket_of(bounds.entry_max, part.buckets) == bucket else None
    )


def bounds_headers(bounds: EntryBounds) -> list[tuple[str, bytes]]:
    """The headers that carry the bounds: decimal numbers."""
    return [
        (SEGMENT_MIN, b"%d" % bounds.segment_min),
        (SEGMENT_MAX, b"%d" % bounds.segment_max),
        (ENTRY_MIN, b"%d" % bounds.entry_min),
        (ENTRY_MAX, b"%d" % bounds.entry_max),
    ]


def bounds_in(headers: Headers | None) -> EntryBounds | None:
    """The bounds that headers carry; None without them.

    Raises InvalidInputError for headers that are no bounds.
    """
    given = dict(headers or ())
    texts = [given.get(name) for name in BOUNDS_HEADERS]
    if texts == [None] * 4:
        return None
    bounds = EntryBounds(*map(_number, texts))
    halves = (bounds.segment_min, bounds.segment_max), (bounds.entry_min, bounds.entry_max)
    if not all(0 <= low <= high < RING16 for low, high in halves):
        raise InvalidInputError(
            f"the headers {SEGMENT_MIN}, {SEGMENT_MAX}, {ENTRY_MIN} and {ENTRY_MAX} must be whole "
            f"numbers up to {RING16 - 1}, each minimum at most its maximum: {texts}"
        )
    return bounds


def _number(text: bytes | None) -> int:
    """-1 for a text that is no number, or has more digits than any bound."""
    return int(text) if text is not None and text.isdigit() and len(text) <= _DIGITS_MAX else -1
