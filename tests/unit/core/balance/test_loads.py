"""Loads of brokers and bundles: what a measurement makes of them, and what is reported, when."""

from __future__ import annotations

import math

import msgspec
import pytest
from msgspec.structs import replace

from anabranch.core.balance.broker_load import (
    FRESH,
    BrokerLoadData,
    LoadSample,
    Resources,
    ResourceUsage,
    clear_due,
    report_due,
    updated,
)
from anabranch.core.balance.bundle_load import BundleLoad, rank, top_bundles
from anabranch.core.balance.policies import NO_POLICIES, IsolationPolicy, Policies
from anabranch.core.balance.reports import (
    BrokerReports,
    fault_of,
    is_stale,
)
from anabranch.core.balance.settings import BalanceSettings

NOW_MS = 1_700_000_000_000
SETTINGS = BalanceSettings()
NAN = math.nan


def used(percent: float) -> ResourceUsage:
    return ResourceUsage(percent, 100.0)


# --- a broker's load ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "limit", "percent"),
    [(30.0, 60.0, 50.0), (3.0, 2.0, 150.0), (1.0, 0.0, 0.0), (1.0, -1.0, 0.0), (1.0, NAN, 0.0)],
)
def test_a_resource_s_percentage_has_no_upper_end_and_is_0_without_a_limit(
    usage: float, limit: float, percent: float
) -> None:
    assert ResourceUsage(usage, limit).percent == percent


def test_the_first_measurement_takes_no_history_and_later_ones_do() -> None:
    first = updated(FRESH, LoadSample(cpu=used(40), msg_throughput_in=1_000.0), SETTINGS, NOW_MS)
    assert (first.weighted_max_ema, first.msg_throughput_ema) == (0.4, 1_000.0)
    later = updated(
        first, LoadSample(cpu=used(80), msg_throughput_out=2_000.0), SETTINGS, NOW_MS + 1
    )
    assert later.weighted_max_ema == pytest.approx(0.9 * 0.4 + 0.1 * 0.8)
    assert later.msg_throughput_ema == pytest.approx(0.9 * 1_000 + 0.1 * 2_000)
    assert (later.max_resource_usage, later.updated_at_ms) == (0.8, NOW_MS + 1)


def test_an_average_that_was_spoilt_begins_anew() -> None:
    spoilt = BrokerLoadData(weighted_max_ema=NAN, msg_throughput_ema=math.inf, updated_at_ms=1)
    found = updated(spoilt, LoadSample(cpu=used(50), msg_throughput_in=5.0), SETTINGS, NOW_MS)
    assert (found.weighted_max_ema, found.msg_throughput_ema) == (0.5, 5.0)


REPORTED = BrokerLoadData(
    msg_throughput_in=600.0,
    msg_throughput_out=400.0,
    msg_rate_in=60.0,
    msg_rate_out=40.0,
    bundle_count=100,
    max_resource_usage=0.5,
    updated_at_ms=NOW_MS,
    reported_at_ms=NOW_MS,
)


@pytest.mark.parametrize(
    ("change", "due"),
    [
        ({}, False),
        ({"max_resource_usage": 0.375}, True),
        ({"max_resource_usage": 0.4375}, False),  # 6.25 of 100, though an eighth of what it was
        ({"msg_throughput_in": 700.0}, False),  # just the tenth that is allowed
        ({"msg_throughput_in": 701.0}, True),
        ({"msg_throughput_in": 700.0, "msg_throughput_out": 300.0}, False),  # the sum counts
        ({"msg_rate_out": 29.0}, True),
        ({"bundle_count": 89}, True),
        ({"bundle_count": 110}, False),
        ({"msg_rate_in": NAN}, False),
    ],
)
def test_a_load_is_reported_when_it_has_changed_by_more_than_the_threshold(
    change: dict[str, float], due: bool
) -> None:
    now = replace(REPORTED, **change)
    assert report_due(now, REPORTED, SETTINGS, NOW_MS) is due
    assert report_due(now, REPORTED, SETTINGS, NOW_MS, force=True)


def test_the_first_of_anything_is_reported_and_nothing_is_no_change() -> None:
    idle = BrokerLoadData(max_resource_usage=0.0, reported_at_ms=NOW_MS)
    assert not report_due(idle, idle, SETTINGS, NOW_MS)
    assert report_due(replace(idle, msg_rate_in=0.1), idle, SETTINGS, NOW_MS)


