"""The back-test's fast path comes to what a node's meters and rules do, asked at every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.autoscale.policy import AutoScalePolicy, fault_of
from anabranch.core.hashing import RING16
from anabranch.spark_replay.backtest.grid import Grid
from anabranch.spark_replay.backtest.model import PolicyReplay, Rules
from anabranch.spark_replay.backtest.spread import Spread, below, shares
from support.backtest_loop import BEGIN_MS, STEP_MS, Loop

# Both sides see the same loads to the last bit: their sums and halves are exact, and a minute's are
# whole messages down to the smallest segment. Some are a quarter apart, or little more.
_LOADS = (0, 64, 128, 160, 192, 512, 640, 1_024, 4_096, 5_120, 10_240, 16_384, 131_072)
_EDGES = ((0, RING16), (0, RING16 // 2, RING16), (0, RING16 // 4, RING16 // 2, RING16))
_POLICIES = st.builds(
    AutoScalePolicy,
    max_segments=st.sampled_from([2, 5, 64]),
    min_segments=st.sampled_from([1, 2]),
    max_dag_depth=st.sampled_from([0, 2, 10]),
    split_cooldown_seconds=st.sampled_from([0.0, 60.0, 90.5]),
    rebucket_cooldown_seconds=st.sampled_from([0.0, 60.0]),
    merge_cooldown_seconds=st.sampled_from([0.0, 100.0, 300.0]),
    merge_window_seconds=st.sampled_from([0.0, 130.0, 300.0]),
    rebucket_down_window_seconds=st.sampled_from([0.0, 200.0, 600.0]),
    entry_bucket_budget=st.sampled_from([4, 64]),
    max_entry_buckets_per_segment=st.sampled_from([1, 2, 8, 1_024]),
    merge_msg_rate_in_threshold=st.sampled_from([0.0, 1_000.0, 9_000.0]),
).filter(lambda policy: not fault_of(policy))
_RULES = st.builds(
    Rules,
    operation_s=st.sampled_from([0.0, 1.0, 60.0, 150.0]),
    retention_s=st.sampled_from([0.0, 500.0, 604_800.0]),
    sealed_retention_s=st.sampled_from([0.0, 130.0, 700.0]),
    flap_s=st.sampled_from([0.0, 600.0]),
    segments=st.sampled_from([1, 2, 4]),
)


@st.composite
def _loads(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[list[float]]], list[int]]:
    """Edges; by step the four rates of each piece; consumers by step. Both hold for some steps."""
    edges = draw(st.sampled_from(_EDGES))
    steps: list[list[list[float]]] = []
    consumers: list[int] = []
    for _ in range(draw(st.integers(1, 12))):
        loads = draw(
            st.lists(st.sampled_from(_LOADS), min_size=len(edges) - 1, max_size=len(edges) - 1)
        )
        rates = [[float(load * times) for load in loads] for times in (1, 1024, 2, 2048)]
        count = draw(st.integers(1, 12))
        steps += [rates] * count
        consumers += [draw(st.sampled_from([0, 1, 5, 40]))] * count
    return edges, steps, consumers


def _grid(edges: tuple[int, ...], steps: list[list[list[float]]], consumers: list[int]) -> Grid:
    changes = [
        (at, count) for at, count in enumerate(consumers) if not at or consumers[at - 1] != count
    ]
    return Grid(BEGIN_MS, STEP_MS, np.array(steps), edges, changes)


@settings(max_examples=150)
@given(_loads(), _POLICIES, _RULES)
def test_a_replay_comes_to_what_meters_and_rules_come_to_step_by_step(
    load: tuple[tuple[int, ...], list[list[list[float]]], list[int]],
    policy: AutoScalePolicy,
    rules: Rules,
) -> None:
    edges, steps, consumers = load
    told = Loop(policy, rules).run(steps, edges, consumers)
    replay = PolicyReplay(
        _grid(edges, steps, consumers), below(Spread(), "", 0), policy, policy, rules
    )
    outcome = replay.run("")
    figures = outcome.figures
    assert [(each.at_ms, each.what, each.reason) for each in outcome.log] == told.log[:200]
    assert sum(figures.actions.values()) == figures.operations == len(told.log)
    assert figures.segment_hours == pytest.approx(sum(told.counts) / 60)
    assert figures.segments_max >= max(told.counts)
    assert figures.over_threshold_s == told.over_s
    assert figures.flaps == told.flaps
    assert figures.blocked_s == dict(told.blocked_s)
    assert figures.evaluations == told.evaluations
    assert figures.worked_out <= len(steps)


@settings(max_examples=60)
@given(_loads(), _POLICIES, _RULES)
def test_whatever_is_done_the_segments_take_the_whole_load(
    load: tuple[tuple[int, ...], list[list[list[float]]], list[int]],
    policy: AutoScalePolicy,
    rules: Rules,
) -> None:
    edges, steps, consumers = load
    grid = _grid(edges, steps, consumers)
    spread = below(Spread(exponent=1.1, keys=50) if len(edges) == 2 else Spread(), "t", 3)
    replay = PolicyReplay(grid, spread, policy, policy, rules)
    replay.run("")
    parts = replay.layout.active
    weights = sum(shares(spread, edges, part.start, part.end) for part in parts)
    assert weights == pytest.approx(np.ones(len(edges) - 1))
    taken = (grid.rates @ np.asarray(weights)).tolist()
    assert np.array(taken) == pytest.approx(grid.rates.sum(axis=2))
