"""The back-test's fast path comes to what it comes to when all is looked at at every step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.core.autoscale.load import changed
from anabranch.core.autoscale.policy import AutoScalePolicy, fault_of
from anabranch.core.hashing import RING16
from anabranch.spark_replay.backtest.grid import REPORT_CHANGE, Grid
from anabranch.spark_replay.backtest.model import PolicyReplay, Rules
from anabranch.spark_replay.backtest.spread import Spread, below, shares

BEGIN_MS, STEP_MS = 1_700_000_000_000, 60_000
# Both sides see the same loads to the last bit: their sums and halves are exact. Some are a quarter
# apart, or little more.
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


class EachStep(PolicyReplay):
    """Skips no step: looks at every load, and asks the rules, at the end of each."""

    def _evaluate(self, step: int) -> None:
        self._holds_until_ms = -math.inf
        super()._evaluate(step)

    def _observe(self, step: int, now_ms: int) -> bool:
        rates = self._grid.rates[self._grid.run_of(step)]
        for segment_id, part in self._parts.items():
            a, b, c, d = (rates @ part.weights).tolist()
            known, now = self.load.get(segment_id), (a, b, c, d)
            negligible = self._policy.negligible
            is_news = known is None or changed(known.rates, now, REPORT_CHANGE, negligible)
            part.due = step if is_news else self._grid.steps
        return super()._observe(step, now_ms)

    def _next(self, step: int) -> int:
        return step + 1


@given(_loads(), _POLICIES, _RULES)
def test_a_replay_comes_to_what_it_comes_to_when_no_step_is_skipped(
    load: tuple[tuple[int, ...], list[list[list[float]]], list[int]],
    policy: AutoScalePolicy,
    rules: Rules,
) -> None:
    grid, even = _grid(*load), below(Spread(), "", 0)
    found = PolicyReplay(grid, even, policy, policy, rules).run("")
    told = EachStep(grid, even, policy, policy, rules).run("")
    assert (found.log, found.layouts) == (told.log, told.layouts)
    assert replace(found.figures, worked_out=0) == replace(told.figures, worked_out=0)
    assert found.figures.worked_out <= told.figures.worked_out


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
    weights = sum(shares(spread, edges, part.start, part.end) for part in replay.layout.active)
    assert weights == pytest.approx(np.ones(len(edges) - 1))
    taken = (grid.rates @ np.asarray(weights)).tolist()
    assert np.array(taken) == pytest.approx(grid.rates.sum(axis=2))
