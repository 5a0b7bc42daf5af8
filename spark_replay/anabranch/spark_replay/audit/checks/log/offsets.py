"""Completeness: archive and WAL, read as one log, hold every offset once, and agree where both do.

The WAL is written outside transactions, so Kafka leaves no holes in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from anabranch.spark_replay.audit.tally import CheckTally


class Chunk(msgspec.Struct, frozen=True):
    """The records of one stretch of offsets."""

    first: int  # the lowest offset found
    last: int
    count: int
    distinct: int


def check_offsets(
    chunks: Iterable[Chunk],
    first_offset: int,
    next_offset: int,
    disagreements: Iterable[tuple[int, int]] = (),
) -> CheckTally:
    """Checks the offsets.
    `disagreements` are stretches, both ends inclusive, in which archive and WAL differ.
    """
    tally = CheckTally(examined=max(0, next_offset - first_offset))
    expected = first_offset
    for chunk in sorted(chunks, key=lambda chunk: chunk.first):
        if chunk.first > expected:
            tally.violate(expected, _missing(expected, chunk.first - 1))
        elif chunk.first < expected:
            tally.violate(chunk.first, f"offset {chunk.first} comes a second time")
        holes = chunk.last - chunk.first + 1 - chunk.distinct
        if holes:
            tally.violate(
                chunk.first,
                f"{holes} records are missing between offsets {chunk.first} and {chunk.last}",
            )
        if chunk.count != chunk.distinct:
            tally.violate(
                chunk.first,
                f"{chunk.count - chunk.distinct} records come twice between offsets "
                f"{chunk.first} and {chunk.last}",
            )
        expected = chunk.last + 1
    if expected < next_offset:
        tally.violate(expected, _missing(expected, next_offset - 1))
    for first, last in disagreements:
        tally.violate(
            first, f"archive and WAL hold different records between offsets {first} and {last}"
        )
    return tally


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"offset {first} is missing"
    return f"offsets {first} to {last} are missing"
