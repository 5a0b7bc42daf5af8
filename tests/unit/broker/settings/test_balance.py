"""The settings that core declares: names, bounds, defaults, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from anabranch.broker.settings import Settings, SettingsError, load_settings
from anabranch.broker.settings.environment import variable_of
from anabranch.broker.settings.fields import Changes
from anabranch.core.autoscale import policy
from anabranch.core.balance import settings as balance
from anabranch.core.balance.settings import BalanceSettings


def test_what_is_given_reaches_the_decisions_and_else_their_own_defaults_do() -> None:
    assert load_settings(None, {}, {}).balance == BalanceSettings()
    given = {
        "loadBalancerCPUResourceWeight": "0.5",
        "loadBalanceSheddingDelayInSeconds": "3m",
        "loadBalancerSheddingExcludedNamespaces": "a/b, c/d",
        "defaultNamespaceBundleSplitAlgorithm": "flow_or_qps_equally_divide",
        "loadBalancerSheddingIntervalMinutes": "0.05",
    }
    found = load_settings(None, {}, given).balance
    assert (found.cpu_resource_weight, found.shedding_delay_in_seconds) == (0.5, 180.0)
    assert found.shedding_excluded_namespaces == ("a/b", "c/d")
    assert found.default_namespace_bundle_split_algorithm.value == "flow_or_qps_equally_divide"
    assert found.shedding_interval_minutes == 0.05


@pytest.mark.parametrize(
    ("struct", "name_of"),
    [(BalanceSettings, balance.setting_name), (policy.AutoScalePolicy, policy.setting_name)],
)
def test_what_is_beyond_a_bound_that_core_declares_is_refused_by_name(
    struct: type[msgspec.Struct], name_of: Callable[[str], str]
) -> None:
    for field in msgspec.structs.fields(struct):
        for bound, beyond in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)):
            edge = getattr(get_args(field.type)[1], bound)
            if edge is not None:
                with pytest.raises(SettingsError, match=rf"{name_of(field.name)} \(flag\) is"):
                    load_settings(None, {}, {name_of(field.name): edge + beyond})


def test_what_nodes_read_once_is_not_overridden_while_they_run() -> None:
    fields = Settings.fields
    assert fields["loadBalancerOverrideBrokerNicSpeedGbps"].changes is Changes.AT_START
    assert fields["loadBalancerEnabled"].changes is Changes.AT_RUN_TIME


def test_the_environment_takes_words_of_capitals_for_one() -> None:
    cpu, ttl = "loadBalancerCPUResourceWeight", "loadBalancerBrokerLoadDataTTLInSeconds"
    assert variable_of(cpu) == "ANABRANCH_LOAD_BALANCER_CPU_RESOURCE_WEIGHT"
    assert variable_of(ttl) == "ANABRANCH_LOAD_BALANCER_BROKER_LOAD_DATA_TTL_IN_SECONDS"
    for name in (cpu, ttl):
        found = load_settings(None, {variable_of(name): "2500"}, {})
        assert found == load_settings(None, {}, {name: "2500"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loadBalancerBrokerLoadDataTTLInSeconds": 60}, "loadBalancerBrokerLoadDataTTLInSeconds"),
        (
            {"loadBalancerReportUpdateMinIntervalMillis": 1_000_000},
            "loadBalancerReportUpdateMinIntervalMillis",
        ),
        ({"defaultNamespaceBundleSplitAlgorithm": "halves"}, "range_equally_divide"),
        ({"defaultNamespaceBundleSplitAlgorithm": "specified_positions_divide"}, "range_equally"),
    ],
)
def test_settings_at_odds_are_refused_by_their_name(given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {}, given)
    assert len(refused.value.problems) == 1
    assert words in refused.value.problems[0]
