"""The balancer's settings and the policies that bind it: names, defaults, and what is refused."""

from __future__ import annotations

import math
from typing import Any

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


def test_the_defaults_contradict_nothing() -> None:
    """The tests of a node's settings have their names and values."""
    assert settings.fault_of(settings.BalanceSettings()) == ""


@pytest.mark.parametrize(
    ("set_to", "said"),
    [
        ({"broker_load_data_ttl_in_seconds": 900.0}, "loadBalancerBrokerLoadDataTTLInSeconds"),
        ({"report_update_max_interval_minutes": 0.0}, "must be more than 0"),
        (
            {"service_unit_state_tombstone_delay_time_in_seconds": 30.0},
            "must be more than loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        ),
        ({"service_unit_state_tombstone_delay_time_in_seconds": 29.0}, "must be 30 or more"),
        ({"history_resource_percentage": 1.0}, "must be below 1"),
        ({"history_resource_percentage": math.nan}, "must be a number from 0 to 1000000000000"),
        ({"shedding_grace_period_minutes": 1e308}, "loadBalancerSheddingGracePeriodMinutes"),
        ({"shedding_interval_minutes": math.inf}, "loadBalancerSheddingIntervalMinutes"),
        ({"broker_max_topics": 10**400}, "loadBalancerBrokerMaxTopics"),
        ({"broker_load_target_std": -0.1}, "loadBalancerBrokerLoadTargetStd"),
        ({"max_number_of_broker_shedding_per_cycle": 0}, "must be 1 or more"),
        (
            {
                "cpu_resource_weight": 0.0,
                "bandwidth_in_resource_weight": 0.0,
                "bandwidth_out_resource_weight": 0.0,
            },
            "weights",
        ),
        (
            {"default_namespace_bundle_split_algorithm": settings.SplitAlgorithm.POSITIONS},
            "automatic",
        ),
        ({"shedding_excluded_namespaces": ("public",)}, "tenant/namespace"),
    ],
)
def test_settings_that_contradict_one_another_are_told_by_name(
    set_to: dict[str, object], said: str
) -> None:
    assert said in settings.fault_of(msgspec.structs.replace(settings.BalanceSettings(), **set_to))


def test_the_longest_grace_period_has_a_place_in_a_record() -> None:
    longest = settings.BalanceSettings(shedding_grace_period_minutes=1e12)
    assert settings.fault_of(longest) == ""
    world = World(A)
    grounds = Grounds("rule", 2, 0.5, 0.4, (), round(longest.shedding_grace_period_minutes * 6e4))
    record = world.move(Move.RELEASE, A, broker=A, choice=(grounds,))
    assert decode_record(encode_record(record)) == record


def test_every_number_is_refused_below_0() -> None:
    for field in msgspec.structs.fields(settings.BalanceSettings):
        if field.type in (int, float):
            bad = msgspec.structs.replace(settings.BalanceSettings(), **{field.name: -1})
            assert settings.NAMES[field.name] in settings.fault_of(bad)


def test_namespaces_of_the_cluster_itself_are_told_by_their_form() -> None:
    systems = ("pulsar/system", "sla-monitor/b1:8080", "pulsar/b1:8080")
    others = ("pulsar/systems", "pulsar/b1", "public/default", "sla-monitor/x")
    assert [settings.is_system_namespace(each) for each in systems] == [True] * 3
    assert [settings.is_system_namespace(each) for each in others] == [False] * 4


# --- policies -----------------------------------------------------------------------------------

POLICY = IsolationPolicy(("t/.*",), ("b1", r"b2:80\d\d"), ("b.*",), min_limit=1)


def test_the_first_policy_by_name_is_a_namespace_s_own() -> None:
    policies = Policies(isolation={"z": IsolationPolicy(("t/special",), ("b9",)), "a": POLICY})
    assert policies.policy_of("t/special") is POLICY
    assert policies.policy_of("other/t/x") is None
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
    world.must(world.placement(PolicyKind.KAFKA_DRAIN, "1", PolicyOp.CREATE))
    world.must(world.namespace(FIRST, PolicyOp.UPDATE, anti_affinity="apart"))
    assert policies_of(world.replica) == Policies(
        isolation={"gold": IsolationPolicy(("t/.*",), ("a",), (), 1, 80)},
        domains={"east": FailureDomain((A,))},
        groups={FIRST: "apart"},
    )
