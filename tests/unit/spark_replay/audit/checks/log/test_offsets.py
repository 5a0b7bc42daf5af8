"""Completeness of the log: what is missing, what comes twice, and where the two sources differ."""

from __future__ import annotations

import pytest

from anabranch.spark_replay.audit.checks.log.offsets import Chunk, check_offsets


def told(*chunks: Chunk, first: int = 10, end: int = 30) -> list[tuple[int, str]]:
    tally = check_offsets(chunks, first, end)
    assert tally.examined == end - first
    assert tally.violated == len(tally.witnesses)
    return [(found.offset, found.text) for found in tally.witnesses]


def whole(first: int, last: int) -> Chunk:
    return Chunk(first, last, last - first + 1, last - first + 1)


def test_chunks_that_follow_each_other_in_any_order_are_complete() -> None:
    assert told(whole(20, 29), whole(10, 19)) == []


def test_an_empty_log_lacks_nothing() -> None:
    tally = check_offsets([], 30, 30)
    assert (tally.examined, tally.violated) == (0, 0)
    assert check_offsets([], 30, 10).examined == 0


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((whole(11, 29),), [(10, "offset 10 is missing")]),
        ((whole(12, 29),), [(10, "offsets 10 to 11 are missing")]),
        ((whole(10, 28),), [(29, "offset 29 is missing")]),
        ((whole(10, 19), whole(22, 29)), [(20, "offsets 20 to 21 are missing")]),
        ((whole(10, 20), whole(20, 29)), [(20, "offset 20 comes a second time")]),
        ((Chunk(10, 29, 18, 18),), [(10, "2 records are missing between offsets 10 and 29")]),
        ((Chunk(10, 29, 23, 20),), [(10, "3 records come twice between offsets 10 and 29")]),
        ((), [(10, "offsets 10 to 29 are missing")]),
    ],
)
def test_what_is_missing_or_comes_twice_is_told_with_its_place(
    chunks: tuple[Chunk, ...], expected: list[tuple[int, str]]
) -> None:
    assert told(*chunks) == expected


def test_stretches_that_two_sources_hold_differently_are_told() -> None:
    tally = check_offsets([whole(0, 9)], 0, 10, [(3, 4), (7, 7)])
    assert [(found.offset, found.text) for found in tally.witnesses] == [
        (3, "archive and WAL hold different records between offsets 3 and 4"),
        (7, "archive and WAL hold different records between offsets 7 and 7"),
    ]
