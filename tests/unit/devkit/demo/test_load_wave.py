"""The load of the demo that rises and falls."""

from __future__ import annotations

from itertools import pairwise

from anabranch.core.autoscale.policy import AutoScalePolicy, checked_override, fault_of, resolve
from anabranch.devkit.demo import load_wave
from anabranch.devkit.demo.trace import load


def test_the_tide_rises_above_the_policys_thresholds_and_falls_below_them() -> None:
    rates = [load_wave.rate_at(step / 100) for step in range(101)]
    policy = resolve(AutoScalePolicy(), {}, checked_override(load_wave.POLICY)).policy
    assert fault_of(policy) == ""
    assert max(rates) > policy.split_msg_rate_in_threshold * 4
    assert rates[0] == rates[-1] < policy.merge_msg_rate_in_threshold


def test_the_events_keep_their_order_and_go_round_as_often_as_the_tide_needs() -> None:
    events = load(75.0)
    found = load_wave.wave_events(events, 75.0)
    assert [each.topic for each in found[: len(events)]] == [each.topic for each in events]
    assert found[len(events)].topic == events[0].topic
    assert all(one.at_s <= other.at_s for one, other in pairwise(found))
    assert abs(sum(0.42 <= each.at_s / 75 < 0.48 for each in found) - 300 * 0.06 * 75) < 30


def test_it_has_turned_when_it_scaled_out_and_in_again() -> None:
    wave = load_wave.LoadWave("a/b/c", [], lambda _: None)
    assert not wave.has_turned
    for segments, turned in ((1, False), (2, False), (4, False), (3, True)):
        wave.samples.append(load_wave.Sample(len(wave.samples), 1.0, segments, 1))
        assert wave.has_turned is turned
    wave.decisions = {
        load_wave.ScalingDecision(2, "merge 1 2", "cold"),
        load_wave.ScalingDecision(1, "split 0", "hot"),
        load_wave.ScalingDecision(3, "none", ""),
    }
    assert [each.action for each in wave.acted] == ["split 0", "merge 1 2"]
