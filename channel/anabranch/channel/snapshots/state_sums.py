"""Cheap sums over a stored state: the number of its keys, and the sum of their rows' checksums.

A state's digest is taken over the meaning of its rows, and decoding a million rows takes seconds.
These sums are taken over the bytes, in loops of C. So a node adds them up over the rows that it
loads, and compares them with the sums that the writer of the snapshot has kept. That finds every
row that is missing, and any damage, but for one in four thousand million. It is no defence against
forgers, who could write the sums as well.

The bytes are those of the newest schemas: an older release's row is encoded again before it counts.
Two releases whose newest schemas differ have sums of another `form`, which say nothing to each
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import starmap
from operator import add
from typing import Final
from zlib import crc32

import msgspec

from anabranch.channel.codec import ENTITY_PREFIXES

FORM: Final = crc32(b"".join(sorted(ENTITY_PREFIXES)))
"""Which schemas the sums of this release are taken over."""


class StateSums(msgspec.Struct, frozen=True):
    """The sums of one state."""

    keys: int = 0
    check: int = 0
    form: int = FORM

    def plus(self, rows: Sequence[tuple[bytes, bytes]]) -> StateSums:
        """Returns the sums with these rows added, in the newest schemas."""
        return StateSums(self.keys + len(rows), self.check + rows_check(rows), self.form)


def row_check(key: bytes, value: bytes) -> int:
    """Returns what one row adds to a state's `check`."""
    return crc32(key + value)


def rows_check(rows: Iterable[tuple[bytes, bytes]]) -> int:
    """Returns what many rows add to a state's `check`."""
    return sum(map(crc32, starmap(add, rows)))
