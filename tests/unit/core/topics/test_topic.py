"""Scalable topics in the log: every arrow and guard, an operation's steps, subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.bundles.unit import Move
from anabranch.core.log.records import PolicyOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.subscriptions.subscription import SubscriptionOp
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.layout import initial_segments
from anabranch.core.topics.topic import Operation, TopicMove, properties_dict, properties_flat
from support.topics import opened, owned, split
from support.world import FIRST, TOPIC, UNIT, A, B, World

# --- from creation to removal ---------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return opened()


def test_a_topic_of_the_same_name_is_another_incarnation(world: World) -> None:
    former = world.scalable()
    late_topic = world.topic(TopicMove.UPDATE, properties=("a", "b"))
    late_subscription = world.subscription(SubscriptionOp.CREATE)
    world.must(world.topic(TopicMove.DELETE))
    world.must(world.topic(TopicMove.REMOVE))
    assert world.tell(late_topic) is Verdict.UNKNOWN_TOPIC
    assert world.tell(late_subscription) is Verdict.UNKNOWN_TOPIC
    world.opened()
    topic = world.scalable()
    assert topic.incarnation > former.incarnation
    assert topic.version > late_topic.version
    assert world.tell(late_topic) is Verdict.STALE_VERSION
    assert world.tell(late_subscription) is Verdict.OTHER_INCARNATION


def test_what_is_deleted_while_its_children_are_made_names_them_yet(world: World) -> None:
    """Their Kafka topics are to be found by that."""
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.DELETE))
    assert world.scalable().is_restless
    assert len(world.scalable().children) == 2


# --- who, and what version ------------------------------------------------------------------


def test_the_next_owner_of_the_bundle_goes_on_and_the_former_may_not(world: World) -> None:
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.move(Move.RELEASE, A, broker=B))
    assert controller_of(world.replica, TOPIC)[1] == A  # until it has handed over
    world.must(world.move(Move.HAND_OVER, A))
    assert controller_of(world.replica, TOPIC)[1] == ""
    assert world.tell(world.topic(TopicMove.SEALING, A)) is Verdict.NOT_CONTROLLER
    world.must(world.move(Move.OWN, B))
    assert world.tell(world.topic(TopicMove.SEALING, A)) is Verdict.NOT_CONTROLLER
    assert world.tell(world.topic(TopicMove.SEALING, B)) is Verdict.ACCEPTED


def test_nobody_controls_topics_of_a_free_bundle_or_of_no_namespace() -> None:
    world = World(A)
    assert controller_of(world.replica, TOPIC) == (UNIT, "")
    assert controller_of(world.replica, "no/where/topic") == ("", "")
    create = world.topic(TopicMove.CREATE, segments=initial_segments(1))
    assert world.tell(create) is Verdict.NOT_CONTROLLER


def test_a_second_creation_is_stale_or_repeated() -> None:
    world = owned()
    create = world.topic(TopicMove.CREATE, segments=initial_segments(1))
    other = world.topic(TopicMove.CREATE, segments=initial_segments(2))
    world.must(create)
    assert world.tell(create) is Verdict.REPEATED
    assert world.tell(other) is Verdict.STALE_VERSION
    next_version = world.topic(TopicMove.CREATE, segments=initial_segments(2))
    assert world.tell(next_version) is Verdict.ILLEGAL_MOVE


@pytest.mark.parametrize("move", [move for move in TopicMove if move is not TopicMove.CREATE])
def test_every_other_move_needs_a_topic(move: TopicMove) -> None:
    assert owned().tell(owned().topic(move)) is Verdict.UNKNOWN_TOPIC


@pytest.mark.parametrize("move", list(TopicMove))
def test_a_topic_needs_its_namespace(move: TopicMove) -> None:
    world = owned()
    record = world.topic(move, name="public/none/orders", segments=initial_segments(1))
    assert world.tell(record) is Verdict.UNKNOWN_NAMESPACE


@pytest.mark.parametrize("local", ["a b", "ü", "a:b", "", "x" * 256])
def test_a_topic_with_a_bad_name_is_not_created(local: str) -> None:
    world = owned()
    create = world.topic(TopicMove.CREATE, name=f"{FIRST}/{local}", segments=initial_segments(1))
    assert world.tell(create) is Verdict.INVALID_VALUE


def test_properties_and_overrides_come_in_pairs(world: World) -> None:
    odd = world.topic(TopicMove.POLICY, auto_scale=("enabled",))
    assert world.tell(odd) is Verdict.INVALID_VALUE
    assert world.tell(world.topic(TopicMove.UPDATE, properties=("a",))) is Verdict.INVALID_VALUE
    world.must(world.topic(TopicMove.UPDATE, properties=properties_flat({"b": "2", "a": "1"})))
    topic = world.scalable()
    assert properties_dict(topic.properties) == topic.layout.properties == {"a": "1", "b": "2"}
    assert topic.epoch == 0  # nothing of its layout has changed


def test_a_namespace_with_topics_is_not_deleted(world: World) -> None:
    world.must(world.move(Move.RELEASE, A))
    world.must(world.move(Move.FREE, A))
    assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.NAMESPACE_BUSY


# --- precedence -----------------------------------------------------------------------------


def test_the_reason_named_first_is_given_when_several_apply() -> None:
    world = owned()
    bad: dict[str, Any] = {"name": f"{FIRST}/a b", "segments": ()}
    over: dict[str, Any] = {"session": 99}
    assert world.tell(world.topic(TopicMove.CREATE, B, **bad, **over)) is Verdict.SESSION_OVER
    assert world.tell(world.topic(TopicMove.CREATE, B, **bad)) is Verdict.INVALID_VALUE
    assert world.tell(world.topic(TopicMove.CREATE, B, segments=())) is Verdict.NOT_CONTROLLER
    world.must(world.topic(TopicMove.CREATE, segments=initial_segments(1)))
    create = SubscriptionOp.CREATE
    for record, verdict in (
        (world.subscription(create, "a b", B, session=99), Verdict.SESSION_OVER),
        (world.subscription(create, "a b", B), Verdict.INVALID_VALUE),
        (world.subscription(create, "sub", B), Verdict.NOT_CONTROLLER),
        (world.subscription(create, "sub", A), Verdict.TOPIC_BUSY),
    ):
        assert world.tell(record) is verdict
