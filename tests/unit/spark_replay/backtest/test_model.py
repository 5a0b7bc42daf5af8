"""What a policy does to small loads whose outcome can be told by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from anabranch.core.autoscale.decisions import Blocked
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.core.hashing import RING16
from anabranch.spark_replay.backtest.grid import Grid, Rows, gridded
from anabranch.spark_replay.backtest.instant import Instant
from anabranch.spark_replay.backtest.model import PolicyReplay, Rules
from anabranch.spark_replay.backtest.outcome import PolicyFigures, PolicyOutcome
from anabranch.spark_replay.backtest.spread import Spread, below, parse_spread, shares

_DEFAULT = AutoScalePolicy()
_NO_RULES = Rules()


def _replay(
    minutes: list[tuple[int, float]],
    policy: AutoScalePolicy = _DEFAULT,
    rules: Rules = _NO_RULES,
    *,
    spread: Spread | None = None,
    pieces: int = 1,
) -> PolicyReplay:
    """For so many minutes so many messages a second come in, to each piece of the ring alike."""
    rates = [[[rate / pieces] * pieces] * 4 for count, rate in minutes for _ in range(count)]
    edges = range(0, RING16 + 1, RING16 // pieces)
    grid = Grid(0, 60_000, np.array(rates, np.float64), edges)
    return PolicyReplay(grid, below(spread or Spread(), "t", 0), policy, _DEFAULT, rules)


def _run(minutes: list[tuple[int, float]], *given: Any, **more: Any) -> PolicyOutcome:
    return _replay(minutes, *given, **more).run("p")


def _told(outcome: PolicyOutcome) -> list[tuple[int, str, str]]:
    """Minute, action, reason."""
    return [(each.at_ms // 60_000, each.what, each.reason) for each in outcome.log]


def test_a_load_over_the_threshold_is_split_after_the_minute_in_which_it_was() -> None:
    outcome = _run([(10, 15_000.0)])
    assert _told(outcome) == [(1, "split 0", "msgRateIn")]
    assert outcome.layouts == [(0, 1), (60_000, 2)]
    figures = outcome.figures
    assert (figures.splits, figures.merges, figures.rebuckets, figures.flaps) == (1, 0, 0, 0)
    assert figures.over_threshold_s == 60
    assert figures.segment_hours == pytest.approx((1 + 9 * 2) / 60)
    assert figures.segments_mean == pytest.approx(1.9)
    assert (figures.segments_max, figures.seconds, figures.evaluations) == (2, 600, 10)


def test_segments_are_merged_when_they_were_cold_for_the_window_and_that_undoes_a_split() -> None:
    outcome = _run([(10, 15_000.0), (20, 100.0)])
    # The records that say cold are written at minute 11; the window is five minutes.
    assert _told(outcome) == [(1, "split 0", "msgRateIn"), (16, "merge 1 2", "cold")]
    assert (outcome.log[1].undoes, outcome.figures.flaps) == (15 * 60_000, 1)
    assert outcome.figures.segment_hours == pytest.approx((1 + 15 * 2 + 14) / 60)


def test_a_rate_that_moves_by_a_quarter_at_most_does_not_begin_the_window_anew() -> None:
    wavering = [(1, rate) for _ in range(5) for rate in (800.0, 1_000.0)]
    assert _told(_run(wavering, rules=Rules(segments=2))) == [(6, "merge 0 1", "cold")]
    restless = [(1, rate) for _ in range(5) for rate in (800.0, 1_100.0)]
    assert _told(_run(restless, rules=Rules(segments=2))) == []


@pytest.mark.parametrize(("spread", "pieces"), [("uniform", 1), ("hot:0.1", 1), ("uniform", 2)])
def test_a_trickle_that_doubles_each_minute_is_cold_all_the_same(spread: str, pieces: int) -> None:
    trickle = [(1, rate) for _ in range(30) for rate in (10.0, 20.0)]
    outcome = _run(trickle, rules=Rules(segments=4), spread=parse_spread(spread), pieces=pieces)
    assert (outcome.figures.merges, outcome.figures.splits) == (3, 0)
    assert outcome.layouts[-1][1] == 1


def test_time_over_the_first_policys_threshold_is_told_of_each_policy() -> None:
    figures = _run([(10, 15_000.0)], AutoScalePolicy(split_msg_rate_in_threshold=20_000)).figures
    assert (figures.over_threshold_s, figures.over_first_s) == (0, 600)


def test_a_hot_key_is_not_split_at_every_step() -> None:
    outcome = _run([(60, 30_000.0)], spread=Spread(hot=1.0))
    assert outcome.figures.splits <= 7
    assert outcome.figures.over_threshold_s == 3600


def test_a_topic_begins_with_no_more_buckets_than_its_policy_allows_a_segment() -> None:
    policy = AutoScalePolicy(entry_bucket_budget=64, max_entry_buckets_per_segment=8)
    replay = _replay([(1, 0.0)], policy, Rules(segments=2))
    assert [part.buckets for part in replay.layout.active] == [8, 8]


def test_a_policy_that_is_switched_off_does_nothing() -> None:
    figures = _run([(10, 99_000.0)], AutoScalePolicy(enabled=False)).figures
    assert (figures.operations, figures.over_threshold_s) == (0, 600)


def test_what_was_decided_takes_effect_after_its_time_and_nothing_is_decided_meanwhile() -> None:
    outcome = _run([(10, 15_000.0)], rules=Rules(operation_s=150.0))
    assert _told(outcome) == [(4, "split 0", "msgRateIn")]
    figures = outcome.figures
    assert (figures.splits, figures.evaluations, figures.over_threshold_s) == (1, 7, 240)


def test_what_stands_in_the_way_is_counted_by_its_time() -> None:
    figures = _run([(10, 15_000.0)], AutoScalePolicy(max_segments=1)).figures
    assert figures.blocked_s == {Blocked.MAX_SEGMENTS.value: 600}
    assert (figures.operations, figures.evaluations) == (0, 10)


@pytest.mark.parametrize(("minutes", "left"), [(3, [0, 1, 2]), (4, [1, 2])])
def test_a_sealed_segment_is_forgotten_once_its_time_is_over(minutes: int, left: list[int]) -> None:
    rules = Rules(retention_s=0.0, sealed_retention_s=130.0)
    replay = _replay([(minutes, 15_000.0)], rules=rules)
    replay.run("p")
    assert sorted(replay.layout.segments) == left


def test_totals_are_sums_and_the_most_segments_of_one() -> None:
    one = PolicyFigures(
        seconds=60.0, splits=2, segment_hours=0.5, segments_max=3, actions={"cold": 1, "x": 2}
    )
    two = PolicyFigures(
        seconds=120.0, splits=1, segment_hours=0.25, segments_max=2, blocked_s={"b": 2.5}
    )
    total = PolicyFigures.total([one, two, one])
    assert (total.seconds, total.splits, total.segments_max) == (240.0, 5, 3)
    assert (total.actions, total.blocked_s) == ({"cold": 2, "x": 4}, {"b": 2.5})
    assert total.segments_mean == pytest.approx(1.25 * 3600 / 240)


# --- until when a decision holds ----------------------------------------------------------------


def test_an_instant_notes_the_first_comparison_that_will_come_out_otherwise() -> None:
    now = Instant(1_000)
    assert now.holds_until_ms == float("inf")
    assert now - 400 < 700
    assert now - 900 < 150.5
    assert not now - 400 < 600
    assert now.holds_until_ms == 1_050.5


# --- rows of a load trace become steps of equal length, or are refused with what is wrong ---------


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
