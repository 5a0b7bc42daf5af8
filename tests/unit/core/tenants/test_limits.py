"""How many things a tenant may have: what the fold lets in, by the record's limit or its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import TopicMove
from anabranch.core.log.records import PolicyOp, Record
from anabranch.core.log.verdicts import Verdict
from anabranch.core.tenants.limits import LIMIT_MAX, OF_NAMESPACES
from support.world import FIRST, TOPIC, UNIT, A, B, World

_CREATE, _PARTS = SubscriptionOp.CREATE, initial_segments(1)
Make = Callable[..., Record]


@pytest.fixture
def world() -> World:
    """A topic with a subscription, in one of two namespaces."""
    world = World(A, B)
    world.owned(A, UNIT)
    world.opened()
    world.must(world.subscription(_CREATE, "s0"))
    return world


def a_namespace(world: World, name: str, **fields: Any) -> Record:
    return world.namespace(f"public/{name}", PolicyOp.CREATE, **fields)


def a_topic(world: World, name: str, **fields: Any) -> Record:
    return world.topic(TopicMove.CREATE, A, f"{FIRST}/{name}", segments=_PARTS, **fields)


def a_subscription(world: World, name: str, **fields: Any) -> Record:
    return world.subscription(_CREATE, name, **fields)


def a_consumer(world: World, name: str, **fields: Any) -> Record:
    return world.subscription(SubscriptionOp.JOIN, "s0", consumer=name, instance=1, **fields)


def without_namespace(world: World, name: str) -> None:
    world.must(world.namespace(f"public/{name}", PolicyOp.DELETE))


def without_topic(world: World, name: str) -> None:
    for move in (TopicMove.OPEN, TopicMove.DELETE, TopicMove.REMOVE):
        world.must(world.topic(move, A, f"{FIRST}/{name}"))


def without_subscription(world: World, name: str) -> None:
    world.must(world.subscription(SubscriptionOp.DELETE, name))


def without_consumer(world: World, name: str) -> None:
    world.must(world.subscription(SubscriptionOp.LEAVE, "s0", consumer=name))


# How one is made, how it goes, how many there are at first, and the place of a namespace's own.
KINDS = [
    pytest.param(a_namespace, without_namespace, 1, None, id="namespaces"),
    pytest.param(a_topic, without_topic, 1, 0, id="topics"),
    pytest.param(a_subscription, without_subscription, 1, 1, id="subscriptions"),
    pytest.param(a_consumer, without_consumer, 0, 2, id="consumers"),
]
OWN = [each for each in KINDS if each.values[3] is not None]


def says(world: World, place: int | None, own: int) -> None:
    """Lets the namespace say so itself, and nothing else."""
    limits = tuple(own if each == place else -1 for each in OF_NAMESPACES)
    world.must(world.namespace(FIRST, PolicyOp.UPDATE, limits=limits))


@pytest.mark.parametrize(("make", "end", "first", "place"), KINDS)
def test_as_many_as_the_limit_come_and_one_more_once_one_is_gone(
    world: World, make: Make, end: Callable[[World, str], None], first: int, place: int | None
) -> None:
    for name in ("x", "y"):
        world.must(make(world, name, limit=first + 2))
    assert world.tell(make(world, "z", limit=first + 2)) is Verdict.LIMIT_REACHED
    end(world, "y")
    world.must(make(world, "z", limit=first + 2))
    world.must(make(world, "any"))  # 0 is none


@pytest.mark.parametrize(("make", "end", "first", "place"), KINDS)
def test_of_two_that_are_proposed_at_once_for_the_last_place_one_is_refused(
    world: World, make: Make, end: object, first: int, place: int | None
) -> None:
    mine, theirs = (make(world, name, limit=first + 1) for name in ("mine", "theirs"))
    world.must(mine)
    # Consumers share their subscription's versions: so the other one comes too late in any case.
    late = Verdict.STALE_VERSION if make is a_consumer else Verdict.LIMIT_REACHED
    assert world.tell(theirs) is late
    assert world.tell(make(world, "theirs", limit=first + 1)) is Verdict.LIMIT_REACHED


@pytest.mark.parametrize(("make", "end", "first", "place"), OWN)
def test_what_a_namespace_says_itself_counts_for_it_whatever_the_record_says(
    world: World, make: Make, end: object, first: int, place: int
) -> None:
    says(world, place, first + 1)
    world.must(make(world, "x", limit=1))
    assert world.tell(make(world, "y", limit=9)) is Verdict.LIMIT_REACHED
    assert world.tell(make(world, "y")) is Verdict.LIMIT_REACHED
    says(world, place, 0)
    world.must(make(world, "y", limit=1))
    world.must(world.namespace(FIRST, PolicyOp.UPDATE))
    assert world.tell(make(world, "z", limit=1)) is Verdict.LIMIT_REACHED


def test_a_name_that_is_registered_takes_no_other_place(world: World) -> None:
    world.must(a_consumer(world, "x", limit=1))
    join = SubscriptionOp.JOIN
    world.must(world.subscription(join, "s0", consumer="x", instance=2, limit=1))
    assert world.subscribed("s0").instance_of("x") == 2


def test_what_is_above_a_limit_that_came_later_stays_and_changes(world: World) -> None:
    world.must(a_topic(world, "t"))
    says(world, 0, 1)
    world.must(world.topic(TopicMove.OPEN, A, f"{FIRST}/t"))
    world.must(world.topic(TopicMove.UPDATE, A, TOPIC, properties=("a", "b")))
    assert world.tell(a_topic(world, "u")) is Verdict.LIMIT_REACHED


@pytest.mark.parametrize("limits", [(1,), (1, 1, -2), (1, 1, LIMIT_MAX + 1), (-1,) * 3, (1,) * 4])
def test_what_are_no_limits_of_a_namespace_is_refused(limits: tuple[int, ...]) -> None:
    world = World(A)
    wrong = world.namespace(FIRST, PolicyOp.UPDATE, limits=limits)
    assert world.tell(wrong) is Verdict.INVALID_VALUE
