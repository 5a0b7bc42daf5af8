"""The demo's story: a load and a policy that show in seconds a topic that splits and merges."""

from __future__ import annotations

from anabranch.broker.settings import load_settings
from anabranch.core.autoscale.policy import AutoScalePolicy, checked_override, fault_of, resolve
from anabranch.devkit.demo.story import HIGH_RATE, LOW_RATE, POLICY, SETTINGS
from anabranch.devkit.demo.traffic import load_keys


def test_the_load_rises_above_the_policy_s_thresholds_and_falls_below_them() -> None:
    policy = resolve(AutoScalePolicy(), {}, checked_override(POLICY)).policy
    assert fault_of(policy) == ""
    assert policy.split_msg_rate_in_threshold * policy.max_segments < HIGH_RATE
    assert policy.merge_msg_rate_in_threshold > LOW_RATE


def test_nodes_take_the_settings() -> None:
    load_settings(None, {}, dict(each.split("=", 1) for each in SETTINGS))


def test_the_trace_has_many_projects_some_of_them_often() -> None:
    keys = load_keys()
    assert len(keys) == 6_000
    assert len({*keys}) > 100
    assert max(keys.count(key) for key in {*keys}) > 100
