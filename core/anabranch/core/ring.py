"""The 32-bit hash ring of a namespace and the bundles that tile it (PIP-192).

A range is `[lower, upper)`, except that the last one of a ring also holds its upper end,
0xffffffff. The names `0x00000000_0x40000000` have always been read so.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise, starmap

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.names import Namespace

RING_END = 0xFFFF_FFFF
BUNDLES_MAX = 65_536  # in one namespace at its creation: one log record creates them all
CUTS_MAX = 1_024  # in one split of a bundle: one log record names all parts

_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")


class HashRange(msgspec.Struct, frozen=True, order=True):
    """A non-empty part of the ring."""

    lower: int
    upper: int

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    def __contains__(self, hash32: int) -> bool:
        return self.lower <= hash32 < self.upper or hash32 == self.upper == RING_END

    @property
    def splittable(self) -> bool:
        """Tells whether a name can express both halves as ranges."""
        return self.upper - self.lower >= 2

    def cut_at(self, positions: Sequence[int]) -> tuple[HashRange, ...]:
        """The ranges between ascending cuts. Raises InvalidInputError.

        >>> [str(r) for r in HashRange(0, 0x40000000).cut_at([0x20000000])]
        ['0x00000000_0x20000000', '0x20000000_0x40000000']
        """
        edges = [self.lower, *positions, self.upper]
        if edges != sorted(set(edges)):
            raise InvalidInputError(
                f"bundle {self} cannot be cut at {[hex(p) for p in positions]}: cuts must ascend "
                "and lie strictly inside the bundle"
            )
        return tuple(starmap(HashRange, pairwise(edges)))

    def halves(self) -> tuple[HashRange, ...]:
        """Both halves, cut at floor((lower + upper) / 2). Raises InvalidInputError."""
        if not self.splittable:
            raise InvalidInputError(
                f"bundle {self} cannot be split: it holds a single hash; its keys can only be "
                "spread by renaming topics"
            )
        return self.cut_at([(self.lower + self.upper) // 2])


def parse_range(text: str) -> HashRange:
    """Reads `0x%08x_0x%08x`. Raises InvalidInputError."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InvalidInputError(
            f"bundle range {text!r} is not of the form 0x00000000_0x40000000 "
            "(8 lower-case hex digits)"
        )
    lower, upper = int(match[1], 16), int(match[2], 16)
    if lower >= upper:
        raise InvalidInputError(
            f"bundle range {text!r} is empty: its lower end must be the smaller"
        )
    return HashRange(lower, upper)


def even_ranges(count: int) -> tuple[HashRange, ...]:
    """`count` ranges of equal size that tile the ring, as namespace creation makes them.

    Raises InvalidInputError.

    >>> [str(r) for r in even_ranges(2)]
    ['0x00000000_0x80000000', '0x80000000_0xffffffff']
    """
    if not 1 <= count <= BUNDLES_MAX:
        raise InvalidInputError(
            f"Invalid number of bundles {count}: give 1 to {BUNDLES_MAX}; they can be split later"
        )
    size = (RING_END + 1) // count
    return HashRange(0, RING_END).cut_at([size * i for i in range(1, count)])


def tiles(ranges: Iterable[HashRange], whole: HashRange) -> bool:
    """Tells whether the ranges, in any order, cover `whole` exactly once."""
    edge = whole.lower
    for part in sorted(ranges):
        if part.lower != edge or part.upper <= part.lower:
            return False
        edge = part.upper
    return edge == whole.upper


FULL_RING = HashRange(0, RING_END)


def topic_hash(topic: str) -> int:
    """Position of a full topic name on the ring: CRC-32, the hash Pulsar's bundles use."""
    return zlib.crc32(topic.encode())


def bundle_name(namespace: Namespace, part: HashRange) -> str:
    """The name of a bundle's service unit: `tenant/ns/0x00000000_0x40000000`."""
    return f"{namespace}/{part}"


def after_bundles(namespace: str, hash32: int) -> str:
    """Sorts right after the names of the namespace's bundles that begin at or before the hash."""
    return f"{namespace}/0x{hash32:08x}_0y"  # "y" follows the "x" of a bundle's end


def split_bundle_name(unit: str) -> tuple[Namespace, HashRange]:
    """The inverse of `bundle_name`. Raises InvalidInputError."""
    home, _, part = unit.rpartition("/")
    return Namespace(home), parse_range(part)
