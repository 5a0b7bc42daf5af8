"""Scalable topics in the log: every arrow and guard, an operation's steps, subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.bundles.unit import Move
from anabranch.core.log.records import PolicyOp, SessionOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.subscriptions.subscription import SubscriptionOp
from anabranch.core.topics.guards import controller_of
from anabranch.core.topics.layout import SegmentLayout, initial_segments
from anabranch.core.topics.machine import LAYOUTS
from anabranch.core.topics.topic import (
    Operation,
    TopicMove,
    TopicState,
    properties_dict,
    properties_flat,
)
from support.topics import opened, owned, split
from support.world import FIRST, TOPIC, UNIT, A, B, World


def test_each_row_has_its_guards_in_the_order_of_precedence() -> None:
    for arrow in LAYOUTS.rows:
        reasons = [guard.refusal for guard in arrow.guards]
        assert reasons == sorted(reasons), arrow.move


# --- from creation to removal ---------------------------------------------------------------


def test_a_topic_is_created_and_opens_at_epoch_0() -> None:
    world = owned()
    parts = initial_segments(3)
    create = world.topic(TopicMove.CREATE, segments=parts, properties=("team", "blue"))
    offset = world.fold(create).offset
    topic = world.scalable()
    assert (topic.state, topic.epoch, topic.is_open) == (TopicState.CREATING, 0, False)
    assert (topic.version, topic.incarnation) == (offset + 1, offset)
    world.must(world.topic(TopicMove.OPEN))
    topic = world.scalable()
    assert (topic.state, topic.epoch, topic.is_open) == (TopicState.STABLE, 0, True)
    assert topic.layout == SegmentLayout(0, 3, topic.segments, {"team": "blue"})
    assert [(p.start, p.end) for p in topic.segments] == [(p.start, p.end) for p in parts]
    assert not topic.is_restless


def test_the_log_stamps_the_first_segments() -> None:
    world = owned()
    stamp = world.now_ms
    world.opened()
    for part in world.scalable().segments:
        assert (part.created_at_epoch, part.created_at_ms, part.sealed_at_ms) == (0, stamp, 0)


def test_a_topic_is_deleted_with_its_subscriptions_and_then_forgotten() -> None:
    world = opened()
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.must(world.topic(TopicMove.DELETE))
    assert world.scalable().state is TopicState.DELETING
    world.must(world.topic(TopicMove.REMOVE))
    assert world.replica.topic(TOPIC) is None
    assert world.replica.subscription(TOPIC, "sub") is None
    assert list(world.replica.topics(FIRST)) == []
    assert list(world.replica.subscriptions(TOPIC)) == []


def test_a_topic_of_the_same_name_is_another_incarnation() -> None:
    world = opened()
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


@pytest.mark.parametrize("state", [TopicState.CREATING, TopicState.STABLE, TopicState.PREPARING])
def test_what_has_not_begun_to_be_sealed_can_be_deleted(state: TopicState) -> None:
    world = owned()
    world.must(world.topic(TopicMove.CREATE, segments=initial_segments(2)))
    if state is not TopicState.CREATING:
        world.must(world.topic(TopicMove.OPEN))
    if state is TopicState.PREPARING:
        world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.DELETE))
    topic = world.scalable()
    assert topic.is_restless
    # Its Kafka topics are to be found by what the record still names.
    assert len(topic.children) == (2 if state is TopicState.PREPARING else 0)


def test_what_is_being_sealed_is_committed_before_it_is_deleted() -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.SEALING))
    assert world.tell(world.topic(TopicMove.DELETE)) is Verdict.ILLEGAL_MOVE
    assert world.tell(world.topic(TopicMove.ABORT)) is Verdict.ILLEGAL_MOVE


# --- who, and what version ------------------------------------------------------------------


def test_only_who_holds_the_bundle_of_the_topics_name_may_propose() -> None:
    world = opened()
    assert controller_of(world.replica, TOPIC) == (UNIT, A)
    moves: dict[TopicMove, dict[str, Any]] = {
        TopicMove.BEGIN: {"operation": Operation.SPLIT, "segments": split(world), "parents": (0,)},
        TopicMove.UPDATE: {},
        TopicMove.DELETE: {},
    }
    for move, fields in moves.items():
        assert world.tell(world.topic(move, B, **fields)) is Verdict.NOT_CONTROLLER
    assert world.tell(world.subscription(SubscriptionOp.CREATE, by=B)) is Verdict.NOT_CONTROLLER


def test_the_next_owner_of_the_bundle_goes_on_and_the_former_may_not() -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.move(Move.RELEASE, A, broker=B))
    assert controller_of(world.replica, TOPIC)[1] == A  # until it has handed over
    world.must(world.move(Move.HAND_OVER, A))
    assert controller_of(world.replica, TOPIC)[1] == ""
    assert world.tell(world.topic(TopicMove.SEALING, A)) is Verdict.NOT_CONTROLLER
    world.must(world.move(Move.OWN, B))
    assert world.tell(world.topic(TopicMove.SEALING, A)) is Verdict.NOT_CONTROLLER
    assert world.tell(world.topic(TopicMove.SEALING, B)) is Verdict.ACCEPTED


def test_a_session_that_is_over_controls_nothing() -> None:
    world = opened()
    world.elect(B)
    late = world.topic(TopicMove.UPDATE)
    late_subscription = world.subscription(SubscriptionOp.CREATE)
    world.expire(A, B)
    assert world.tell(late) is Verdict.SESSION_OVER
    assert world.tell(late_subscription) is Verdict.SESSION_OVER
    world.must(world.session(A, SessionOp.OPEN))
    assert world.tell(late) is Verdict.SESSION_OVER


def test_nobody_controls_topics_of_a_free_bundle_or_of_no_namespace() -> None:
    world = World(A)
    assert controller_of(world.replica, TOPIC) == (UNIT, "")
    assert controller_of(world.replica, "no/where/topic") == ("", "")
    create = world.topic(TopicMove.CREATE, segments=initial_segments(1))
    assert world.tell(create) is Verdict.NOT_CONTROLLER


def test_the_first_valid_proposal_wins_and_the_others_are_stale() -> None:
    world = opened()
    first = world.begin(Operation.SPLIT, split(world, 0))
    second = world.begin(Operation.SPLIT, split(world, 1))
    assert world.tell(first) is Verdict.ACCEPTED
    assert world.tell(second) is Verdict.STALE_VERSION
    assert world.tell(first) is Verdict.REPEATED
    gap = world.topic(TopicMove.SEALING, version=world.scalable().version + 2)
    assert world.tell(gap) is Verdict.VERSION_GAP


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


def test_an_epoch_begins_when_a_topic_opens() -> None:
    world = owned()
    world.must(world.topic(TopicMove.CREATE, segments=initial_segments(1)))
    world.must(world.topic(TopicMove.DELETE))
    assert (world.scalable().opened, world.scalable().epoch) == (0, 0)


def test_properties_and_overrides_come_in_pairs() -> None:
    world = opened()
    odd = world.topic(TopicMove.POLICY, auto_scale=("enabled",))
    assert world.tell(odd) is Verdict.INVALID_VALUE
    assert world.tell(world.topic(TopicMove.UPDATE, properties=("a",))) is Verdict.INVALID_VALUE
    flat = properties_flat({"b": "2", "a": "1"})
    world.must(world.topic(TopicMove.UPDATE, properties=flat))
    topic = world.scalable()
    assert properties_dict(topic.properties) == topic.layout.properties == {"a": "1", "b": "2"}
    assert topic.epoch == 0  # nothing of its layout has changed


def test_a_namespace_with_topics_is_not_deleted() -> None:
    world = opened()
    world.must(world.move(Move.RELEASE, A))
    world.must(world.move(Move.FREE, A))
    assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.NAMESPACE_BUSY
    world.owned(A)
    world.must(world.topic(TopicMove.DELETE))
    world.must(world.topic(TopicMove.REMOVE))
    world.must(world.move(Move.RELEASE, A))
    world.must(world.move(Move.FREE, A))
    assert world.tell(world.namespace(FIRST, PolicyOp.DELETE)) is Verdict.ACCEPTED


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
