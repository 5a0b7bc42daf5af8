"""What a policy does to small loads whose outcome can be told by hand."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.hashing import RING16
from anabranch.spark_replay.backtest.grid import Grid
from anabranch.spark_replay.backtest.instant import Instant
from anabranch.spark_replay.backtest.model import PolicyReplay, Rules
from anabranch.spark_replay.backtest.outcome import PolicyFigures, PolicyOutcome
from anabranch.spark_replay.backtest.spread import Spread, below, parse_spread

_DEFAULT = AutoScalePolicy()
_NO_RULES = Rules()


def _run(
    minutes: list[tuple[int, float]],
    policy: AutoScalePolicy = _DEFAULT,
    rules: Rules = _NO_RULES,
    *,
    yardstick: AutoScalePolicy = _DEFAULT,
    spread: Spread | None = None,
    pieces: int = 1,
    consumers: tuple[tuple[int, int], ...] = (),
) -> PolicyOutcome:
    """For so many minutes so many messages a second come in, to each piece of the ring alike."""
    rates = [[[rate / pieces] * pieces] * 4 for count, rate in minutes for _ in range(count)]
    edges = range(0, RING16 + 1, RING16 // pieces)
    grid = Grid(0, 60_000, np.array(rates, np.float64), edges, consumers)
    return PolicyReplay(grid, below(spread or Spread(), "t", 0), policy, yardstick, rules).run("p")


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
    assert figures.segments_max == 2
    assert figures.seconds == 600
    assert figures.evaluations == 10


def test_an_operation_takes_effect_after_whole_steps() -> None:
    outcome = _run([(10, 15_000.0)], rules=Rules(operation_s=90))
    assert _told(outcome) == [(3, "split 0", "msgRateIn")]
    assert outcome.figures.over_threshold_s == 180
    assert outcome.figures.evaluations == 8


def test_splits_wait_for_the_cooldown() -> None:
    outcome = _run([(10, 40_001.0)], AutoScalePolicy(split_cooldown_seconds=120))
    assert [minute for minute, _, _ in _told(outcome)] == [1, 3, 5, 7, 9]


def test_segments_are_merged_when_they_were_cold_for_the_window_and_that_undoes_a_split() -> None:
    outcome = _run([(10, 15_000.0), (20, 100.0)])
    # The records that say cold are written at minute 11; the window is five minutes.
    assert _told(outcome) == [(1, "split 0", "msgRateIn"), (16, "merge 1 2", "cold")]
    assert outcome.log[1].undoes == 15 * 60_000
    assert outcome.figures.flaps == 1
    assert outcome.figures.segment_hours == pytest.approx((1 + 15 * 2 + 14) / 60)


def test_what_is_undone_after_the_window_is_no_flapping() -> None:
    outcome = _run([(10, 15_000.0), (20, 100.0)], rules=Rules(flap_s=899))
    assert (outcome.figures.merges, outcome.figures.flaps) == (1, 0)


def test_a_split_of_what_was_just_merged_is_flapping() -> None:
    policy = AutoScalePolicy(merge_window_seconds=0, merge_cooldown_seconds=0)
    outcome = _run([(5, 100.0), (5, 15_000.0)], policy, Rules(segments=2))
    assert [what for _, what, _ in _told(outcome)] == ["merge 0 1", "split 2"]
    assert outcome.figures.flaps == 1


def test_a_rate_that_moves_by_a_quarter_at_most_does_not_begin_the_window_anew() -> None:
    wavering = [(1, rate) for _ in range(5) for rate in (800.0, 1_000.0)]
    assert _told(_run(wavering, rules=Rules(segments=2))) == [(6, "merge 0 1", "cold")]
    restless = [(1, rate) for _ in range(5) for rate in (800.0, 1_100.0)]
    assert _told(_run(restless, rules=Rules(segments=2))) == []


@pytest.mark.parametrize(("spread", "pieces"), [("uniform", 1), ("hot:0.1", 1), ("uniform", 2)])
def test_a_trickle_that_doubles_each_minute_is_cold_all_the_same(spread: str, pieces: int) -> None:
    trickle = [(1, rate) for _ in range(30) for rate in (10.0, 20.0)]
    four = Rules(segments=4)
    outcome = _run(trickle, rules=four, spread=parse_spread(spread), pieces=pieces)
    assert (outcome.figures.merges, outcome.figures.splits) == (3, 0)
    assert outcome.layouts[-1][1] == 1


def test_time_over_the_first_policys_threshold_is_told_of_each_policy() -> None:
    policy = AutoScalePolicy(split_msg_rate_in_threshold=20_000)
    figures = _run([(10, 15_000.0)], policy).figures
    assert figures.over_threshold_s == 0
    assert figures.over_first_s == 600


def test_what_is_forbidden_is_told_with_how_long_it_was() -> None:
    figures = _run([(4, 100.0), (6, 15_000.0)], AutoScalePolicy(max_segments=1)).figures
    assert figures.operations == 0
    assert figures.blocked_s == {"max_segments": 360.0}
    assert figures.over_threshold_s == 360
    assert figures.worked_out == 2


def test_a_hot_key_is_not_split_at_every_step() -> None:
    outcome = _run([(60, 30_000.0)], spread=Spread(hot=1.0))
    assert outcome.figures.splits <= 7
    assert outcome.figures.over_threshold_s == 3600


def test_consumers_are_given_buckets_while_the_load_is_low() -> None:
    outcome = _run([(10, 50.0)], rules=Rules(consumers=8))
    assert _told(outcome) == [(1, "rebucket 0 to 8", "below-split-rate-floor")]


def test_buckets_stay_for_the_window_after_the_last_consumer_has_left() -> None:
    outcome = _run([(40, 50.0)], consumers=((0, 8), (20, 0)))
    assert _told(outcome) == [
        (1, "rebucket 0 to 8", "below-split-rate-floor"),
        (31, "rebucket 1 to 4", "bucket-surplus"),
    ]


def test_a_topic_begins_with_no_more_buckets_than_its_policy_allows_a_segment() -> None:
    policy = AutoScalePolicy(entry_bucket_budget=64, max_entry_buckets_per_segment=8)
    grid = Grid(0, 60_000, np.zeros((1, 4, 1)), (0, RING16))
    replay = PolicyReplay(grid, below(Spread(), "t", 0), policy, policy, Rules(segments=2))
    assert [part.buckets for part in replay.layout.active] == [8, 8]


def test_consumers_of_a_busy_topic_are_given_segments() -> None:
    outcome = _run([(10, 5_000.0)], consumers=((0, 0), (4, 3)))
    assert [(minute, reason) for minute, _, reason in _told(outcome)] == [
        (5, "consumer-count"),
        (6, "consumer-count"),
    ]


def test_sealed_segments_are_forgotten_and_their_merges_with_them() -> None:
    policy = AutoScalePolicy(
        max_dag_depth=1, merge_window_seconds=0, merge_cooldown_seconds=0, split_cooldown_seconds=0
    )
    waves = [(5, 15_000.0), (5, 100.0)] * 4
    assert _run(waves, policy).figures.merges == 1
    at_once = Rules(retention_s=120, sealed_retention_s=0)
    assert _run(waves, policy, at_once).figures.merges == 4
    kept = Rules(retention_s=120, sealed_retention_s=604_800)  # of a node that keeps them for long
    assert _run(waves, policy, kept).figures.merges == 1


def test_a_policy_that_is_switched_off_does_nothing() -> None:
    figures = _run([(10, 99_000.0)], AutoScalePolicy(enabled=False)).figures
    assert (figures.operations, figures.over_threshold_s) == (0, 600)


def test_totals_are_sums_and_the_most_segments_of_one() -> None:
    one = PolicyFigures(
        seconds=60.0, splits=2, segment_hours=0.5, segments_max=3, actions={"cold": 1, "x": 2}
    )
    two = PolicyFigures(
        seconds=120.0, splits=1, segment_hours=0.25, segments_max=2, blocked_s={"b": 2.5}
    )
    total = PolicyFigures.total([one, two, one])
    assert (total.seconds, total.splits, total.segments_max) == (240.0, 5, 3)
    assert total.actions == {"cold": 2, "x": 4}
    assert total.blocked_s == {"b": 2.5}
    assert total.segments_mean == pytest.approx(1.25 * 3600 / 240)


# --- until when a decision holds ----------------------------------------------------------------


def test_an_instant_notes_the_first_comparison_that_will_come_out_otherwise() -> None:
    now = Instant(1_000)
    assert now.holds_until_ms == float("inf")
    assert now - 400 < 700
    assert now - 900 < 150.5
    assert not now - 400 < 600
    assert now.holds_until_ms == 1_050.5


def test_an_instant_can_be_used_for_nothing_else() -> None:
    with pytest.raises(TypeError):
        Instant(5) < 7  # type: ignore[operator] # noqa: B015
    with pytest.raises(TypeError):
        Instant(5) - 3 >= 7  # type: ignore[operator] # noqa: B015
    with pytest.raises(TypeError):
        Instant(5) + 3  # type: ignore[operator]
