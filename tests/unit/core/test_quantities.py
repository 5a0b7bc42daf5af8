"""Numbers with a unit: what PIP-483 writes means what our own names and numbers mean."""

from __future__ import annotations

import pytest

from anabranch.broker.settings import SettingsError, load_settings
from anabranch.core.autoscale.policy import OVERRIDE_FIELDS, AutoScalePolicy, checked_override
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import (
    Quantity,
    durations,
    plain_form,
    quantity_of,
    without_unit,
)

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
        (Quantity.SECONDS, "30s", 30),
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


@pytest.mark.parametrize("text", ["", "s", "30", "-1s", "1e3s", "1 fortnight", "30S", "5%", "٣s"])
def test_what_is_no_duration_is_refused_with_the_units_there_are(text: str) -> None:
    with pytest.raises(InvalidInputError, match="one of ms, s, m, h, d"):
        Quantity.SECONDS.read(text)


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
    assert settings.scalable_topic_merge_window_seconds == 30  # a flag, whichever the name
    assert settings.scalable_topic_retention_seconds == 604_800
    shouted = {"ANABRANCH_SCALABLE_TOPIC_SPLIT_COOLDOWN": "2m"}
    assert load_settings(None, shouted, {}).scalable_topic_split_cooldown_seconds == 120
    monitored = {"loadBalancerServiceUnitStateMonitorInterval": "2m"}
    settings = load_settings(None, {}, monitored)
    assert settings.load_balancer_service_unit_state_monitor_interval_in_seconds == 120
    assert "60 has no unit: write 60s" in problem_of(scalableTopicAutoScaleInterval=60)
    assert "is no duration" in problem_of(scalableTopicAutoScaleInterval="soon")
    assert "is no size" in problem_of(scalableTopicSplitBytesRateInThreshold="50s")
    assert "0.25" not in problem_of(scalableTopicLoadReportRateChangeThreshold="-1%")
    both = {"scalableTopicMergeWindow": "5m", "scalableTopicMergeWindowSeconds": 300}
    assert "is given twice" in problem_of(**both)
    assert "is no setting" in problem_of(scalableTopicMerge="5m")
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


def test_a_duration_says_so_in_its_name() -> None:
    assert durations(["mergeWindowSeconds", "maxSegments"]) == ["mergeWindowSeconds"]
    assert without_unit("mergeWindowSeconds") == "mergeWindow"
    assert without_unit("monitorIntervalInSeconds") == "monitorInterval"


def test_every_duration_and_size_of_a_policy_may_have_its_unit() -> None:
    kinds = {name: quantity_of(name) for name in OVERRIDE_FIELDS}
    assert {name for name, kind in kinds.items() if kind is Quantity.SECONDS} == {
        name for name in OVERRIDE_FIELDS if name.endswith("Seconds")
    }
    assert sum(kind is Quantity.BYTES for kind in kinds.values()) == 4
    assert AutoScalePolicy().merge_window_seconds == Quantity.SECONDS.read("5m")
