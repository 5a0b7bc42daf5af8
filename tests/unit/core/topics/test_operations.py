"""What records do to topics and their segments: first layouts, split, merge, rebucket, prune."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.segment import BUCKETS_MAX, SegmentInfo, SegmentState, new_segment
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove, properties_dict, properties_flat
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import PolicyOp
from anabranch.core.log.verdicts import Verdict
from anabranch.core.subscriptions.draining import drained_by_positions
from support.topics import layout, opened, owned, split
from support.world import FIRST, TOPIC, UNIT, A, B, World


def changed(part: SegmentInfo, **fields: Any) -> SegmentInfo:
    return msgspec.structs.replace(part, **fields)


# --- first layouts --------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return opened()


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (new_segment(0, 0, 0xFFFE, 1),),
        (new_segment(0, 1, 0xFFFF, 1),),
        (new_segment(0, 0, 0x7FFE, 1), new_segment(1, 0x8000, 0xFFFF, 1)),
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


def test_a_segment_may_have_the_most_buckets_there_are() -> None:
    world = owned()
    part = new_segment(0, 0, 0xFFFF, BUCKETS_MAX)
    assert world.tell(world.topic(TopicMove.CREATE, segments=(part,))) is Verdict.ACCEPTED


# --- operations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (Operation.NONE, {}),
        (Operation.MERGE, {}),
        (Operation.REBUCKET, {}),
        (Operation.RESTORE, {}),
        (Operation.SPLIT, {"end_offsets": (1, 2, 3)}),
        (Operation.SPLIT, {"parents": ()}),
        (Operation.SPLIT, {"parents": (9,)}),
        (Operation.SPLIT, {"parents": (0, 1)}),
        (Operation.SPLIT, {"parents": (0, 0)}),
        (Operation.SPLIT, {"parents": (1,)}),
        (Operation.SPLIT, {"segments": ()}),
    ],
)
def test_children_must_fit_their_operation_and_parents(
    world: World, operation: Operation, fields: dict[str, Any]
) -> None:
    assert world.tell(world.begin(operation, split(world), **fields)) is Verdict.SEGMENTS_INVALID
    rootless = tuple(changed(each, parent_ids=()) for each in split(world))
    assert world.tell(world.begin(operation, rootless, **fields)) is Verdict.SEGMENTS_INVALID


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
def test_a_child_with_a_wrong_field_does_not_fit(world: World, fields: dict[str, Any]) -> None:
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
    other = changed(alone, buckets=5)
    assert world.tell(world.begin(Operation.RESTORE, (other,))) is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize("parents", [(0, 2), (1, 1), (0, 1, 2, 3, 4), (3, 0)])
def test_only_neighbours_are_merged(parents: tuple[int, ...]) -> None:
    world = opened(4)
    child = new_segment(4, 0, 0xFFFF, 1, parents)
    assert world.tell(world.begin(Operation.MERGE, (child,))) is Verdict.SEGMENTS_INVALID


def test_more_than_two_neighbours_may_be_merged_at_once() -> None:
    world = opened(4)
    child = new_segment(4, 0x4000, 0xFFFF, 1, (3, 1, 2))
    world.committed(Operation.MERGE, (child,), end_offsets=(7, 8, 9))
    assert [part.segment_id for part in layout(world).active] == [0, 4]
    ends = {each: part.end_offsets for each, part in layout(world).segments.items() if each}
    assert ends == {1: (8,), 2: (9,), 3: (7,), 4: ()}


def test_a_sealed_segment_takes_part_in_no_further_operation(world: World) -> None:
    world.committed(Operation.SPLIT, split(world))
    stale = SegmentLayout(0, 4, initial_segments(2))
    for operation, children in (
        (Operation.SPLIT, stale.split_children(0)),
        (Operation.MERGE, stale.merge_children(0, 1)),
        (Operation.REBUCKET, stale.rebucket_children(0, 9)),
        (Operation.RESTORE, stale.restore_children(0)),
    ):
        assert world.tell(world.begin(operation, children)) is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize("ends", [(), (1,), (1, 2, 3), (1, -1)])
def test_a_commit_brings_one_end_for_each_partition_of_each_parent(ends: tuple[int, ...]) -> None:
    world = opened()
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.SEALING))
    assert world.tell(world.topic(TopicMove.COMMIT, end_offsets=ends)) is Verdict.ENDS_INCOMPLETE


@pytest.mark.parametrize("ids", [(), (0,), (2, 0), (9,)])
def test_only_garbage_is_cleared(world: World, ids: tuple[int, ...]) -> None:
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.ABORT))
    assert world.tell(world.topic(TopicMove.CLEAR, segment_ids=ids)) is Verdict.SEGMENTS_INVALID


def test_the_log_keeps_by_which_ids_kafka_knows_the_topics_of_new_segments() -> None:
    world = owned()
    world.must(world.topic(TopicMove.CREATE, segments=initial_segments(2)))
    world.must(world.topic(TopicMove.OPEN, topic_ids=("x", "")))
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.SEALING, topic_ids=("no", "no")))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(1, 2), topic_ids=("y", "z")))
    assert [part.topic_id for part in world.scalable().segments] == ["x", "", "y", "z"]
    world.must(world.begin(Operation.SPLIT, split(world, 1)))
    world.must(world.topic(TopicMove.SEALING))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(1, 2), topic_ids=("y",)))
    assert [part.topic_id for part in world.scalable().segments[4:]] == ["", ""]


# --- lost segments ------------------------------------------------------------------------


def test_a_segment_that_is_lost_ends_where_it_began_and_nobody_waits_for_it() -> None:
    world = opened(1)
    ends = (7, 0, 9, 1)
    children = layout(world).restore_children(0)
    world.committed(Operation.RESTORE, children, end_offsets=ends)
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"segment_ids": (0,), "end_offsets": (7, 0, 9, 2)},
        {"segment_ids": (1,), "end_offsets": ends},
        {"segment_ids": (0, 0), "end_offsets": ends},
        {"segment_ids": (5,), "end_offsets": ends},
    )
    for fields in wrong:
        assert world.tell(world.topic(TopicMove.LOST, **fields)) is Verdict.SEGMENTS_INVALID
    assert drained_by_positions(layout(world), set(), {}) == ()
    world.must(world.topic(TopicMove.LOST, segment_ids=(0,), end_offsets=ends))
    found = [part.end_offsets for part in layout(world).segments.values()]
    assert found == [(0,) * 4, ()]
    assert (layout(world).epoch, drained_by_positions(layout(world), set(), {})) == (2, (0,))
    again = world.topic(TopicMove.LOST, segment_ids=(0,), end_offsets=(0,) * 4)
    assert world.tell(again) is Verdict.SEGMENTS_INVALID, "it is lost already, or held nothing"


# --- pruning --------------------------------------------------------------------------------


def drained(world: World, *ids: int, name: str = "sub") -> Verdict:
    return world.tell(world.subscription(SubscriptionOp.DRAINED, name, segment_ids=ids))


def prune(world: World, *ids: int) -> Verdict:
    return world.tell(world.topic(TopicMove.PRUNE, segment_ids=ids))


def test_what_nobody_has_to_read_is_pruned(world: World) -> None:
    for name in ("first", "second"):
        world.must(world.subscription(SubscriptionOp.CREATE, name))
    world.committed(Operation.SPLIT, split(world))
    assert drained(world, 0, name="first") is Verdict.ACCEPTED
    assert prune(world, 0) is Verdict.NOT_DRAINED
    assert drained(world, 0, name="second") is Verdict.ACCEPTED
    assert prune(world, 0) is Verdict.ACCEPTED


def test_parents_are_pruned_before_or_with_their_children() -> None:
    world = opened(1)
    world.committed(Operation.SPLIT, split(world))
    world.committed(Operation.SPLIT, split(world, 1))
    for ids in ((1,), (), (0, 0), (0, 2), (2,), (9,)):
        assert prune(world, *ids) is Verdict.NOT_DRAINED, ids
    assert prune(world, 1, 0) is Verdict.ACCEPTED
    assert [part.segment_id for part in world.scalable().garbage] == [0, 1]


# --- scalable topics in the log: every arrow and guard, an operation's steps, subscriptions -------


# --- from creation to removal ---------------------------------------------------------------


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