def test_a_load_is_reported_after_the_longest_interval_in_any_case() -> None:
    after_ms = 15 * 60_000
    assert not report_due(REPORTED, REPORTED, SETTINGS, NOW_MS + after_ms)
    assert report_due(REPORTED, REPORTED, SETTINGS, NOW_MS + after_ms + 1)


def test_what_a_hand_over_has_made_wrong_is_cleared_once_and_not_again_soon() -> None:
    reports = BrokerReports(BalanceSettings())

    def load(percent: float, at_ms: int) -> float:
        reports.measured(Resources(*[used(percent)] * 5), {}, at_ms)
        return round(reports.load.weighted_max_ema, 2)

    reports.changed_hands()
    assert [load(90.0, 10**6), load(10.0, 2 * 10**6)] == [0.9, 0.82]
    reports.changed_hands()
    assert [load(50.0, 3 * 10**6), load(10.0, 3 * 10**6 + 1)] == [0.5, 0.46]
    reports.changed_hands()
    assert load(10.0, 3 * 10**6 + 2) == 0.42


def test_a_load_is_cleared_every_10_s_at_most_and_out_of_date_after_its_time_to_live() -> None:
    assert [clear_due(NOW_MS, NOW_MS + later) for later in (9_999, 10_000)] == [False, True]
    found = [is_stale(REPORTED, SETTINGS, NOW_MS + late) for late in (1_800_000, 1_800_001)]
    assert found == [False, True]


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (REPORTED, ""),
        (replace(REPORTED, updated_at_ms=NOW_MS + 60_000), ""),
        (replace(REPORTED, updated_at_ms=NOW_MS + 60_001), "60001 ms ahead"),
        (replace(REPORTED, weighted_max_ema=NAN), "weighted_max_ema"),
        (replace(REPORTED, msg_rate_in=-1.0), "msg_rate_in"),
        (replace(REPORTED, msg_rate_in=1e15), ""),
        (replace(REPORTED, msg_rate_in=1.1e15), "msg_rate_in"),
        (replace(REPORTED, bundle_count=-1), "bundle_count"),
        (replace(REPORTED, cpu=ResourceUsage(math.inf, 1.0)), "cpu"),
    ],
)
def test_a_load_that_cannot_be_is_refused_and_told_why(load: BrokerLoadData, said: str) -> None:
    fault = fault_of(load, NOW_MS)
    assert said in fault
    assert bool(said) is bool(fault)


# --- bundles' loads -----------------------------------------------------------------------------

RANGE = "0x00000000_0x40000000"


def top(
    loads: dict[str, BundleLoad], policies: Policies = NO_POLICIES, **set_to: object
) -> list[str]:
    settings = msgspec.structs.replace(SETTINGS, **set_to)
    found = top_bundles(
        {f"{name}/{RANGE}": load for name, load in loads.items()}, settings, policies, 7
    )
    assert found.updated_at_ms == 7
    return [name.removesuffix(f"/{RANGE}") for name, _ in found.bundles]


def busy(bytes_in: float = 1e6, bytes_out: float = 0.0, rate: float = 0.0) -> BundleLoad:
    return BundleLoad(msg_throughput_in=bytes_in, msg_throughput_out=bytes_out, msg_rate_in=rate)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (busy(149_999.0, rate=1e6), busy(150_000.0)),
        (BundleLoad(msg_throughput_in=1.0, topics=499), BundleLoad(topics=500)),
        (BundleLoad(producers=300, consumers=199), BundleLoad(producers=300, consumers=200)),
    ],
)
def test_bundles_are_compared_by_steps_one_kind_of_load_after_the_other(
    less: BundleLoad, more: BundleLoad
) -> None:
    assert rank(less) < rank(more)


def test_bundles_that_nobody_may_move_are_not_reported() -> None:
    loads = {
        "t/idle": busy(0.0),
        "pulsar/system": busy(),
        "sla-monitor/b1:8080": busy(),
        "t/excluded": busy(),
        "t/isolated": busy(),
        "t/grouped": busy(),
        "t/blank": busy(),
        "t/spoilt": busy(NAN),
        "t/free": busy(),
    }
    policies = Policies(
        isolation={"p": IsolationPolicy(("t/iso.*",), (".*",))},
        groups={"t/grouped": "g", "t/blank": " "},
    )
    excluded = ("t/excluded",)
    found = top(loads, policies, shedding_excluded_namespaces=excluded)
    assert found == ["t/blank", "t/free"]
    found = top(
        loads,
        policies,
        shedding_excluded_namespaces=excluded,
        shedding_bundles_with_policies_enabled=True,
    )
    assert found == ["t/blank", "t/free", "t/grouped", "t/isolated"]
