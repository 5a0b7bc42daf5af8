"""Rolling rates: over any samples they are the growth of the counters over the last window."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.autoscale.meter import RollingRates

WINDOW_S = 60.0
# Gaps that are longer than a window's piece, so that every sample counts.
GAPS = st.floats(1.0, 200.0)
GROWTH = st.integers(0, 10_000)
STEPS = st.lists(st.tuples(GAPS, GROWTH), min_size=1, max_size=20)


def _grown(steps: Sequence[tuple[float, int]], first: int) -> list[tuple[float, int]]:
    """The samples after the first one, which is at time 0."""
    times = itertools.accumulate(gap for gap, _ in steps)
    totals = itertools.accumulate((growth for _, growth in steps), initial=first)
    return list(zip(times, itertools.islice(totals, 1, None), strict=True))


def _line(points: Sequence[tuple[float, float]], time: float) -> float:
    """The counter at a time, by a straight line between the samples around it."""
    for (t0, a), (t1, b) in itertools.pairwise(points):
        if t0 <= time <= t1:
            return a + (b - a) * (time - t0) / (t1 - t0)
    raise AssertionError("outside of all samples")


@given(STEPS, st.integers(0, 1_000_000))
def test_rates_are_the_growth_over_the_last_window(
    steps: list[tuple[float, int]], first: int
) -> None:
    rolling = RollingRates(WINDOW_S, 0.0, (first,))
    points = [(0.0, float(first))]
    for time, total in _grown(steps, first):
        rolling.sample(time, (total,))
        points.append((time, float(total)))
        start = max(0.0, time - WINDOW_S)
        expected = (total - _line(points, start)) / (time - start)
        assert rolling.rates()[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(STEPS, st.floats(0.0, WINDOW_S))
def test_what_began_within_the_window_is_rated_over_the_whole_window(
    steps: list[tuple[float, int]], age_s: float
) -> None:
    first = 1_200
    rolling = RollingRates(WINDOW_S, 0.0, (first,), began=-age_s)
    assert rolling.rates()[0] == pytest.approx(first / WINDOW_S)
    for time, total in _grown(steps, first):
        rolling.sample(time, (total,))
        if time <= WINDOW_S - age_s:
            assert rolling.rates()[0] == pytest.approx(total / WINDOW_S)


@given(st.lists(GAPS, min_size=1, max_size=20), st.floats(0.1, 100_000.0))
def test_a_steady_flow_has_one_rate_before_and_after_its_controller_moved(
    gaps: list[float], rate: float
) -> None:
    rolling = RollingRates(WINDOW_S, 0.0, (5_000.0,), then=(5_000.0 - rate * WINDOW_S,))
    for time in itertools.accumulate(gaps):
        assert rolling.rates()[0] == pytest.approx(rate)
        rolling.sample(time, (5_000.0 + rate * time,))
    assert rolling.rates()[0] == pytest.approx(rate)


@given(STEPS, st.sets(st.integers(0, 19)))
def test_a_counter_that_goes_back_counts_nothing_at_that_moment(
    steps: list[tuple[float, int]], resets: set[int]
) -> None:
    rolling = RollingRates(WINDOW_S, 0.0, (50_000,))
    whole = RollingRates(WINDOW_S, 0.0, (50_000,))
    total, seen = 50_000, 50_000
    time = 0.0
    for number, (gap, growth) in enumerate(steps):
        time += gap
        if number in resets:
            seen = 0  # what came meanwhile is not known
        else:
            seen += growth
            total += growth
        rolling.sample(time, (seen,))
        whole.sample(time, (total,))
        assert rolling.rates()[0] == pytest.approx(whole.rates()[0], abs=1e-6)


@given(st.floats(0.001, 0.5), st.integers(100, 2_000))
def test_however_often_is_sampled_few_samples_are_kept(gap: float, count: int) -> None:
    rolling = RollingRates(WINDOW_S, 0.0, (0,))
    for number in range(1, count):
        rolling.sample(number * gap, (number,))
    assert len(rolling._samples) <= 70
    assert rolling.rates()[0] == pytest.approx(1 / gap, rel=0.05)


def test_what_comes_at_the_instant_of_a_sample_counts_with_the_next_one() -> None:
    rolling = RollingRates(WINDOW_S, 0.0, (0,))
    rolling.sample(0.0, (5,))
    assert rolling.rates() == (0.0,)
    rolling.sample(10.0, (20,))
    assert rolling.rates() == (2.0,)


def test_what_rests_has_a_rate_of_exactly_nothing_and_two_samples() -> None:
    rolling = RollingRates(WINDOW_S, 0.0, (0.1,))
    rolling.sample(7.3, (1234.7,))
    for time in (12.1, 33.3, 67.2, 67.31, 90.0, 127.7):
        rolling.sample(time, (1234.7,))
    assert rolling.rates() == (0.0,)
    assert len(rolling._samples) == 2
