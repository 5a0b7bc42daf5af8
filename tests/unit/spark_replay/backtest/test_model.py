"""The outcome of a policy on small loads, where it can be told by hand; and the forms of loads."""

from __future__ import annotations

import pandas as pd
import pytest

from anabranch.broker.settings import load_settings
from anabranch.core.autoscale.decisions import Blocked
from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.backtest import model
from anabranch.spark_replay.backtest.loads import Load, load_of
from anabranch.spark_replay.backtest.model import PolicyFigures, PolicyReplay

_DEFAULT = AutoScalePolicy()


def _load(minutes: list[tuple[int, float]]) -> Load:
    """For so many minutes so many messages a second come in."""
    rates = [(rate, rate, rate, rate) for count, rate in minutes for _ in range(count)]
    return Load(0, 60_000, rates)


def _replay(minutes: list[tuple[int, float]], policy: AutoScalePolicy = _DEFAULT) -> PolicyReplay:
    return PolicyReplay(_load(minutes), policy, _DEFAULT)


def _run(minutes: list[tuple[int, float]], policy: AutoScalePolicy = _DEFAULT) -> PolicyFigures:
    return _replay(minutes, policy).run()


def test_a_load_over_the_threshold_is_split_after_the_minute_in_which_it_was() -> None:
    replay = _replay([(10, 15_000.0)])
    figures = replay.run()
    assert replay.segments == [1, *[2] * 9]
    assert figures.actions == {"msgRateIn": 1}
    assert (figures.splits, figures.merges, figures.rebuckets, figures.flaps) == (1, 0, 0, 0)
    assert figures.over_threshold_s == 60
    assert figures.segment_hours == pytest.approx((1 + 9 * 2) / 60)
    assert figures.segments_mean == pytest.approx(1.9)
    assert (figures.segments_max, figures.seconds) == (2, 600)


@pytest.mark.parametrize(("minutes", "flaps"), [(10, 1), (80, 0)])
def test_segments_are_merged_when_they_were_cold_for_the_window_and_that_may_undo_a_split(
    minutes: int, flaps: int
) -> None:
    replay = _replay([(minutes, 15_000.0), (20, 100.0)])
    figures = replay.run()
    assert (figures.actions, figures.flaps) == ({"cold": 1, "msgRateIn": 1}, flaps)
    # The records that say cold are written a minute later; the window is five minutes.
    assert replay.segments == [1, *[2] * (minutes + 5), *[1] * 14]


@pytest.mark.parametrize(("other", "merged"), [(1_000.0, 1), (1_100.0, 0)])
def test_only_a_rate_that_moves_by_more_than_a_quarter_begins_the_window_anew(
    other: float, merged: int
) -> None:
    wavering = [(1, rate) for _ in range(5) for rate in (800.0, other)]
    assert _run([(1, 15_000.0), *wavering]).merges == merged


def test_a_trickle_that_doubles_each_minute_is_cold_all_the_same() -> None:
    trickle = [(1, rate) for _ in range(30) for rate in (10.0, 20.0)]
    replay = _replay([(4, 25_000.0), *trickle])
    figures = replay.run()
    assert figures.merges == figures.splits > 1
    assert replay.segments[-1] == 1


def test_time_over_the_first_policys_threshold_is_told_of_each_policy() -> None:
    figures = _run([(10, 15_000.0)], AutoScalePolicy(split_msg_rate_in_threshold=20_000))
    assert (figures.splits, figures.over_threshold_s) == (0, 600)


def test_a_topic_begins_as_its_policy_says() -> None:
    policy = AutoScalePolicy(
        entry_bucket_budget=64, max_entry_buckets_per_segment=8, min_segments=2
    )
    assert [part.buckets for part in _replay([(1, 0.0)], policy).layout.active] == [8, 8]


def test_a_policy_that_is_switched_off_does_nothing() -> None:
    figures = _run([(10, 99_000.0)], AutoScalePolicy(enabled=False))
    assert (figures.actions, figures.over_threshold_s) == ({}, 600)


def test_what_stands_in_the_way_is_counted_by_its_time() -> None:
    figures = _run([(10, 15_000.0)], AutoScalePolicy(max_segments=1))
    assert figures.blocked_s == {Blocked.MAX_SEGMENTS.value: 600}
    assert figures.actions == {}


@pytest.mark.parametrize(("minutes", "left"), [(3, [0, 1, 2]), (4, [1, 2])])
def test_a_sealed_segment_is_forgotten_once_its_time_is_over(
    minutes: int, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "SEALED_MS", 130_000)
    replay = _replay([(minutes, 15_000.0)])
    replay.run()
    assert sorted(replay.layout.segments) == left


def test_sealed_segments_are_kept_as_on_a_node_where_nothing_else_is_said() -> None:
    node = load_settings(None, {}, {"advertisedAddress": "b1"})
    assert node.scalable_topic_retention_seconds * 1000 == model.SEALED_MS


@pytest.mark.parametrize(("rates", "mean"), [([1.0] * 10 + [3.0] * 20, 7), ([0.0] * 30, 0)])
def test_rates_are_scaled_to_a_mean(rates: list[float], mean: float) -> None:
    scaled = _load([(1, rate) for rate in rates]).scaled(7)
    assert sum(each[0] for each in scaled.rates) / len(rates) == pytest.approx(mean)


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


# --- rows of a load become steps of equal length, or are refused with what is wrong ---------------


def _frame(*rows: tuple[float, float]) -> pd.DataFrame:
    """Of (second, messages in); the other rates are two, three and four times that."""
    names = ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
    rates = {name: [at * rate for _, rate in rows] for at, name in enumerate(names, start=1)}
    return pd.DataFrame({"time_ms": [second * 1000 for second, _ in rows], **rates})


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        pytest.param(
            [(120, 30.0), (0, 10.0), (300, 5.0)],
            [10, 10, 30, 30, 30, 5, 5, 5],
            id="a row holds until the next, and the last as long as the one before",
        ),
        pytest.param(
            [(0, 10.0), (15, 50.0), (30, 0.0), (60, 100.0), (120, 0.0)],
            [15, 100, 0],
            id="a step with several rows has their mean over time",
        ),
        pytest.param([(0, 7.0)], [7], id="a single row is a step"),
    ],
)
def test_rows_become_steps(rows: list[tuple[float, float]], steps: list[float]) -> None:
    load = load_of(_frame(*rows), 60_000)
    assert load.rates == [(each, 2 * each, 3 * each, 4 * each) for each in steps]
    assert (load.begin_ms, load.end_ms) == (0, 60_000 * len(steps))


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(0, 1.0), (60, -1.0)], "a rate is negative at 1970-01-01T00:01:00.000Z"),
        ([(0, 1.0), (60, float("nan"))], "a rate is no number at 1970-01-01T00:01"),
        ([(60, 1.0), (0, 2.0), (60, 3.0)], "two rows at 1970-01-01T00:01"),
        ([(0, 1.0), (10**12, 1.0)], "are its times in milliseconds"),
        ([(0, 1.0), (float("nan"), 1.0)], "a time is missing"),
    ],
)
def test_what_is_no_load_is_named(rows: list[tuple[float, float]], what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        load_of(_frame(*rows), 60_000)
