"""The checks of the log itself: no offset is missing, and a snapshot is what the fold makes."""

from __future__ import annotations

import pytest

from anabranch.core.entities.session import Session
from anabranch.core.entities.tenant import Tenant
from anabranch.spark_replay.audit.checks.log.offsets import Chunk, check_offsets
from anabranch.spark_replay.audit.checks.log.snapshot import SnapshotCheck
from support.local_audit import told as told_of


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


# --- a snapshot is compared with the fold, key by key, and what differs is told field by field


def tenant(version: int = 1, roles: tuple[str, ...] = ()) -> Tenant:
    return Tenant(version, roles, (), 0, "p")


def test_the_newest_value_of_a_key_counts() -> None:
    check = SnapshotCheck()
    check.row("a", tenant(1))
    check.row("a", tenant(2))
    check.row("b", tenant(1))
    check.row("b", None)
    check.compare(9, {"a": tenant(2)})
    assert (told_of(check.tally), check.tally.examined) == ([], 1)


def test_what_differs_is_named_field_by_field() -> None:
    check = SnapshotCheck()
    check.row("a", tenant(1, ("x",)))
    check.row("c", tenant(3))
    check.row("d", Session(1, True, 1, 2, "p"))
    check.compare(9, {"a": tenant(2, ("y",)), "b": tenant(1), "d": tenant(1)})
    assert told_of(check.tally) == [
        (9, "a: the snapshot's version 1 is 2 by the log; admin_roles ('x',) is ('y',) by the log"),
        (9, f"b: missing in the snapshot; the log makes it {tenant(1)!r}"),
        (9, "d: a Session in the snapshot, a Tenant by log"),
        (9, f"c: the snapshot has it as {tenant(3)!r}; by the log it does not exist"),
    ]
    assert check.tally.examined == 4


def test_a_damaged_value_is_told_once_until_a_later_one_is_sound() -> None:
    check = SnapshotCheck()
    check.row("a", tenant(1))
    check.unreadable("a")
    check.unreadable("b")
    check.row("b", tenant(2))
    check.unreadable("a stranger's")
    check.unreadable("c")
    check.row("c", None)
    check.compare(9, {"a": tenant(1), "b": tenant(1), "c": tenant(1)})
    assert told_of(check.tally) == [
        (9, "a: the snapshot's value is damaged"),
        (9, "b: the snapshot's version 2 is 1 by the log"),
        (9, f"c: missing in the snapshot; the log makes it {tenant(1)!r}"),
    ]


@pytest.mark.parametrize(("length", "cut"), [(500, ""), (501, "...")])
def test_a_value_is_cut_where_it_is_longer_than_may_be(length: int, cut: str) -> None:
    value = tenant(1, ("x" * (length - len(repr(tenant(1, ("",))))),))
    check = SnapshotCheck()
    check.row("a", value)
    check.compare(9, {})
    text = f"a: the snapshot has it as {repr(value)[:500]}{cut}; by the log it does not exist"
    assert told_of(check.tally) == [(9, text)]


def test_snapshots_are_added_up_and_a_tombstone_of_nothing_is_nothing() -> None:
    check = SnapshotCheck()
    check.row("gone", None)
    check.row("a", tenant(1))
    check.compare(9, {"a": tenant(1)})
    check.row("b", tenant(1))
    check.compare(9, {"b": tenant(1)})
    assert (told_of(check.tally), check.tally.examined) == ([], 2)
