"""Auto-scale policies: their faults, how overrides resolve, and the form in which they are kept."""

from __future__ import annotations

import math

import msgspec
import pytest

from anabranch.core.autoscale.policy import (
    FIELDS,
    OVERRIDE_FIELDS,
    AutoScalePolicy,
    Level,
    checked_override,
    effective_policy,
    fault_of,
    is_override_form,
    override_flat,
    override_of,
    resolve,
)
from anabranch.core.autoscale.schedule import AutoScaleSettings
from anabranch.core.errors import InvalidInputError
from support.autoscale import policy

DEFAULT = AutoScalePolicy()
NUMBERS = [name for name in OVERRIDE_FIELDS if name != "enabled"]

# PIP-483, "Configuration", and what came later; our own are the last three.
DEFAULTS = {
    "enabled": True,
    "maxSegments": 64,
    "minSegments": 1,
    "maxDagDepth": 10,
    "splitCooldownSeconds": 60,
    "rebucketCooldownSeconds": 60,
    "mergeCooldownSeconds": 300,
    "mergeWindowSeconds": 300,
    "splitMsgRateInThreshold": 10_000,
    "splitBytesRateInThreshold": 50_000_000,
    "splitMsgRateOutThreshold": 50_000,
    "splitBytesRateOutThreshold": 250_000_000,
    "mergeMsgRateInThreshold": 1_000,
    "mergeBytesRateInThreshold": 5_000_000,
    "mergeMsgRateOutThreshold": 5_000,
    "mergeBytesRateOutThreshold": 25_000_000,
    "splitVsRebucketMinMsgRateInThreshold": 1_000,
    "rebucketDownWindowSeconds": 600,
    "maxEntryBucketsPerSegment": 1024,
    "entryBucketBudget": 4,
}


def test_the_defaults_and_names_are_those_of_the_proposal() -> None:
    assert msgspec.to_builtins(DEFAULT) == DEFAULTS
    assert set(FIELDS) == set(DEFAULTS)
    assert set(FIELDS) - set(OVERRIDE_FIELDS) == {"maxEntryBucketsPerSegment", "entryBucketBudget"}
    assert fault_of(DEFAULT) == ""


def test_a_controller_looks_once_a_minute_by_default() -> None:
    assert AutoScaleSettings() == AutoScaleSettings(DEFAULT, interval_s=60.0)


def test_rates_below_a_quarter_of_the_merge_thresholds_are_negligible() -> None:
    assert policy().negligible == (2.5, 25.0, 5.0, 50.0)


def test_a_policy_survives_its_json() -> None:
    given = policy(enabled=False)
    assert msgspec.json.decode(msgspec.json.encode(given), type=AutoScalePolicy) == given


# --- faults, in the order in which they are looked for ----------------------------------------

FAULTS: list[tuple[dict[str, float], str]] = [
    ({"min_segments": 0}, "minSegments must be >= 1"),
    ({"max_segments": 1, "min_segments": 2}, "maxSegments must be >= minSegments"),
    ({"max_dag_depth": -1}, "maxDagDepth must be >= 0"),
    ({"split_cooldown_seconds": -0.1}, "splitCooldown must not be negative"),
    ({"rebucket_cooldown_seconds": -0.1}, "rebucketCooldown must not be negative"),
    ({"merge_cooldown_seconds": -0.1}, "mergeCooldown must not be negative"),
    ({"merge_window_seconds": -0.1}, "mergeWindow must not be negative"),
    ({"rebucket_down_window_seconds": -0.1}, "rebucketDownWindow must not be negative"),
    ({"split_msg_rate_in_threshold": 0}, "splitMsgRateInThreshold must be > 0"),
    ({"split_bytes_rate_in_threshold": 0}, "splitBytesRateInThreshold must be > 0"),
    ({"split_msg_rate_out_threshold": 0}, "splitMsgRateOutThreshold must be > 0"),
    ({"split_bytes_rate_out_threshold": 0}, "splitBytesRateOutThreshold must be > 0"),
    ({"merge_msg_rate_in_threshold": -0.1}, "mergeMsgRateInThreshold must be >= 0"),
    ({"merge_bytes_rate_in_threshold": -0.1}, "mergeBytesRateInThreshold must be >= 0"),
    ({"merge_msg_rate_out_threshold": -0.1}, "mergeMsgRateOutThreshold must be >= 0"),
    ({"merge_bytes_rate_out_threshold": -0.1}, "mergeBytesRateOutThreshold must be >= 0"),
    (
        {"split_vs_rebucket_min_msg_rate_in_threshold": -0.1},
        "splitVsRebucketMinMsgRateInThreshold must be >= 0",
    ),
    ({"max_entry_buckets_per_segment": 0}, "maxEntryBucketsPerSegment must be in [1, 1024]"),
    ({"entry_bucket_budget": 0}, "entryBucketBudget must be >= 1"),
    (
        {"merge_msg_rate_in_threshold": 100},
        "splitMsgRateInThreshold must be > mergeMsgRateInThreshold (hysteresis)",
    ),
    (
        {"merge_bytes_rate_in_threshold": 1_000},
        "splitBytesRateInThreshold must be > mergeBytesRateInThreshold (hysteresis)",
    ),
    (
        {"merge_msg_rate_out_threshold": 200},
        "splitMsgRateOutThreshold must be > mergeMsgRateOutThreshold (hysteresis)",
    ),
    (
        {"merge_bytes_rate_out_threshold": 2_000},
        "splitBytesRateOutThreshold must be > mergeBytesRateOutThreshold (hysteresis)",
    ),
]
PREFIX = "Invalid auto split/merge configuration: "


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(("change", "text"), FAULTS)
def test_a_policy_that_cannot_work_is_told_in_these_words_also_when_it_is_off(
    change: dict[str, float], text: str, enabled: bool
) -> None:
    assert fault_of(policy(enabled=enabled, **change)) == PREFIX + text


