"""Rows of a load trace become steps of equal length, or are refused with what is wrong."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16
from anabranch.spark_replay.backtest.grid import Grid, Rows, gridded
from anabranch.spark_replay.backtest.spread import below, parse_spread, shares

_HALF = RING16 // 2


def _rows(
    *rows: tuple[int, float], ranges: tuple[tuple[int, int], ...] = (), consumers: str = ""
) -> Rows:
    """Of (second, messages in); the other rates are two, three and four times that."""
    times = np.array([second * 1000 for second, _ in rows], np.int64)
    rates = np.array([[rate, 2 * rate, 3 * rate, 4 * rate] for _, rate in rows], np.float64)
    starts, ends = np.array(ranges or [(0, RING16 - 1)] * len(rows), np.int64).T
    counts = np.array([int(each) for each in consumers], np.int64) if consumers else None
    return Rows(times, rates, counts, starts, ends)


def _steps(grid: Grid) -> list[float]:
    """Messages in, by step."""
    return [float(grid.rates[grid.run_of(step), 0].sum()) for step in range(grid.steps)]


def test_a_row_holds_until_the_next_and_the_last_as_long_as_the_one_before() -> None:
    grid = gridded(_rows((0, 10.0), (120, 30.0), (300, 5.0)), 60_000)
    assert _steps(grid) == [10, 10, 30, 30, 30, 5, 5, 5]
    assert (grid.begin_ms, grid.end_ms) == (0, 480_000)
    assert grid.runs == 3


def test_a_step_with_several_rows_has_their_mean_over_time() -> None:
    grid = gridded(_rows((0, 10.0), (15, 50.0), (30, 0.0), (60, 100.0), (120, 100.0)), 60_000)
    assert _steps(grid) == [15, 100, 100]
    assert grid.rates[0, :, 0].tolist() == [15, 30, 45, 60]


def test_the_mean_over_steps_is_the_mean_over_rows() -> None:
    rows = _rows(*((7 * at, float(at * at % 13)) for at in range(60)))
    grid = gridded(rows, 60_000)
    assert sum(_steps(grid)) * 60 == pytest.approx(7 * float(rows.rates[:, 0].sum()))
    assert grid.mean() == pytest.approx(float(rows.rates[:, 0].mean()))


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [(0, 10.0), (60, 30.0), (120, 5.0)]
    assert _steps(gridded(_rows(*rows), 60_000)) == _steps(gridded(_rows(*rows[::-1]), 60_000))


def test_rows_of_ranges_make_pieces_of_the_ring() -> None:
    quarter = RING16 // 4
    rows = _rows(
        *((0, 10.0), (0, 20.0), (60, 40.0), (60, 8.0)),
        ranges=(*((0, _HALF - 1), (_HALF, RING16 - 1)), *((0, quarter - 1), (quarter, RING16 - 1))),
    )
    grid = gridded(rows, 60_000)
    assert grid.edges == (0, quarter, _HALF, RING16)
    first, second = grid.rates[:, 0].tolist()
    assert first == [5, 5, 20]
    assert second == pytest.approx([40, 8 / 3, 16 / 3])


def test_consumers_are_told_at_each_change() -> None:
    rows = _rows(*((60 * at, 1.0) for at in range(5)), consumers="11031")
    assert gridded(rows, 60_000).consumers == ((0, 1), (2, 0), (3, 3), (4, 1))


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (_rows((0, 1.0), (60, -1.0)), "a rate is negative at 1970-01-01T00:01:00.000Z"),
        (_rows((0, 1.0), (60, float("nan"))), "a rate is no number at 1970-01-01T00:01"),
        (_rows((60, 1.0), (0, 2.0), (60, 3.0)), "two rows for 1970-01-01T00:01"),
        (_rows((0, 1.0), ranges=((0, RING16),)), "a range of hashes is none"),
        (_rows((0, 1.0), (10**12, 1.0)), "are its times in milliseconds"),
        (Rows(np.zeros(0, np.int64), np.zeros((0, 4))), "no rows"),
        (Rows(np.zeros(1, np.int64), np.ones((1, 4)), np.array([-1])), "consumers are negative"),
    ],
)
def test_what_is_no_load_is_named(rows: Rows, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        gridded(rows, 60_000)


# --- where the load lies ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["uniform", "hot:0.4", "zipf:1.1", "zipf:0.5:7"])
def test_a_spread_is_the_whole_load_once(text: str) -> None:
    lies_below = below(parse_spread(text), "a/b/c", 5)
    assert lies_below[0] == 0
    assert lies_below[-1] == pytest.approx(1)
    assert (np.diff(lies_below) >= 0).all()
    cuts = (0, 1, 17, 40_000, RING16)
    parts = [shares(lies_below, (0, RING16), low, high - 1) for low, high in pairwise(cuts)]
    assert float(np.sum(parts)) == pytest.approx(1)


def test_where_keys_lie_depends_on_topic_and_seed_alone() -> None:
    spread = parse_spread("zipf:1.2:20")
    assert (below(spread, "t", 1) == below(spread, "t", 1)).all()
    assert (below(spread, "t", 1) != below(spread, "t", 2)).any()
    assert (below(spread, "t", 1) != below(spread, "u", 1)).any()


@pytest.mark.parametrize("text", ["", "hot", "hot:2", "zipf:x", "zipf:1:0", "uniform:1", "even"])
def test_an_unknown_spread_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(InvalidInputError, match="there are uniform, hot:SHARE"):
        parse_spread(text)
