"""An archive that holds the log back without moving is told of, and no other."""

from __future__ import annotations

from anabranch.broker.snapshots.trim_watch import TrimWatch
from anabranch.core.entities.archive import Archive

ARCHIVES = {"a": Archive(1, 0, "h:/a", 0, "p"), "b": Archive(2, 5, "h:/b", 0, "q")}
HOUR = 3_600.0


def told(watch: TrimWatch, now: float, end: int, a: int | None, b: int | None) -> list[str]:
    return [held.archive for held in watch.looked(now, end, ARCHIVES, {"a": a, "b": b})]


def test_only_the_archive_that_does_not_move_is_told_of_and_not_all_the_time() -> None:
    watch = TrimWatch(HOUR)
    assert (told(watch, 0.0, 100, 10, 10), told(watch, HOUR - 1, 200, 10, 150)) == ([], [])
    assert told(watch, HOUR, 200, 10, 150) == ["a"]
    (concern,) = watch.concerns()
    assert "archive a in h:/a" in concern
    assert "from offset 10 on, 190 records" in concern
    assert "--retire a" in concern
    assert told(watch, HOUR + 60, 200, 10, 200) == []
    assert (len(list(watch.concerns())), told(watch, 2 * HOUR, 200, 10, 200)) == (1, ["a"])
    assert told(watch, 2 * HOUR + 1, 200, 200, 200) == []
    assert list(watch.concerns()) == []


def test_a_quiet_log_lets_no_archive_wait() -> None:
    watch = TrimWatch(HOUR)
    assert told(watch, 0.0, 100, 100, 100) == []
    assert told(watch, 9 * HOUR, 101, 100, 100) == []  # it has something to do since just now
    assert told(watch, 10 * HOUR, 101, 100, 101) == ["a"]


def test_an_archive_that_never_said_how_far_it_is_counts_from_its_beginning() -> None:
    watch = TrimWatch(HOUR)
    told(watch, 0.0, 100, None, None)
    assert told(watch, HOUR, 100, None, None) == ["a", "b"]
    assert [(held.next_offset, held.behind) for held in watch.archives()] == [(0, 100), (5, 95)]


def test_what_is_retired_or_another_leaders_is_forgotten() -> None:
    watch = TrimWatch(HOUR)
    told(watch, 0.0, 100, 1, 1)
    watch.looked(2 * HOUR, 100, {"b": ARCHIVES["b"]}, {"a": 1, "b": 1})
    assert [held.archive for held in watch.archives()] == ["b"]
    assert len(list(watch.concerns())) == 1
    watch.forget()
    assert not watch.archives()
    assert not list(watch.concerns())