@pytest.mark.parametrize("place", range(len(FAULTS) - 1))
def test_the_first_of_two_faults_is_told(place: int) -> None:
    (first, text), (second, _) = FAULTS[place], FAULTS[place + 1]
    assert fault_of(policy(**{**second, **first})) == PREFIX + text


@pytest.mark.parametrize(
    "change",
    [
        {"min_segments": 8, "max_segments": 8},
        {"max_dag_depth": 0},
        {"split_cooldown_seconds": 0, "rebucket_cooldown_seconds": 0},
        {"merge_cooldown_seconds": 0, "merge_window_seconds": 0},
        {"rebucket_down_window_seconds": 0},
        {"split_msg_rate_in_threshold": 10.1},
        {"merge_msg_rate_in_threshold": 0, "merge_bytes_rate_in_threshold": 0},
        {"merge_msg_rate_in_threshold": 99.9},
        {"split_vs_rebucket_min_msg_rate_in_threshold": 0},
        {"max_entry_buckets_per_segment": 1},
        {"max_entry_buckets_per_segment": 1024},
        {"max_entry_buckets_per_segment": 3},
        {"entry_bucket_budget": 1},
    ],
)
def test_a_policy_at_the_edge_of_what_works_has_no_fault(change: dict[str, float]) -> None:
    assert fault_of(policy(**change)) == ""


def test_a_segment_has_no_more_buckets_than_a_layout_allows() -> None:
    assert "in [1, 1024]" in fault_of(policy(max_entry_buckets_per_segment=1025))


# --- which level a field is from --------------------------------------------------------------


def test_without_overrides_the_brokers_policy_holds() -> None:
    found = resolve(DEFAULT, {}, {})
    assert found.policy == DEFAULT
    assert found.fault == ""
    assert set(found.origins.values()) == {Level.BROKER}
    assert list(found.origins) == list(FIELDS)


def test_the_most_specific_level_wins_field_by_field() -> None:
    namespace = {"maxSegments": 32, "mergeWindowSeconds": 120.0, "enabled": False}
    topic = {"maxSegments": 16, "enabled": True}
    found = resolve(DEFAULT, namespace, topic)
    assert found.policy == msgspec.structs.replace(
        DEFAULT, max_segments=16, merge_window_seconds=120.0, enabled=True
    )
    assert found.origins["maxSegments"] is Level.TOPIC
    assert found.origins["enabled"] is Level.TOPIC
    assert found.origins["mergeWindowSeconds"] is Level.NAMESPACE
    assert found.origins["minSegments"] is Level.BROKER


@pytest.mark.parametrize("name", OVERRIDE_FIELDS)
def test_every_field_that_may_be_overridden_is_taken_from_either_level(name: str) -> None:
    value = checked_override({name: False if name == "enabled" else 7})[name]
    for levels, origin in (
        (({name: value}, {}), Level.NAMESPACE),
        (({}, {name: value}), Level.TOPIC),
    ):
        found = resolve(DEFAULT, *levels)
        assert msgspec.to_builtins(found.policy)[name] == value
        assert [each for each, level in found.origins.items() if level is origin] == [name]


def test_an_override_equal_to_the_level_above_still_is_the_origin() -> None:
    assert resolve(DEFAULT, {}, {"maxSegments": 64}).origins["maxSegments"] is Level.TOPIC


