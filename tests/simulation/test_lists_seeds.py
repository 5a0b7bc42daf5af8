"""Lists of topics and settings that change, under faults, for a fixed set of seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.run import simulate

SEEDS = 100
SEEDS_PER_TEST = 20

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_lists_end_as_the_log_has_them_and_no_memory_is_lost(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        report = simulate(seed, lists=True)
        if report.violation:
            pytest.fail(report.explain(), pytrace=False)


def test_a_seed_repeats_its_run_exactly() -> None:
    for seed in (5, 6):
        assert simulate(seed, lists=True) == simulate(seed, lists=True)


def test_the_runs_see_what_they_are_made_to_see() -> None:
    """A harness that no longer provokes anything would pass every seed."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        seen.update(simulate(seed, lists=True).seen)
    assert seen["changes"] > 1_000
    assert seen["proxied"] > 200
    assert seen["lists"] > 500
    assert seen["walked"] > 100
    assert seen["turned_away"] > 3  # only where memory is short and the queue as well
    assert seen["overridden"] > 100
    assert seen["refused"] > 20
    assert seen["mute"] > 10
