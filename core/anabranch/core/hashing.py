"""The place of a key: one hash, both halves (docs/topics.md; PIP-486, "The bucket hash").

Murmur3, x86, 32 bit, seed 0, over the key's UTF-8 bytes. The high 16 bits choose the segment, the
low 16 bits the entry bucket inside it, so the two are independent of each other.
"""

from __future__ import annotations

from typing import Final

import mmh3

RING16: Final = 1 << 16  # positions of either half


def hash32(key: str | bytes) -> int:
    """Position of a key, 0 to 2^32 - 1.

    >>> hex(hash32("key"))
    '0xe29c6a44'
    """
    return mmh3.hash(key, 0, False)


def segment_hash(position: int) -> int:
    """The half that chooses the segment, 0 to 65535."""
    return position >> 16


def bucket_of(position: int, buckets: int) -> int:
    """Returns the index of the bucket that holds the low half; a segment has `buckets` of equal
    width.

    Bucket i starts at floor(i * 65536 / buckets). The index is the number of starts at or below the
    hash, less one.

    >>> [bucket_of(h, 4) for h in (0, 0x3FFF, 0x4000, 0xFFFF)]
    [0, 0, 1, 3]
    """
    return (((position & 0xFFFF) + 1) * buckets - 1) >> 16


def bucket_starts(buckets: int) -> tuple[int, ...]:
    """The inclusive starts of buckets 1 to N - 1, as the layout's JSON and the wire carry them.

    >>> bucket_starts(4)
    (16384, 32768, 49152)
    """
    return tuple(index * RING16 // buckets for index in range(1, buckets))