def test_levels_are_judged_only_after_they_are_resolved() -> None:
    found = resolve(DEFAULT, {"minSegments": 100}, {})
    assert found.fault == PREFIX + "maxSegments must be >= minSegments"
    assert resolve(DEFAULT, {"minSegments": 100}, {"maxSegments": 200}).fault == ""
    broken = policy(min_segments=0)
    assert resolve(broken, {}, {"minSegments": 1}).fault == ""


def test_the_policy_in_force_is_resolved_from_what_the_log_keeps() -> None:
    found = effective_policy(DEFAULT, ("enabled", "false"), ("maxSegments", "4"))
    assert (found.policy.enabled, found.policy.max_segments) == (False, 4)
    assert found.origins["enabled"] is Level.NAMESPACE


@pytest.mark.parametrize("flat", [("ofALaterRelease", "1"), ("maxSegments", "{")])
def test_what_another_release_has_written_is_a_fault_and_not_an_error(
    flat: tuple[str, ...],
) -> None:
    for levels in ((flat, ()), ((), flat)):
        found = effective_policy(DEFAULT, *levels)
        assert found.policy == DEFAULT
        assert found.fault
        assert set(found.origins) == set(FIELDS)


# --- overrides as they are given --------------------------------------------------------------


def test_an_override_sets_what_it_names_and_a_null_is_nothing() -> None:
    assert checked_override({}) == {}
    given = {"enabled": None, "maxSegments": 5, "splitCooldownSeconds": 1}
    assert checked_override(given) == {"maxSegments": 5, "splitCooldownSeconds": 1.0}


def test_numbers_become_those_of_their_field() -> None:
    found = checked_override({"maxSegments": 5.0, "mergeWindowSeconds": 2})
    assert [type(each) for each in found.values()] == [int, float]
    assert checked_override({"maxSegments": -3}) == {"maxSegments": -3}  # judged when resolved
    assert checked_override({"mergeWindowSeconds": -1e15}) == {"mergeWindowSeconds": -1e15}


@pytest.mark.parametrize(
    "name", ["maxsegments", "", "maxEntryBucketsPerSegment", "entryBucketBudget"]
)
def test_a_field_that_cannot_be_overridden_is_refused_and_those_that_can_are_told(
    name: str,
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        checked_override({name: 1})
    assert str(caught.value) == (
        f"{name!r} is no field of an auto-scale policy; there are " + ", ".join(OVERRIDE_FIELDS)
    )


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", ["5", True, False, math.nan, math.inf, -math.inf, 1.1e15, [5], {"a": 1}]
)
def test_what_is_no_number_is_refused_where_one_is_wanted(name: str, value: object) -> None:
    word = "a whole number" if "Segments" in name or "Depth" in name else "a number"
    with pytest.raises(InvalidInputError) as caught:
        checked_override({name: value})
    assert str(caught.value) == f"{name} must be {word}, got {value!r}"


def test_a_fraction_is_refused_where_a_whole_number_is_wanted() -> None:
    with pytest.raises(InvalidInputError, match=r"maxDagDepth must be a whole number, got 1\.5"):
        checked_override({"maxDagDepth": 1.5})


@pytest.mark.parametrize("value", [0, 1, "true", 1.0, []])
def test_only_true_and_false_switch(value: object) -> None:
    with pytest.raises(InvalidInputError, match="enabled must be true or false"):
        checked_override({"enabled": value})


# --- overrides as the log keeps them ----------------------------------------------------------


def test_the_kept_form_is_pairs_by_name() -> None:
    given = checked_override({"maxSegments": 5, "enabled": False, "mergeWindowSeconds": 0.5})
    flat = override_flat(given)
    assert flat == ("enabled", "false", "maxSegments", "5", "mergeWindowSeconds", "0.5")
    assert is_override_form(flat)
    assert override_of(flat) == given
    assert override_flat({}) == ()
    assert override_of(()) == {}


@pytest.mark.parametrize(
    ("flat", "fits"),
    [
        ((), True),
        (("a", "1"), True),
        (("a", "1", "b", "2"), True),
        (("a",), False),
        (("a", "1", "b"), False),
        (("b", "1", "a", "2"), False),
        (("a", "1", "a", "2"), False),
        (("a", "not json"), True),  # what it means is not asked
    ],
)
def test_the_log_takes_pairs_with_names_in_order(flat: tuple[str, ...], fits: bool) -> None:
    assert is_override_form(flat) is fits


@pytest.mark.parametrize(
    "flat", [("maxSegments", ""), ("maxSegments", "5 5"), ("maxSegments", "'")]
)
def test_a_kept_value_that_is_no_json_is_refused(flat: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError, match="a value that is none"):
        override_of(flat)
