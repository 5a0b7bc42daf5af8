"""Auto-scale policies: their faults, how overrides resolve, and the form in which they are kept."""

from __future__ import annotations

import math

import msgspec
import pytest

from anabranch.core.autoscale.policy import (
    FIELDS,
    OVERRIDE_FIELDS,
    AutoScalePolicy,
    checked_override,
    effective_policy,
    fault_of,
    is_override_form,
    override_flat,
    override_of,
    resolve,
)
from anabranch.core.errors import InvalidInputError
from support.autoscale import policy

DEFAULT = AutoScalePolicy()
NUMBERS = [name for name in OVERRIDE_FIELDS if name != "enabled"]


def test_the_names_are_those_of_the_proposal_and_the_defaults_that_are_our_own_hold() -> None:
    """The test of quantities has the proposal's defaults."""
    assert msgspec.to_builtins(DEFAULT).keys() == set(FIELDS)
    assert DEFAULT.rebucket_cooldown_seconds == 60
    assert (DEFAULT.max_entry_buckets_per_segment, DEFAULT.entry_bucket_budget) == (1024, 4)
    assert DEFAULT.split_vs_rebucket_min_msg_rate_in_threshold == 1_000
    assert set(FIELDS) - set(OVERRIDE_FIELDS) == {"maxEntryBucketsPerSegment", "entryBucketBudget"}
    assert fault_of(DEFAULT) == ""


def test_rates_below_a_quarter_of_the_merge_thresholds_are_negligible() -> None:
    assert policy().negligible == (2.5, 25.0, 5.0, 50.0)


# --- faults, in the order in which they are looked for ----------------------------------------

RATES = (
    ("msg_rate_in", "MsgRateIn"),
    ("bytes_rate_in", "BytesRateIn"),
    ("msg_rate_out", "MsgRateOut"),
    ("bytes_rate_out", "BytesRateOut"),
)
FAULTS: list[tuple[dict[str, float], str]] = [
    ({"min_segments": 0}, "minSegments must be >= 1"),
    ({"max_segments": 1, "min_segments": 2}, "maxSegments must be >= minSegments"),
    ({"max_dag_depth": -1}, "maxDagDepth must be >= 0"),
    ({"split_cooldown_seconds": -0.1}, "splitCooldown must not be negative"),
    ({"rebucket_cooldown_seconds": -0.1}, "rebucketCooldown must not be negative"),
    ({"merge_cooldown_seconds": -0.1}, "mergeCooldown must not be negative"),
    ({"merge_window_seconds": -0.1}, "mergeWindow must not be negative"),
    *(
        ({f"split_{rate}_threshold": 0.0}, f"split{word}Threshold must be > 0")
        for rate, word in RATES
    ),
    *(
        ({f"merge_{rate}_threshold": -0.1}, f"merge{word}Threshold must be >= 0")
        for rate, word in RATES
    ),
    (
        {"split_vs_rebucket_min_msg_rate_in_threshold": -0.1},
        "splitVsRebucketMinMsgRateInThreshold must be >= 0",
    ),
    *(
        (
            {f"merge_{rate}_threshold": getattr(policy(), f"split_{rate}_threshold")},
            f"split{word}Threshold must be > merge{word}Threshold (hysteresis)",
        )
        for rate, word in RATES
    ),
]
PREFIX = "Invalid auto split/merge configuration: "


@pytest.mark.parametrize(("change", "text"), FAULTS)
def test_a_policy_that_cannot_work_is_told_in_these_words_also_when_it_is_off(
    change: dict[str, float], text: str
) -> None:
    assert fault_of(policy(enabled=False, **change)) == PREFIX + text


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
        {"merge_msg_rate_in_threshold": 0, "merge_bytes_rate_in_threshold": 0},
        {"split_vs_rebucket_min_msg_rate_in_threshold": 0},
    ],
)
def test_a_policy_at_the_edge_of_what_works_has_no_fault(change: dict[str, float]) -> None:
    assert fault_of(policy(**change)) == ""


# --- which level a field is from --------------------------------------------------------------


def test_levels_are_judged_only_after_they_are_resolved() -> None:
    found = resolve(DEFAULT, {"minSegments": 100}, {})
    assert found.fault == PREFIX + "maxSegments must be >= minSegments"
    assert resolve(DEFAULT, {"minSegments": 100}, {"maxSegments": 200}).fault == ""
    assert resolve(policy(min_segments=0), {}, {"minSegments": 1}).fault == ""


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
@pytest.mark.parametrize("value", ["5", True, math.nan, -math.inf, 1.1e15, [5]])
def test_what_is_no_number_is_refused_where_one_is_wanted(name: str, value: object) -> None:
    word = "a whole number" if "Segments" in name or "Depth" in name else "a number"
    with pytest.raises(InvalidInputError) as caught:
        checked_override({name: value})
    assert str(caught.value) == f"{name} must be {word}, got {value!r}"


def test_a_fraction_is_refused_where_a_whole_number_is_wanted() -> None:
    with pytest.raises(InvalidInputError, match=r"maxDagDepth must be a whole number, got 1\.5"):
        checked_override({"maxDagDepth": 1.5})


@pytest.mark.parametrize("value", [0, "true", []])
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


def test_a_kept_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a value that is none"):
        override_of(("maxSegments", "5 5"))
