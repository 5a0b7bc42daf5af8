"""The hashes that an entry holds: a relay must know them to forward it as it is (PIP-486).

An entry is stored as one unit. Its bounds are the smallest and largest hash of its messages, both
inclusive, tighter than those of its bucket. A relay may copy it to a topic with another layout. The
bounds tell the relay whether it still belongs to one bucket there, or must be taken apart. They
travel as headers, in the clear beside encrypted bodies.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.hashing import RING16, segment_hash

SEGMENT_MIN: Final = "anabranch-segment-hash-min"
SEGMENT_MAX: Final = "anabranch-segment-hash-max"
ENTRY_MIN: Final = "anabranch-entry-hash-min"  # entry_hash_min of PIP-486
ENTRY_MAX: Final = "anabranch-entry-hash-max"
BOUNDS_HEADERS: Final = (SEGMENT_MIN, SEGMENT_MAX, ENTRY_MIN, ENTRY_MAX)


def bounds_headers(position: int) -> list[tuple[str, bytes]]:
    """The headers of an entry of one message, at that position (`hashing.hash32`): decimal numbers.

    >>> bounds_headers(0x1000_4001)[1:3]
    [('anabranch-segment-hash-max', b'4096'), ('anabranch-entry-hash-min', b'16385')]
    """
    high, low = b"%d" % segment_hash(position), b"%d" % (position & (RING16 - 1))
    return list(zip(BOUNDS_HEADERS, (high, high, low, low), strict=True))
