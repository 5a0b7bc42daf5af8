"""Scalable topics in the log: every arrow and guard, an operation's steps, subscriptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.core.layout import SegmentLayout, initial_segments
from anabranch.core.records import PolicyOp, SessionOp
from anabranch.core.segments import BUCKETS_MAX, SegmentInfo, SegmentState, new_segment
from anabranch.core.subscriptions import SubscriptionKind, SubscriptionOp
from anabranch.core.topic_guards import TOPIC_GUARDS, controller_of
from anabranch.core.topics import (
    TOPIC_ARROWS,
    Operation,
    TopicGuard,
    TopicMove,
    TopicState,
    properties_dict,
    properties_flat,
)
from anabranch.core.units import Move
from anabranch.core.verdicts import Verdict
from support.world import FIRST, TOPIC, UNIT, A, B, World


def owned() -> World:
    """Two brokers, of which the first controls every topic."""
    world = World(A, B)
    world.owned(A)
    return world


def opened(segments: int = 2) -> World:
    world = owned()
    world.opened(segments)
    return world


def layout(world: World) -> SegmentLayout:
    return world.scalable().layout


def split(world: World, segment_id: int = 0) -> tuple[SegmentInfo, ...]:
    return layout(world).split_children(segment_id)


def changed(part: SegmentInfo, **fields: Any) -> SegmentInfo:
    return msgspec.structs.replace(part, **fields)


def test_every_guard_has_a_predicate_and_each_row_is_in_the_order_of_precedence() -> None:
    assert set(TOPIC_GUARDS) == set(TopicGuard)
    for arrow in TOPIC_ARROWS:
        reasons = [TOPIC_GUARDS[guard][1] for guard in arrow.guards]
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


def test_properties_come_in_pairs() -> None:
    world = opened()
    assert world.tell(world.topic(TopicMove.UPDATE, properties=("a",))) is Verdict.INVALID_VALUE
    flat = properties_flat({"b": "2", "a": "1"})
    world.must(world.topic(TopicMove.UPDATE, properties=flat))
    topic = world.scalable()
    assert properties_dict(topic.properties) == topic.layout.properties == {"a": "1", "b": "2"}
    assert topic.epoch == 1


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


# --- first layouts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (new_segment(0, 0, 0xFFFE, 1),),
        (new_segment(1, 0, 0xFFFF, 1),),
        (new_segment(0, 0, 0xFFFF, 0),),
        (new_segment(0, 0, 0xFFFF, BUCKETS_MAX + 1),),
        (new_segment(0, 0, 0xFFFF, 1, parents=(7,)),),
        (changed(new_segment(0, 0, 0xFFFF, 1), child_ids=(1,)),),
        (changed(new_segment(0, 0, 0xFFFF, 1), state=SegmentState.SEALED),),
        (changed(new_segment(0, 0, 0xFFFF, 1), end_offsets=(0,)),),
        (new_segment(0, 0, 0x7FFF, 1), new_segment(0, 0x8000, 0xFFFF, 1)),
        (new_segment(1, 0, 0x7FFF, 1), new_segment(0, 0x8000, 0xFFFF, 1)),
        (new_segment(0, 0, 0x7FFF, 1), new_segment(1, 0x7FFF, 0xFFFF, 1)),
    ],
)
def test_a_first_layout_must_tile_the_ring(parts: tuple[SegmentInfo, ...]) -> None:
    world = owned()
    assert world.tell(world.topic(TopicMove.CREATE, segments=parts)) is Verdict.SEGMENTS_INVALID
    assert world.replica.topic(TOPIC) is None


def test_a_first_layout_may_have_as_many_segments_as_hashes() -> None:
    world = owned()
    world.opened(65_536)
    assert len(world.scalable().segments) == 65_536


# --- operations -----------------------------------------------------------------------------


def test_an_operation_shows_in_the_layout_when_it_is_committed() -> None:
    world = opened()
    before = layout(world)
    children = split(world)
    world.must(world.begin(Operation.SPLIT, children))
    topic = world.scalable()
    assert (topic.state, topic.operation) == (TopicState.PREPARING, Operation.SPLIT)
    assert (topic.parents, topic.children, topic.next_segment_id) == ((0,), children, 4)
    assert topic.layout.active == before.active
    world.must(world.topic(TopicMove.SEALING))
    assert layout(world).active == before.active
    stamp = world.now_ms
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(17, 0)))
    topic = world.scalable()
    # One record, one epoch; the ends are the parent's, by bucket.
    parts = before.replaced((0,), children, {0: (17, 0)}, stamp, epoch=3).segments.values()
    assert topic.layout == SegmentLayout(3, 4, parts)
    assert (topic.state, topic.operation) == (TopicState.STABLE, Operation.NONE)
    assert (topic.parents, topic.children, topic.garbage) == ((), (), ())


def test_a_merge_stores_the_ends_of_both_parents() -> None:
    world = opened()
    children = layout(world).merge_children(1, 0)
    world.committed(Operation.MERGE, children, end_offsets=(1, 2, 3, 4))
    segments = layout(world).segments
    assert (segments[0].end_offsets, segments[1].end_offsets) == ((1, 2), (3, 4))
    assert layout(world).active == (segments[2],)


def test_a_rollover_changes_only_the_buckets() -> None:
    world = opened(1)
    world.committed(Operation.REBUCKET, layout(world).rebucket_children(0, 9))
    (part,) = layout(world).active
    assert (part.start, part.end, part.buckets) == (0, 0xFFFF, 9)


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (Operation.NONE, {}),
        (Operation.MERGE, {}),
        (Operation.REBUCKET, {}),
        (Operation.SPLIT, {"parents": ()}),
        (Operation.SPLIT, {"parents": (9,)}),
        (Operation.SPLIT, {"parents": (0, 1)}),
        (Operation.SPLIT, {"parents": (0, 0)}),
        (Operation.SPLIT, {"parents": (1,)}),
        (Operation.SPLIT, {"segments": ()}),
    ],
)
def test_children_must_fit_their_operation_and_parents(
    operation: Operation, fields: dict[str, Any]
) -> None:
    world = opened()
    begin = world.begin(operation, split(world), **fields)
    assert world.tell(begin) is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize(
    "fields",
    [
        {"segment_id": 3},
        {"segment_id": 0},
        {"buckets": 0},
        {"buckets": BUCKETS_MAX + 1},
        {"state": SegmentState.SEALED},
        {"parent_ids": ()},
        {"parent_ids": (1,)},
        {"child_ids": (1,)},
        {"end_offsets": (0,)},
        {"start": 1},
        {"end": 0x3FFE},
        {"end": 0x4000},
    ],
)
def test_a_child_with_a_wrong_field_does_not_fit(fields: dict[str, Any]) -> None:
    world = opened()
    low, high = split(world)
    begin = world.begin(Operation.SPLIT, (changed(low, **fields), high), parents=(0,))
    assert world.tell(begin) is Verdict.SEGMENTS_INVALID


def test_one_child_is_no_split_and_two_are_no_merge() -> None:
    world = opened(1)
    alone = changed(split(world)[0], end=0xFFFF)
    assert world.tell(world.begin(Operation.SPLIT, (alone,))) is Verdict.SEGMENTS_INVALID
    same = changed(alone, buckets=4)
    assert world.tell(world.begin(Operation.REBUCKET, (same,))) is Verdict.SEGMENTS_INVALID
    assert world.tell(world.begin(Operation.MERGE, (alone,))) is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize("parents", [(0, 2), (1, 1), (0, 1, 2, 3, 4), (3, 0)])
def test_only_neighbours_are_merged(parents: tuple[int, ...]) -> None:
    world = opened(4)
    child = new_segment(4, 0, 0xFFFF, 1, parents)
    assert world.tell(world.begin(Operation.MERGE, (child,))) is Verdict.SEGMENTS_INVALID


def test_more_than_two_neighbours_may_be_merged_at_once() -> None:
    world = opened(4)
    child = new_segment(4, 0x4000, 0xFFFF, 1, (3, 1, 2))
    world.committed(Operation.MERGE, (child,))
    assert [part.segment_id for part in layout(world).active] == [0, 4]


def test_a_sealed_segment_takes_part_in_no_further_operation() -> None:
    world = opened()
    world.committed(Operation.SPLIT, split(world))
    stale = SegmentLayout(0, 4, initial_segments(2))
    for operation, children in (
        (Operation.SPLIT, stale.split_children(0)),
        (Operation.MERGE, stale.merge_children(0, 1)),
        (Operation.REBUCKET, stale.rebucket_children(0, 9)),
    ):
        assert world.tell(world.begin(operation, children)) is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize("ends", [(), (1,), (1, 2, 3), (1, -1)])
def test_a_commit_brings_one_end_for_each_partition_of_each_parent(ends: tuple[int, ...]) -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.SEALING))
    commit = world.topic(TopicMove.COMMIT, end_offsets=ends)
    assert world.tell(commit) is Verdict.ENDS_INCOMPLETE


def test_what_is_aborted_leaves_its_children_to_be_deleted() -> None:
    world = opened()
    before = layout(world)
    children = split(world)
    world.must(world.begin(Operation.SPLIT, children))
    world.must(world.topic(TopicMove.ABORT))
    topic = world.scalable()
    assert (topic.state, topic.children, topic.garbage) == (TopicState.STABLE, (), children)
    assert topic.layout.active == before.active
    assert topic.is_restless
    assert topic.next_segment_id == 4  # no id is given twice
    world.must(world.topic(TopicMove.CLEAR, segment_ids=(3,)))
    assert world.scalable().garbage == children[:1]
    world.must(world.topic(TopicMove.CLEAR, segment_ids=(2,)))
    assert not world.scalable().is_restless


@pytest.mark.parametrize("ids", [(), (0,), (2, 0), (9,)])
def test_only_garbage_is_cleared(ids: tuple[int, ...]) -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.ABORT))
    clear = world.topic(TopicMove.CLEAR, segment_ids=ids)
    assert world.tell(clear) is Verdict.SEGMENTS_INVALID


def test_garbage_may_be_cleared_and_properties_set_during_an_operation() -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.ABORT))
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.CLEAR, segment_ids=(2,)))
    world.must(world.topic(TopicMove.SEALING))
    world.must(world.topic(TopicMove.CLEAR, segment_ids=(3,)))
    world.must(world.topic(TopicMove.UPDATE, properties=("a", "b")))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(0, 0)))
    topic = world.scalable()
    assert topic.layout.segments[4].created_at_epoch == topic.epoch == 8
    assert topic.properties == ("a", "b")


# --- pruning --------------------------------------------------------------------------------


def drained(world: World, *ids: int, name: str = "sub") -> Verdict:
    return world.tell(world.subscription(SubscriptionOp.DRAINED, name, segment_ids=ids))


def prune(world: World, *ids: int) -> Verdict:
    return world.tell(world.topic(TopicMove.PRUNE, segment_ids=ids))


def test_what_nobody_has_to_read_is_pruned_and_its_marks_with_it() -> None:
    world = opened()
    for name in ("first", "second"):
        world.must(world.subscription(SubscriptionOp.CREATE, name))
    world.committed(Operation.SPLIT, split(world))
    assert drained(world, 0, name="first") is Verdict.ACCEPTED
    assert prune(world, 0) is Verdict.NOT_DRAINED
    assert drained(world, 0, name="second") is Verdict.ACCEPTED
    assert prune(world, 0) is Verdict.ACCEPTED
    topic = world.scalable()
    assert [part.segment_id for part in topic.garbage] == [0]
    assert [part.segment_id for part in topic.segments] == [1, 2, 3]
    assert all(part.parent_ids == () for part in topic.segments)
    assert world.subscribed("first").drained == world.subscribed("second").drained == ()


def test_without_subscriptions_every_sealed_root_may_be_pruned() -> None:
    world = opened(1)
    world.committed(Operation.SPLIT, split(world))
    assert prune(world, 0) is Verdict.ACCEPTED


def test_parents_are_pruned_before_or_with_their_children() -> None:
    world = opened(1)
    world.committed(Operation.SPLIT, split(world))
    world.committed(Operation.SPLIT, split(world, 1))
    for ids in ((1,), (), (0, 0), (0, 2), (2,), (9,)):
        assert prune(world, *ids) is Verdict.NOT_DRAINED, ids
    assert prune(world, 1, 0) is Verdict.ACCEPTED
    assert [part.segment_id for part in world.scalable().garbage] == [0, 1]


def test_nothing_is_pruned_during_an_operation() -> None:
    world = opened()
    world.committed(Operation.SPLIT, split(world))
    world.must(world.begin(Operation.SPLIT, split(world, 1)))
    assert prune(world, 0) is Verdict.ILLEGAL_MOVE


# --- subscriptions --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(SubscriptionKind))
def test_a_subscription_is_created_once(kind: SubscriptionKind) -> None:
    world = opened()
    create = world.subscription(SubscriptionOp.CREATE, kind=kind)
    other = world.subscription(SubscriptionOp.CREATE)
    offset = world.fold(create).offset
    found = world.subscribed()
    assert (found.kind, found.created_offset, found.version) == (kind, offset, offset + 1)
    assert world.tell(create) is Verdict.REPEATED
    assert world.tell(other) is Verdict.STALE_VERSION
    assert world.tell(world.subscription(SubscriptionOp.CREATE)) is Verdict.ILLEGAL_MOVE
    assert [name for name, _ in world.replica.subscriptions(TOPIC)] == ["sub"]


def test_a_subscription_of_the_same_name_is_another_group() -> None:
    world = opened()
    world.must(world.subscription(SubscriptionOp.CREATE))
    former = world.subscribed()
    late = world.subscription(SubscriptionOp.JOIN, consumer="c")
    world.must(world.subscription(SubscriptionOp.DELETE))
    assert world.tell(late) is Verdict.UNKNOWN_SUBSCRIPTION
    world.must(world.subscription(SubscriptionOp.CREATE))
    assert world.subscribed().created_offset > former.created_offset
    assert world.tell(late) is Verdict.STALE_VERSION


def test_consumers_join_once_and_are_kept_by_name() -> None:
    world = opened()
    world.must(world.subscription(SubscriptionOp.CREATE))
    for name in ("c-9", "c-10", "B"):
        world.must(world.subscription(SubscriptionOp.JOIN, consumer=name))
    assert world.subscribed().consumers == ("B", "c-10", "c-9")
    again = world.subscription(SubscriptionOp.JOIN, consumer="c-9")
    assert world.tell(again) is Verdict.CONSUMER_EXISTS
    world.must(world.subscription(SubscriptionOp.LEAVE, consumer="c-10"))
    assert world.subscribed().consumers == ("B", "c-9")
    gone = world.subscription(SubscriptionOp.LEAVE, consumer="c-10")
    assert world.tell(gone) is Verdict.UNKNOWN_CONSUMER


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "x" * 256])
def test_bad_names_of_subscriptions_and_consumers_are_refused(name: str) -> None:
    world = opened()
    create = world.subscription(SubscriptionOp.CREATE, name)
    assert world.tell(create) is Verdict.INVALID_VALUE
    world.must(world.subscription(SubscriptionOp.CREATE))
    join = world.subscription(SubscriptionOp.JOIN, consumer=name)
    assert world.tell(join) is Verdict.INVALID_VALUE


@pytest.mark.parametrize("op", [op for op in SubscriptionOp if op is not SubscriptionOp.CREATE])
def test_every_other_change_needs_a_subscription_and_that_a_topic(op: SubscriptionOp) -> None:
    assert opened().tell(opened().subscription(op)) is Verdict.UNKNOWN_SUBSCRIPTION
    assert owned().tell(owned().subscription(op)) is Verdict.UNKNOWN_TOPIC


@pytest.mark.parametrize("state", [TopicState.CREATING, TopicState.DELETING])
def test_a_topic_that_is_not_open_takes_no_subscription(state: TopicState) -> None:
    world = owned()
    world.must(world.topic(TopicMove.CREATE, segments=initial_segments(1)))
    if state is TopicState.DELETING:
        world.must(world.topic(TopicMove.DELETE))
    assert world.tell(world.subscription(SubscriptionOp.CREATE)) is Verdict.TOPIC_BUSY


def test_subscriptions_change_while_an_operation_is_under_way() -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.must(world.topic(TopicMove.SEALING))
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c"))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(0, 0)))
    assert drained(world, 0) is Verdict.ACCEPTED


def test_versions_of_a_subscription_ascend_by_one() -> None:
    world = opened()
    world.must(world.subscription(SubscriptionOp.CREATE))
    join = world.subscription(SubscriptionOp.JOIN, consumer="c")
    rival = world.subscription(SubscriptionOp.JOIN, consumer="d")
    world.must(join)
    assert world.tell(join) is Verdict.REPEATED
    assert world.tell(rival) is Verdict.STALE_VERSION
    gap = msgspec.structs.replace(rival, version=rival.version + 2)
    assert world.tell(gap) is Verdict.VERSION_GAP


def test_segments_are_drained_in_the_order_of_the_dag() -> None:
    world = opened(1)
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.committed(Operation.SPLIT, split(world))
    world.committed(Operation.SPLIT, split(world, 1))
    assert drained(world, 1) is Verdict.NOT_DRAINED
    for ids in ((), (2,), (9,), (0, 3)):
        assert drained(world, *ids) is Verdict.SEGMENTS_INVALID, ids
    assert drained(world, 1, 0) is Verdict.ACCEPTED
    assert world.subscribed().drained == (0, 1)
    assert drained(world, 0) is Verdict.SEGMENTS_INVALID


def test_a_late_subscription_has_everything_to_read() -> None:
    world = opened(1)
    world.committed(Operation.SPLIT, split(world))
    world.must(world.subscription(SubscriptionOp.CREATE))
    assert world.subscribed().drained == ()
    assert prune(world, 0) is Verdict.NOT_DRAINED


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
