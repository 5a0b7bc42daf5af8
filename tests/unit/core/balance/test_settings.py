"""The balancer's settings and the policies that bind it: names, defaults, and what is refused."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec
import pytest

from anabranch.channel.codec import decode_record, encode_record
from anabranch.core.balance import settings
from anabranch.core.balance.policies import (
    NO_POLICIES,
    FailureDomain,
    IsolationPolicy,
    Policies,
    policies_of,
)
from anabranch.core.entities.placement_policy import PolicyKind
from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import Grounds
from anabranch.core.log.records import PolicyOp
from support.world import FIRST, A, World

TTL, LONGEST = (
    "loadBalancerBrokerLoadDataTTLInSeconds",
    "loadBalancerReportUpdateMaxIntervalMinutes",
)
LEAST = "loadBalancerReportUpdateMinIntervalMillis"
DELAY = "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds"
WAITING = "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis"


def told(**set_to: object) -> list[tuple[tuple[str, ...], str]]:
    return list(
        settings.contradictions(msgspec.structs.replace(settings.BalanceSettings(), **set_to))
    )


def test_the_defaults_contradict_nothing() -> None:
    assert told() == []


@pytest.mark.parametrize(
    ("set_to", "names", "said"),
    [
        ({"broker_load_data_ttl_in_seconds": 900.0}, (TTL, LONGEST), "must be longer than"),
        ({"report_update_min_interval_millis": 900_001}, (LEAST, LONGEST), "900 s: give less"),
        (
            {"service_unit_state_tombstone_delay_time_in_seconds": 30},
            (DELAY, WAITING),
            f"{DELAY} is 30: times 1000 it must be bigger than {WAITING}, 30000",
        ),
        (
            {"shedding_interval_minutes": math.inf},
            ("loadBalancerSheddingIntervalMinutes",),
            "must be a number from 0 to 1000000000000",
        ),
        (
            {"broker_max_topics": 10**400},
            ("loadBalancerBrokerMaxTopics",),
            "must be a number from 0 to 1000000000000",
        ),
        (
            {"report_update_max_interval_minutes": 1e13},  # which is longer than a load counts, too
            (LONGEST,),
            "must be a number from 0 to 1000000000000",
        ),
        (
            {"shedding_excluded_namespaces": ("a/b", "public")},
            ("loadBalancerSheddingExcludedNamespaces",),
            "tenant/namespace",
        ),
    ],
)
def test_settings_that_contradict_one_another_are_told_by_name(
    set_to: dict[str, object], names: tuple[str, ...], said: str
) -> None:
    ((involved, why),) = told(**set_to)
    assert (involved, said in why) == (names, True)


def test_some_resource_must_have_a_weight() -> None:
    no_weight = {
        "cpu_resource_weight": 0.0,
        "bandwidth_in_resource_weight": 0.0,
        "bandwidth_out_resource_weight": 0.0,
    }
    ((involved, why),) = told(**no_weight)
    assert len(involved) == 5
    assert "give one of loadBalancerCPUResourceWeight and its like a value" in why
    assert told(**no_weight, memory_resource_weight=0.1) == []


def test_the_longest_grace_period_has_a_place_in_a_record() -> None:
    longest = settings.BalanceSettings(shedding_grace_period_minutes=1e12)
    assert list(settings.contradictions(longest)) == []
    world = World(A)
    grounds = Grounds("rule", 2, 0.5, 0.4, (), round(longest.shedding_grace_period_minutes * 6e4))
    record = world.move(Move.RELEASE, A, broker=A, choice=(grounds,))
    assert decode_record(encode_record(record)) == record


def test_no_number_may_be_below_0() -> None:
    for field in msgspec.structs.fields(settings.BalanceSettings):
        kind, about = get_args(field.type)
        if kind in (int, float):
            assert max(each for each in (about.ge, about.gt) if each is not None) >= 0


def test_namespaces_of_the_cluster_itself_are_told_by_their_form() -> None:
    systems = ("pulsar/system", "sla-monitor/b1:8080", "pulsar/b1:8080")
    others = ("pulsar/systems", "pulsar/b1", "public/default", "sla-monitor/x")
    assert [settings.is_system_namespace(each) for each in systems] == [True] * 3
    assert [settings.is_system_namespace(each) for each in others] == [False] * 4


# --- policies -----------------------------------------------------------------------------------

POLICY = IsolationPolicy(("t/.*",), ("b1", r"b2:80\d\d"), ("b.*",), min_limit=1)


def test_the_first_policy_by_name_is_a_namespace_s_own() -> None:
    policies = Policies(isolation={"z": IsolationPolicy(("t/special",), ("b9",)), "a": POLICY})
    assert policies.by_namespace["t/special"] is POLICY
    assert policies.by_namespace["other/t/x"] is None
    assert policies.binds("t/n")
    assert not policies.binds("u/n")


def test_groups_are_told_apart_without_case_and_blank_is_none() -> None:
    policies = Policies(groups={"t/a": "Blue", "t/b": "blue ", "t/c": "  "})
    assert [policies.group_of(f"t/{each}") for each in "abcd"] == ["blue", "blue", "", ""]
    assert [policies.binds(f"t/{each}") for each in "abcd"] == [True, True, False, False]
    assert list(policies.namespaces_in("blue")) == ["t/a", "t/b"]
    assert list(policies.namespaces_in("")) == []


def test_a_broker_is_in_the_first_domain_by_name_that_names_it() -> None:
    domains = {"west": FailureDomain(("b1:1", "b2:1")), "east": FailureDomain(("b1:1",))}
    assert Policies(domains=domains).domains_by_broker() == {"b1:1": "east", "b2:1": "west"}
    assert NO_POLICIES.domains_by_broker() == {}


def test_policies_are_read_from_what_the_log_says() -> None:
    world = World(A)
    gold: dict[str, Any] = {"namespaces": ("t/.*",), "primary": ("a",)}
    gold |= {"min_limit": 1, "usage_threshold": 80}
    world.must(world.placement(PolicyKind.ISOLATION, "gold", PolicyOp.CREATE, **gold))
    world.must(world.placement(PolicyKind.DOMAIN, "east", PolicyOp.CREATE, brokers=(A,)))
    world.must(world.namespace(FIRST, PolicyOp.UPDATE, anti_affinity="apart"))
    assert policies_of(world.replica) == Policies(
        isolation={"gold": IsolationPolicy(("t/.*",), ("a",), (), 1, 80)},
        domains={"east": FailureDomain((A,))},
        groups={FIRST: "apart"},
    )
