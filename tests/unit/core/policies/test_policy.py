"""Placement policies: what a record may say of them, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.entities.placement_policy import (
    BROKERS_MAX,
    PATTERN_LENGTH_MAX,
    PATTERNS_MAX,
    PlacementPolicy,
    PolicyKind,
)
from anabranch.core.log.records import Cause, PolicyOp
from anabranch.core.log.verdicts import Verdict
from support.there import there
from support.world import FIRST, A, B, C, World

ISOLATION, DOMAIN = PolicyKind
GOLD: dict[str, Any] = {
    "namespaces": ("acme/.*",),
    "primary": ("b[12]",),
    "secondary": ("b3",),
    "min_limit": 1,
    "usage_threshold": 80,
}


@pytest.fixture
def world() -> World:
    return World(A)


def test_a_policy_is_what_its_last_record_says(world: World) -> None:
    place = len(world.log)
    record = world.placement(ISOLATION, "gold", PolicyOp.CREATE, **GOLD)
    made = PlacementPolicy(
        version=place + 1,
        kind=ISOLATION,
        brokers=(),
        since_ms=1_000 * place,
        proposal_id=record.proposal_id,
        **GOLD,
    )
    assert world.must(record).changes == (("placement:isolation/gold", made),)
    fields = GOLD | {"secondary": (), "min_limit": 0}
    world.must(world.placement(ISOLATION, "gold", PolicyOp.UPDATE, **fields))
    after = there(world.replica.placement(ISOLATION, "gold"))
    assert (after.version, after.secondary, after.min_limit) == (place + 2, (), 0)
    assert world.must(world.placement(ISOLATION, "gold", PolicyOp.DELETE)).changes == (
        ("placement:isolation/gold", None),
    )
    assert list(world.replica.placements(ISOLATION)) == []
    assert world.tell(world.placement(ISOLATION, "gold", PolicyOp.UPDATE, **GOLD)) is (
        Verdict.UNKNOWN_POLICY
    )


def test_policies_of_a_kind_stand_in_order_and_beside_those_of_others(world: World) -> None:
    for name in ("10", "9", "a"):
        world.must(world.placement(ISOLATION, name, PolicyOp.CREATE, **GOLD))
    world.must(world.placement(DOMAIN, "9", PolicyOp.CREATE, brokers=(A,)))
    assert [name for name, _ in world.replica.placements(ISOLATION)] == ["10", "9", "a"]
    assert [name for name, _ in world.replica.placements(DOMAIN)] == ["9"]


def test_a_broker_is_in_one_failure_domain_at_most(world: World) -> None:
    world.must(world.placement(DOMAIN, "east", PolicyOp.CREATE, brokers=(A, B)))
    west = world.placement(DOMAIN, "west", PolicyOp.CREATE, brokers=(B, C))
    assert world.tell(west) is Verdict.BROKER_IN_DOMAIN
    world.must(world.placement(DOMAIN, "east", PolicyOp.UPDATE, brokers=(A,)))
    world.must(world.placement(DOMAIN, "west", PolicyOp.CREATE, brokers=(B, C)))
    widened = world.placement(DOMAIN, "east", PolicyOp.UPDATE, brokers=(A, C))
    assert world.tell(widened) is Verdict.BROKER_IN_DOMAIN


@pytest.mark.parametrize(
    ("kind", "name", "fields"),
    [
        (ISOLATION, "a/b", GOLD),
        (ISOLATION, "x" * 101, GOLD),
        (ISOLATION, "gold", GOLD | {"namespaces": ()}),
        (ISOLATION, "gold", GOLD | {"primary": ()}),
        (ISOLATION, "gold", GOLD | {"primary": ("",)}),
        (ISOLATION, "gold", GOLD | {"secondary": ("x" * (PATTERN_LENGTH_MAX + 1),)}),
        (ISOLATION, "gold", GOLD | {"namespaces": ("a",) * (PATTERNS_MAX + 1)}),
        (ISOLATION, "gold", GOLD | {"min_limit": -1}),
        (ISOLATION, "gold", GOLD | {"usage_threshold": 101}),
        (ISOLATION, "gold", GOLD | {"brokers": (A,)}),
        (DOMAIN, "east", {}),
        (DOMAIN, "east", {"brokers": ("no-port",)}),
        (DOMAIN, "east", {"brokers": (A, A)}),
        (DOMAIN, "east", {"brokers": (B, A)}),
        (DOMAIN, "east", {"brokers": tuple(f"b{n:06}:1" for n in range(BROKERS_MAX + 1))}),
        (DOMAIN, "east", {"brokers": (A,), "min_limit": 1}),
    ],
)
def test_what_no_policy_can_say_is_refused(
    world: World, kind: PolicyKind, name: str, fields: dict[str, Any]
) -> None:
    assert world.tell(world.placement(kind, name, PolicyOp.CREATE, **fields)) is (
        Verdict.INVALID_VALUE
    )


def test_the_fold_does_not_ask_what_some_release_of_re2_takes(world: World) -> None:
    patterns = ("(", "x" * PATTERN_LENGTH_MAX)
    world.must(world.placement(ISOLATION, "gold", PolicyOp.CREATE, **GOLD | {"primary": patterns}))


def test_a_namespace_s_group_is_part_of_what_an_update_says(world: World) -> None:
    world.must(
        world.namespace(
            FIRST, PolicyOp.UPDATE, anti_affinity="apart", auto_scale=("enabled", "false")
        )
    )
    info = there(world.replica.namespace(FIRST))
    assert (info.anti_affinity, info.auto_scale) == ("apart", ("enabled", "false"))
    assert world.tell(world.namespace(FIRST, PolicyOp.UPDATE, anti_affinity="a b")) is (
        Verdict.INVALID_VALUE
    )
    world.must(world.namespace(FIRST, PolicyOp.UPDATE))
    info = there(world.replica.namespace(FIRST))
    assert info.anti_affinity == ""


def test_causes_keep_their_numbers() -> None:
    assert (Cause.BALANCE.value, Cause.BANDWIDTH.value, len(Cause)) == (12, 18, 19)
