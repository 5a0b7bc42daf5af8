"""Numbers with a unit: what PIP-483 writes means what our own names and numbers mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.broker.settings import SettingsError, load_settings
from anabranch.broker.settings.model import SETTING_NAMES
from anabranch.broker.settings.overrides import RUN_TIME_SETTINGS
from anabranch.broker.settings.overrides import checked_override as override_of
from anabranch.broker.settings.sources import names_of
from anabranch.core.autoscale.policy import checked_override
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import Quantity, measure_of, plain_form
from anabranch.proxy.settings import ProxySettings

# PIP-483, "Configuration", name for name and value for value.
SEED = {
    "scalableTopicAutoScaleEnabled": "true",
    "scalableTopicAutoScaleInterval": "60s",
    "scalableTopicMaxSegments": "64",
    "scalableTopicMinSegments": "1",
    "scalableTopicMaxDagDepth": "10",
    "scalableTopicSplitCooldown": "1m",
    "scalableTopicMergeCooldown": "5m",
    "scalableTopicMergeWindow": "5m",
    "scalableTopicSplitMsgRateInThreshold": "10000",
    "scalableTopicSplitBytesRateInThreshold": "50MB",
    "scalableTopicSplitMsgRateOutThreshold": "50000",
    "scalableTopicSplitBytesRateOutThreshold": "250MB",
    "scalableTopicMergeMsgRateInThreshold": "1000",
    "scalableTopicMergeBytesRateInThreshold": "5MB",
    "scalableTopicMergeMsgRateOutThreshold": "5000",
    "scalableTopicMergeBytesRateOutThreshold": "25MB",
    "scalableTopicLoadReportInterval": "10s",
    "scalableTopicLoadReportRateChangeThreshold": "25%",
}


def test_the_seeds_own_configuration_is_the_default() -> None:
    assert load_settings(None, {}, SEED) == load_settings(None, {}, {})
    environment = {f"ANABRANCH_{name}": value for name, value in SEED.items()}
    assert load_settings(None, environment, {}) == load_settings(None, {}, {})


@pytest.mark.parametrize(
    ("quantity", "text", "number"),
    [
        (Quantity.SECONDS, " 1.5 m ", 90),
        (Quantity.SECONDS, "250ms", 0.25),
        (Quantity.SECONDS, "2h", 7_200),
        (Quantity.SECONDS, "7d", 604_800),
        (Quantity.BYTES, "1B", 1),
        (Quantity.BYTES, "0.5KB", 500),
        (Quantity.BYTES, "3GiB", 3 * 2**30),
        (Quantity.BYTES, "1TB", 10**12),
        (Quantity.SHARE, "7%", 0.07),
    ],
)
def test_a_number_with_its_unit_is_read_exactly(
    quantity: Quantity, text: str, number: float
) -> None:
    assert quantity.read(text) == number


@pytest.mark.parametrize("text", ["", "30", "-1s", "1e3s", "30S", "5%", "٣s"])
def test_what_is_no_duration_is_refused_with_the_units_there_are(text: str) -> None:
    with pytest.raises(InvalidInputError, match="one of ms, s, m, h, d"):
        Quantity.SECONDS.read(text)


# Every setting whose name says a unit, a node's and a proxy's: what 90 of a larger one are.
WITH_UNITS = {
    "archiveStalledSeconds": ("90m", 5_400),
    "brokerShutdownTimeoutMs": ("1m", 60_000),
    "flowOrQpsDifferenceThresholdPercentage": ("7%", 7),
    "loadBalancerHistoryResourcePercentage": ("90%", 0.9),
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": ("1GB", 1_024),
    "loadBalancerOverrideBrokerNicSpeedGbps": ("500Mbps", 0.5),
    "loadBalancerReportUpdateMaxIntervalMinutes": ("90s", 1.5),
    "lookupTimeoutMillis": ("250ms", 250),
    "maxTopicListInFlightHeapMemSizeMB": ("2GiB", 2_048),
    "scalableTopicLoadReportRateChangeThreshold": ("30%", 0.3),
    "scalableTopicSplitBytesRateInThreshold": ("50MB", 50_000_000),
    "scalableTopicUnreadRetentionBytes": ("5GB", 5_000_000_000),
    "tlsCertRefreshCheckDurationSec": ("5m", 300),
}


@pytest.mark.parametrize("name", WITH_UNITS)
def test_a_setting_whose_name_says_a_unit_takes_others(name: str, tmp_path: Path) -> None:
    text, number = WITH_UNITS[name]
    plain = load_settings(None, {}, {name: number})
    assert load_settings(None, {}, {name: text}) == plain
    assert load_settings(None, {f"ANABRANCH_{name}": text}, {}) == plain
    file = tmp_path / "node.toml"
    file.write_text(f'{name} = "{text}"\n')
    assert load_settings(file, {}, {}) == plain


def test_no_other_name_of_a_setting_says_a_unit() -> None:
    endings = {re.findall("[A-Z][a-z]+$|[A-Z]+$|BytesRate", name)[0] for name in WITH_UNITS}
    for name in {*SETTING_NAMES, *names_of(ProxySettings)}:
        ending = re.findall("[A-Z][a-z]+$|[A-Z]+$|BytesRate|$", name)[0]
        is_share = ending == "Threshold" and not name.endswith("RateChangeThreshold")
        assert (measure_of(name) is not None) is (ending in endings and not is_share), name


@pytest.mark.parametrize("name", sorted(WITH_UNITS.keys() & {*RUN_TIME_SETTINGS}))
def test_an_override_of_the_cluster_is_logged_as_a_plain_number(name: str) -> None:
    text, number = WITH_UNITS[name]
    assert override_of(name, text) == (name, f"{number:.15g}")


def test_a_unit_that_is_none_is_refused_with_those_there_are() -> None:
    for name, text, said in (
        ("lookupTimeoutMillis", "5x", "'5x' is no duration: write a number and one of ms, s, m"),
        ("maxTopicListInFlightHeapMemSizeMB", "5s", "'5s' is no size of memory: .* B, KB, MB"),
        ("lookupTimeoutMillis", "1.5ms", "'1.5ms': give an integer from 1"),
        ("lookupTimeoutMillis", "0.0001s", "'0.0001s': give an integer from 1"),
        ("leaseMillis", "5x", "leaseMillis changes when a node starts"),
    ):
        with pytest.raises(InvalidInputError, match=said) as caught:
            override_of(name, text)
        assert name in str(caught.value)
    assert "no duration" in problem_of(leaseMillis="5x")
    assert "leaseMillis" in problem_of(leaseMillis="4000.5ms")


def problem_of(**given: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {}, given)
    (problem,) = caught.value.problems
    return problem


def test_settings_take_either_name_and_tell_what_is_wrong_with_either() -> None:
    settings = load_settings(
        None,
        {"ANABRANCH_scalableTopicMergeWindow": "10m"},
        {"scalableTopicMergeWindowSeconds": 30, "scalableTopicRetentionSeconds": "7d"},
    )
    assert settings.auto_scale_policy.merge_window_seconds == 30  # a flag, whichever the name
    assert settings.scalable_topic_retention_seconds == 604_800
    shouted = {"ANABRANCH_SCALABLE_TOPIC_SPLIT_COOLDOWN": "2m"}
    assert load_settings(None, shouted, {}).auto_scale_policy.split_cooldown_seconds == 120
    settings = load_settings(None, {}, {"loadBalancerServiceUnitStateMonitorInterval": "2m"})
    assert settings.balance.service_unit_state_monitor_interval_in_seconds == 120
    assert "60 has no unit: write 60s" in problem_of(scalableTopicAutoScaleInterval=60)
    assert "is no size" in problem_of(scalableTopicSplitBytesRateInThreshold="50s")
    assert "0.25" not in problem_of(scalableTopicLoadReportRateChangeThreshold="-1%")
    both = {"scalableTopicMergeWindow": "5m", "scalableTopicMergeWindowSeconds": 300}
    assert "is given twice" in problem_of(**both)
    assert "maxSegments" not in problem_of(scalableTopicMaxSegments="64MB")


def test_an_override_takes_units_and_the_names_that_have_none() -> None:
    given = {
        "splitCooldown": "30s",
        "mergeWindowSeconds": "5m",
        "splitBytesRateInThreshold": "1.5MB",
        "mergeCooldown": None,
        "maxSegments": 8,
    }
    assert checked_override(given) == {
        "splitCooldownSeconds": 30.0,
        "mergeWindowSeconds": 300.0,
        "splitBytesRateInThreshold": 1_500_000.0,
        "maxSegments": 8,
    }
    for wrong, said in (
        ({"splitCooldown": 30}, "splitCooldown: 30 has no unit: write 30s"),
        ({"splitCooldown": "1m", "splitCooldownSeconds": 60}, "given twice"),
        ({"maxSegments": "8"}, "must be a whole number"),
        ({"mergeWindowSeconds": "300"}, "must be a number"),
        ({"splitMsgRateInThreshold": "10MB"}, "must be a number"),
        ({"window": "5m"}, "no field of an auto-scale policy"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            checked_override(wrong)


def test_what_is_named_as_it_is_kept_or_is_not_known_stays_as_it_is() -> None:
    both = frozenset({"window", "windowSeconds"})
    assert plain_form("window", "5m", both) == ("window", "5m")
    assert plain_form("fooSeconds", "5m", both) == ("fooSeconds", "5m")
    assert plain_form("fooSeconds", "5m", frozenset({"fooSeconds"})) == ("fooSeconds", 300.0)
