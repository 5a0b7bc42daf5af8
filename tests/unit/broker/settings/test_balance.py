"""The settings of load balancing: names, defaults, and what contradicts itself."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.broker.settings import SETTING_NAMES, SettingsError, load_settings
from anabranch.broker.settings.environment import variable_of
from anabranch.core.balance.settings import NAMES, BalanceSettings


def test_every_setting_of_the_balancer_is_one_of_the_node_by_the_same_name() -> None:
    assert set(NAMES.values()) <= set(SETTING_NAMES)
    names = {field.encode_name for field in msgspec.structs.fields(BalanceSettings)}
    assert names == set(NAMES.values())


def test_what_is_given_reaches_the_decisions_and_else_their_own_defaults_do() -> None:
    assert load_settings(None, {}, {}).balance_settings() == BalanceSettings()
    given = {
        "loadBalancerCPUResourceWeight": "0.5",
        "loadBalanceSheddingDelayInSeconds": "3m",
        "loadBalancerSheddingExcludedNamespaces": "a/b, c/d",
        "defaultNamespaceBundleSplitAlgorithm": "flow_or_qps_equally_divide",
        "loadBalancerSheddingIntervalMinutes": "0.05",
    }
    found = load_settings(None, {}, given).balance_settings()
    assert (found.cpu_resource_weight, found.shedding_delay_in_seconds) == (0.5, 180.0)
    assert found.shedding_excluded_namespaces == ("a/b", "c/d")
    assert found.default_namespace_bundle_split_algorithm.value == "flow_or_qps_equally_divide"
    assert found.shedding_interval_minutes == 0.05


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
    ],
)
def test_settings_at_odds_are_refused_by_their_name(given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {}, given)
    assert len(refused.value.problems) == 1
    assert words in refused.value.problems[0]
