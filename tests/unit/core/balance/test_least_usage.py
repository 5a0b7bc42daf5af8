"""Who may take a bundle, and who does."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from anabranch.core.balance import filters
from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.least_usage import ChoiceReason, choose
from anabranch.core.balance.policies import FailureDomain, IsolationPolicy, Policies
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.entities.unit import Move
from support.world import A, B, World

TERMS = filters.Terms("t/n", BalanceSettings(), Policies())


def candidate(name: str, **fields: object) -> filters.Candidate:
    """`b1` is the broker b1:8080."""
    return replace(filters.Candidate(f"{name}:8080", "1.2.3"), **fields)


def candidates(*names: str) -> list[filters.Candidate]:
    return [candidate(name) for name in names]


def loaded(loads: Mapping[str, float]) -> list[filters.Candidate]:
    return [
        candidate(name, load=BrokerLoadData(weighted_max_ema=load)) for name, load in loads.items()
    ]


def kept(found: filters.Filtered) -> str:
    return " ".join(each.broker.removesuffix(":8080") for each in found.kept)


# --- each filter --------------------------------------------------------------------------------


def test_a_broker_with_the_most_topics_that_it_may_have_is_out() -> None:
    offered = [
        candidate("b1", load=BrokerLoadData(topics=49_999)),
        candidate("b2", load=BrokerLoadData(topics=50_000)),
        candidate("b3"),
    ]
    found = filters.filtered(offered, TERMS)
    assert kept(found) == "b1 b3"
    assert found.removed == (("b2:8080", filters.BrokerFilter.MAX_TOPIC_COUNT),)


POLICY = IsolationPolicy(("t/.*",), ("p.*",), ("s.*",), min_limit=2)


def test_without_a_policy_primary_brokers_of_others_and_those_of_another_kind_are_out() -> None:
    offered = [
        candidate("p1"),
        candidate("s1", persistent=False),
        candidate("x1", non_persistent=False),
        filters.Candidate("x2", "1.2.3"),  # no id
    ]
    terms = replace(TERMS, namespace="u/n", policies=Policies(isolation={"one": POLICY}))
    assert kept(filters.filtered(offered, terms)) == "x1"
    assert kept(filters.filtered(offered, replace(terms, persistent=False))) == "s1"


LATEST = replace(TERMS, settings=BalanceSettings(prefer_later_versions=True))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (("2.10.1", "2.10.0", "2.10.1"), "b0 b2"),
        (("2.10.1-SNAPSHOT", "2.10.1"), "b1"),
        (("2.10.2-SNAPSHOT", "2.10.1"), "b0"),
        (("2.10.1", "2.9.9"), "b0"),
        (("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-9"), "b1"),
        (("1.0.0-rc.2", "1.0.0-rc.10"), "b1"),
        (("1.0.0+a", "1.0.0+b", "0.9.9"), "b0 b1"),
    ],
)
def test_where_it_is_wished_for_only_the_latest_version_is_left(
    versions: tuple[str, ...], expected: str
) -> None:
    offered = [candidate(f"b{at}", version=version) for at, version in enumerate(versions)]
    assert kept(filters.filtered(offered, LATEST)) == expected
    assert len(filters.filtered(offered, TERMS).kept) == len(versions)


@pytest.mark.parametrize("version", ["", "1.2", "1.2.3.dev1", "v1.2.3", "1.2.x"])
def test_a_version_that_is_none_fails_the_filter_which_then_removes_nobody(version: str) -> None:
    found = filters.filtered(
        [candidate("b1", version="1.2.2"), candidate("b2", version=version)], LATEST
    )
    assert kept(found) == "b1 b2"
    [(name, why)] = found.failed
    assert name is filters.BrokerFilter.VERSION
    assert f"bad version {version!r}" in why


GROUPED = replace(TERMS, policies=Policies(groups={"t/n": "g"}))


def in_group(**counts: int) -> filters.Terms:
    return replace(GROUPED, in_group={f"{name}:8080": count for name, count in counts.items()})


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, "b1 b2 b3"),
        ({"b1": 1}, "b2 b3"),
        ({"b1": 1, "b2": 2, "b3": 1}, "b1 b3"),
        ({"b1": 2, "b2": 2, "b3": 2}, "b1 b2 b3"),
        ({"elsewhere": 5}, "b1 b2 b3"),
    ],
)
def test_the_brokers_with_the_fewest_bundles_of_the_group_are_left(
    counts: dict[str, int], expected: str
) -> None:
    offered = candidates("b1", "b2", "b3")
    assert kept(filters.filtered(offered, in_group(**counts))) == expected
    ungrouped = replace(in_group(**counts), policies=Policies(groups={"t/n": "  "}))
    assert kept(filters.filtered(offered, ungrouped)) == "b1 b2 b3"


def test_failure_domains_go_before_their_brokers_when_they_are_switched_on() -> None:
    policies = Policies(
        domains={"west": FailureDomain(("b1:8080", "b2:8080"))}, groups={"t/n": "g"}
    )
    terms = replace(in_group(b1=3, b3=1, b4=1), policies=policies)
    offered = candidates("b1", "b2", "b3", "b4")
    assert kept(filters.filtered(offered, terms)) == "b2"
    on = replace(terms, settings=BalanceSettings(failure_domains_enabled=True))
    assert kept(filters.filtered(offered, on)) == "b3 b4", "of no domain, so of one together"
    single = replace(in_group(b1=1), policies=policies, settings=on.settings)
    assert kept(filters.filtered(offered, single)) == "b3 b4"
    assert (
        kept(filters.filtered(offered, replace(on, policies=Policies(groups={"t/n": "g"})))) == "b2"
    )


def test_each_filter_says_whom_it_removed_and_one_that_fails_stops_none() -> None:
    full = BrokerLoadData(topics=50_000)
    offered = [candidate("b1"), candidate("b2", load=full), candidate("b3", version="")]
    terms = replace(in_group(b1=1), settings=BalanceSettings(prefer_later_versions=True))
    found, names = filters.filtered(offered, terms), filters.BrokerFilter
    assert (kept(found), [name for name, _ in found.failed]) == ("b3", [names.VERSION])
    assert found.removed == (
        ("b2:8080", names.MAX_TOPIC_COUNT),
        ("b1:8080", names.ANTI_AFFINITY_GROUP),
    )


def test_no_broker_is_preferred_which_a_policy_bars() -> None:
    """The reference compares groups first, and would leave only the broker that is barred."""
    policies = Policies(isolation={"one": POLICY}, groups={"t/n": "g"})
    terms = replace(in_group(p1=1, p2=1), policies=policies)
    assert kept(filters.filtered(candidates("p1", "p2", "x1"), terms)) == "p1 p2"


def test_bundles_of_a_group_are_counted_by_their_owners() -> None:
    world = World(A, B)
    policies = Policies(groups={"public/default": "G", "other/one": "g"})
    assert filters.owned_in_group(world.replica, policies, "public/default") == {}
    world.must(world.move(Move.ASSIGN, A, broker=A))
    world.must(world.move(Move.OWN, A))
    assert filters.owned_in_group(world.replica, policies, "other/one") == {A: 1}
    assert filters.owned_in_group(world.replica, policies, "third/one") == {}
    world.must(world.move(Move.RELEASE, A, broker=B))
    assert filters.owned_in_group(world.replica, policies, "other/one") == {}, "on its way"


# --- the choice ---------------------------------------------------------------------------------


def chosen(offered: list[filters.Candidate], terms: filters.Terms = TERMS) -> set[str]:
    found = {choose(offered, terms, draw).broker for draw in range(len(offered) or 1)}
    return {broker.removesuffix(":8080") for broker in found}


def test_the_threshold_itself_is_enough() -> None:
    terms = replace(
        TERMS, settings=BalanceSettings(average_resource_usage_difference_threshold_percentage=25.0)
    )
    assert chosen(loaded({"b1": 0.25, "b2": 0.75}), terms) == {"b1"}


def test_without_a_difference_anybody_is_chosen_also_of_unknown_load() -> None:
    offered = [*loaded({"b1": 0.50, "b2": 0.51, "b3": math.nan}), candidate("b4")]
    assert chosen(offered) == {"b1", "b2", "b3", "b4"}
    found = choose(offered, TERMS, 0)
    assert found.reason is ChoiceReason.NO_DIFFERENCE
    assert found.considered[2:] == (("b3:8080", None), ("b4:8080", None))
