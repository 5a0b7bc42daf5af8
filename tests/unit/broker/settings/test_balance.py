"""The settings of load balancing: names, defaults, and what contradicts itself."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.broker.settings import SETTING_NAMES, SettingsError, load_settings
from anabranch.broker.settings.environment import variable_of
from anabranch.core.balance.settings import NAMES, BalanceSettings

# As the proposal's post update has them (PIP-192).
PROPOSED = {
    "loadBalancerDebugModeEnabled": "false",
    "loadBalancerBrokerLoadTargetStd": "0.25",
    "loadBalancerSheddingConditionHitCountThreshold": "3",
    "loadBalancerTransferEnabled": "true",
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": "3",
    "loadBalanceSheddingDelayInSeconds": "180",
    "loadBalancerBrokerLoadDataTTLInSeconds": "1800",
    "loadBalancerMaxNumberOfBundlesInBundleLoadReport": "10",
    "loadBalancerSplitIntervalMinutes": "1",
    "loadBalancerMaxNumberOfBundlesToSplitPerCycle": "10",
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": "3",
    "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds": "3600",
    "loadBalancerSheddingBundlesWithPoliciesEnabled": "false",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": "30000",
    "loadBalancerServiceUnitStateMonitorIntervalInSeconds": "60",
}


def test_every_setting_of_the_balancer_is_one_of_the_node_by_the_same_name() -> None:
    assert set(NAMES.values()) <= set(SETTING_NAMES)
    assert set(PROPOSED) <= set(SETTING_NAMES)


def test_the_defaults_are_those_of_the_decisions_and_of_the_proposal() -> None:
    settings = load_settings(None, {}, {})
    assert settings.balance_settings() == BalanceSettings()
    assert load_settings(None, {}, PROPOSED) == settings


def test_what_is_given_reaches_the_decisions() -> None:
    given = {
        "loadBalancerCPUResourceWeight": "0.5",
        "loadBalanceSheddingDelayInSeconds": "3m",
        "loadBalancerSheddingExcludedNamespaces": "a/b, c/d",
        "defaultNamespaceBundleSplitAlgorithm": "flow_or_qps_equally_divide",
        "loadBalancerSheddingIntervalMinutes": "0.05",
    }
    found = load_settings(None, {}, given).balance_settings()
    assert found.cpu_resource_weight == 0.5
    assert found.shedding_delay_in_seconds == 180.0
    assert found.shedding_excluded_namespaces == ("a/b", "c/d")
    assert found.default_namespace_bundle_split_algorithm.value == "flow_or_qps_equally_divide"
    assert found.shedding_interval_minutes == 0.05


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("ANABRANCH_LOAD_BALANCER_CPU_RESOURCE_WEIGHT", "loadBalancerCPUResourceWeight"),
        (
            "ANABRANCH_LOAD_BALANCER_BROKER_LOAD_DATA_TTL_IN_SECONDS",
            "loadBalancerBrokerLoadDataTTLInSeconds",
        ),
    ],
)
def test_the_environment_takes_words_of_capitals_for_one(variable: str, name: str) -> None:
    assert variable_of(name) == variable
    number = "2500"
    assert load_settings(None, {variable: number}, {}) == load_settings(None, {}, {name: number})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loadBalancerBrokerLoadDataTTLInSeconds": 60}, "loadBalancerBrokerLoadDataTTLInSeconds"),
        (
            {"loadBalancerReportUpdateMaxIntervalMinutes": 60},
            "loadBalancerReportUpdateMaxIntervalMinutes",
        ),
        (
            {"loadBalancerReportUpdateMinIntervalMillis": 1_000_000},
            "loadBalancerReportUpdateMinIntervalMillis",
        ),
        (
            {
                "loadBalancerCPUResourceWeight": 0,
                "loadBalancerBandwidthInResourceWeight": 0,
                "loadBalancerBandwidthOutResourceWeight": 0,
            },
            "weights",
        ),
        ({"loadBalancerSheddingExcludedNamespaces": "nonsense"}, "nonsense"),
        ({"loadBalancerBrokerLoadTargetStd": "nan"}, "loadBalancerBrokerLoadTargetStd"),
        ({"loadBalancerHistoryResourcePercentage": 1}, "loadBalancerHistoryResourcePercentage"),
        ({"defaultNamespaceBundleSplitAlgorithm": "halves"}, "range_equally_divide"),
        (
            {
                "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds": 30,
                "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": 60_000,
            },
            "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {}, given)
    assert len(refused.value.problems) == 1
    assert words in refused.value.problems[0]


def test_each_field_of_the_decisions_has_a_setting() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(BalanceSettings)}
    assert names == set(NAMES.values())
