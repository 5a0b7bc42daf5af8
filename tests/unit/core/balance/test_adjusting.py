"""Thresholds that follow the noise of the load, and what a cycle does by them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from anabranch.core.balance.adjusting import Recorded, shedding_thresholds, split_thresholds
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.cycle import BalanceCycle
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round
from anabranch.core.balance.splitting import OwnerView, SplitRound
from support.rules_view import NOW_MS, view_of
from support.shedder_by_the_rules import RulesBroker

FIXED = BalanceSettings()
ADJUSTED = BalanceSettings(adjusted_thresholds_enabled=True)
BUNDLE = "t/n/0x00000000_0x80000000"


def recorded(flutter: float, rows: Iterable[int] = (0,) * 60, level: float = 0.0) -> Recorded:
    """Of two loads that go up and down by turns, as far from their mean as this."""
    found = Recorded()
    for number, row in enumerate(rows):
        off = flutter * (-1) ** number
        found = found.sampled({"a": level + off, "b": level - off}, row)
    return found


def test_averages_follow_slowly_and_a_move_begins_them_anew() -> None:
    found = Recorded().sampled({"a": 0.0}, 0).sampled({"a": 30.0}, 2)
    assert (found.count, found.rows) == (1, (0, 2))
    assert (found.means["a"], found.variances["a"]) == pytest.approx((1.0, 29.0))
    anew = found.disturbed().sampled({"a": 7.0}, 0)
    assert (anew.count, anew.means) == (1, {"a": 7.0})
    assert anew.variances == found.variances


@pytest.mark.parametrize(
    ("flutter", "target"),
    [(0.0, 0.125), (0.03, 0.125), (0.06, 0.24), (0.1, 0.4), (0.4, 0.5)],
)
def test_the_target_deviation_is_four_times_the_noise_within_its_bounds(
    flutter: float, target: float
) -> None:
    held = shedding_thresholds(ADJUSTED, recorded(flutter))
    assert held.settings.broker_load_target_std == pytest.approx(target, rel=0.15)
    assert f"{held.settings.broker_load_target_std:.3f} in place of 0.25" in held.why


@pytest.mark.parametrize(("row", "hits"), [(0, 2), (1, 2), (2, 3), (3, 4), (5, 6), (9, 6)])
def test_a_reason_must_hold_for_longer_than_any_that_went_away_by_itself(
    row: int, hits: int
) -> None:
    rows = [*[0] * 20, row, *[0] * 20]
    held = shedding_thresholds(ADJUSTED, recorded(0.1, rows))
    assert held.settings.shedding_condition_hit_count_threshold == hits
    split = split_thresholds(ADJUSTED, recorded(0.1, rows))
    assert split.settings.namespace_bundle_split_condition_hit_count_threshold == hits
    later = recorded(0.1, [*rows, *[0] * 60])
    assert shedding_thresholds(ADJUSTED, later).settings == replace(
        ADJUSTED,
        broker_load_target_std=pytest.approx(0.4, rel=0.15),
        shedding_condition_hit_count_threshold=2,
    ), "what lies an hour back is forgotten"


@pytest.mark.parametrize(("flutter", "factor"), [(0.0, 1.0), (50.0, 1.05), (3_000.0, 2.0)])
def test_limits_of_traffic_rise_by_a_tenth_of_the_share_that_flutters(
    flutter: float, factor: float
) -> None:
    held = split_thresholds(ADJUSTED, recorded(flutter, level=100.0)).settings
    assert held.namespace_bundle_max_msg_rate == pytest.approx(30_000 * factor, rel=0.01)
    assert held.namespace_bundle_max_bandwidth_mbytes == pytest.approx(100 * factor, rel=0.01)
    assert held.namespace_bundle_max_topics == 1_000


def test_settings_hold_where_nothing_is_to_be_adjusted_or_too_little_was_seen() -> None:
    for thresholds in (shedding_thresholds, split_thresholds):
        assert thresholds(FIXED, recorded(0.4)).settings == FIXED
        assert thresholds(ADJUSTED, recorded(0.4, (0,) * 10)).why == ""
        assert thresholds(ADJUSTED, recorded(0.4, (0,) * 11)).why


def test_a_move_is_no_noise() -> None:
    still = recorded(0.0)
    moved = still.disturbed().sampled({"a": 0.9, "b": -0.9}, 0)
    assert moved.noise == 0
    assert still.sampled({"a": 0.9, "b": -0.9}, 0).noise > 0.1
    assert recorded(0.1).disturbed().noise == recorded(0.1).noise, "and hides none"


# --- cycles ---------------------------------------------------------------------------------------


def shed(cycle: BalanceCycle, high: float, settings: BalanceSettings = ADJUSTED) -> Round:
    brokers = [
        RulesBroker("a:80", high, 100.0, 100.0, [(f"t/n/{n}", 10.0) for n in range(9)]),
        RulesBroker("b:80", 0.4, 90.0, 90.0, [("t/n/x", 90.0)]),
    ]
    return cycle.shed(view_of(brokers), settings, NOW_MS)


def test_a_noisy_cluster_is_left_alone_where_a_steady_one_is_balanced() -> None:
    steady, noisy = BalanceCycle(), BalanceCycle()
    for number in range(40):
        assert not shed(steady, 0.6).decisions
        assert not shed(noisy, (0.1, 0.8)[number % 2]).decisions
    first, second = ([shed(cycle, 0.7) for _ in range(3)][-1] for cycle in (steady, noisy))
    assert (bool(first.decisions), bool(second.decisions)) == (True, False)
    assert "target deviation 0.125 in place of 0.25" in first.thresholds
    assert "as loads flutter by 0.1" in second.thresholds
    fixed = BalanceCycle()
    rounds = [shed(fixed, 0.6 if number < 40 else 0.7, FIXED) for number in range(44)]
    assert not any(each.decisions or each.thresholds for each in rounds)


def split(cycle: BalanceCycle, rate: float) -> SplitRound:
    load = BundleLoad(topics=2, msg_rate_in=rate, msg_throughput_in=rate * 100)
    view = OwnerView({BUNDLE: load}, lambda _: True, lambda _: 2, (), lambda _: ())
    return cycle.split(view, ADJUSTED)


def test_a_bundle_that_flutters_around_its_limit_is_not_split() -> None:
    cycle = BalanceCycle()
    found = [split(cycle, (25_000, 33_000)[number // 3 % 2]) for number in range(60)]
    assert not any(each.decisions for each in found)
    assert "4 cycles in place of 3, as one went away by itself after 3" in found[20].thresholds
    assert any(split(cycle, 90_000).decisions for _ in range(5)), "one that stays above it is"
