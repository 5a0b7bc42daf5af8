"""Prepare: all active segments become a wanted number of equal ones, in one operation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.segment import BUCKETS_MAX, SegmentInfo, new_segment, stretches
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.verdicts import Verdict
from anabranch.core.subscriptions.draining import assignable
from support.topics import layout, opened
from support.world import World

_PREPARE = Operation.PREPARE


def ranges(parts: tuple[SegmentInfo, ...]) -> list[tuple[int, int]]:
    return [part.range for part in parts]


def changed(part: SegmentInfo, **fields: Any) -> SegmentInfo:
    return msgspec.structs.replace(part, **fields)


# --- its children ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 65_536])
def test_the_ranges_are_those_of_a_new_topic_of_so_many_segments(count: int) -> None:
    prepared = SegmentLayout.initial(5).prepare_segments(count)
    assert ranges(prepared.active) == ranges(initial_segments(count))
    assert prepared.epoch == 1


def test_a_child_descends_from_those_whose_hashes_it_takes_and_from_no_other() -> None:
    prepared = SegmentLayout.initial(3).prepare_segments(2)
    assert [(part.segment_id, part.parent_ids) for part in prepared.active] == [
        (3, (0, 1)),
        (4, (1, 2)),
    ]
    assert [prepared.segments[each].child_ids for each in range(3)] == [(3,), (3, 4), (4,)]


def test_parents_are_named_by_their_ids_upwards_wherever_they_lie() -> None:
    turned = SegmentLayout.initial(4).split_segment(1).split_segment(0)
    assert [part.segment_id for part in turned.active] == [6, 7, 4, 5, 2, 3]
    (low, high) = turned.prepare_children(2)
    assert (low.parent_ids, high.parent_ids) == ((4, 5, 6, 7), (2, 3))


def test_a_segment_that_has_a_wanted_range_stays() -> None:
    halved = SegmentLayout.initial(4).split_segment(2)
    (child,) = halved.prepare_children(4)
    assert (child.range, child.parent_ids) == ((0x8000, 0xBFFF), (4, 5))
    assert [part.segment_id for part in halved.prepare_segments(4).active] == [0, 1, 6, 3]


def test_what_lies_between_segments_that_stay_need_not_be_neighbours() -> None:
    world = opened(4)
    world.committed(Operation.SPLIT, layout(world).split_children(0))
    world.committed(Operation.SPLIT, layout(world).split_children(2))
    world.committed(_PREPARE, layout(world).prepare_children(4))
    assert [part.segment_id for part in layout(world).active] == [8, 1, 9, 3]


def test_what_is_prepared_already_needs_nothing() -> None:
    ready = SegmentLayout.initial(8)
    assert ready.prepare_children(8) == ()
    assert ready.prepare_segments(8) is ready
    uneven = ready.rebucket_segment(3, 5)
    assert uneven.prepare_children(8) == ()
    assert [part.range for part in uneven.prepare_children(8, 1)] == [ready.active[3].range]
    assert len(uneven.prepare_children(8, 5)) == 7


@pytest.mark.parametrize(
    ("before", "buckets_before", "after", "buckets"),
    [(1, 4, 8, 1), (1, 32, 8, 4), (8, 1, 3, 2), (4, 1, 1, 4), (2, 1024, 1, 1024), (3, 7, 2, 10)],
)
def test_new_segments_share_out_the_buckets_of_those_before(
    before: int, buckets_before: int, after: int, buckets: int
) -> None:
    first = SegmentLayout.initial(before, before * buckets_before)
    assert {part.buckets for part in first.prepare_children(after)} == {buckets}
    assert {part.buckets for part in first.prepare_children(after, 3)} == {3}
    assert {part.buckets for part in first.prepare_children(after, None, 2)} == {min(2, buckets)}


def test_a_segment_that_stays_keeps_its_buckets_to_itself() -> None:
    grown = SegmentLayout.initial(2).rebucket_segment(1, 100).split_segment(0)
    assert [part.buckets for part in grown.prepare_segments(2).active] == [2, 100]


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_a_number_of_segments_that_there_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(InvalidInputError, match=rf"segmentCount must be in \[1, 65536\]: {count}"):
        SegmentLayout.initial(2).prepare_children(count)


@pytest.mark.parametrize("buckets", [0, -1, 9])
def test_a_number_of_buckets_beyond_the_most_is_refused(buckets: int) -> None:
    with pytest.raises(InvalidInputError, match=rf"bucketCount must be in \[1, 8\]: {buckets}"):
        SegmentLayout.initial(2).prepare_children(3, buckets, 8)
    assert SegmentLayout.initial(2).prepare_children(3, 8, 8)


def test_a_child_of_several_counts_as_one_merge_and_a_child_of_one_as_none() -> None:
    prepared = SegmentLayout.initial(3).prepare_segments(2)
    assert [prepared.merge_depth(part.segment_id) for part in prepared.active] == [1, 1]
    wide = SegmentLayout.initial(1).prepare_segments(8)
    assert {wide.merge_depth(part.segment_id) for part in wide.active} == {0}


# --- its guard ------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """Three segments, of which the children of a prepare to two would be 3 and 4."""
    return opened(3)


def refused(world: World, children: tuple[SegmentInfo, ...], **fields: Any) -> bool:
    verdict = world.tell(world.begin(_PREPARE, children, **fields))
    assert verdict in (Verdict.SEGMENTS_INVALID, Verdict.ACCEPTED)
    return verdict is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize(
    "fields",
    [
        {"parent_ids": (0,)},  # would be read before what it has keys of
        {"parent_ids": ()},
        {"parent_ids": (0, 1, 2)},  # would wait for what it has no keys of
        {"parent_ids": (0, 2)},
        {"parent_ids": (0, 0, 1)},
        {"parent_ids": (0, 1, 9)},
        {"segment_id": 2},
        {"segment_id": 4},
        {"start": 1},
        {"end": 0x7FFE},
        {"end": 0x8000},
        {"start": 0x7FFF, "end": 0x7FFE},
        {"buckets": 0},
        {"buckets": BUCKETS_MAX + 1},
        {"child_ids": (1,)},
        {"end_offsets": (0,)},
    ],
)
def test_a_child_with_a_wrong_field_does_not_fit(world: World, fields: dict[str, Any]) -> None:
    low, high = layout(world).prepare_children(2)
    assert refused(world, (changed(low, **fields), high), parents=(0, 1, 2))
    assert not refused(world, (low, high), parents=(2, 0, 1))


@pytest.mark.parametrize(
    "parents", [(), (0,), (0, 1), (0, 1, 2, 9), (0, 1, 1, 2), (0, 1, 2, 2), (9,), (0, 2)]
)
def test_the_children_take_the_place_of_all_parents_and_of_nothing_else(
    world: World, parents: tuple[int, ...]
) -> None:
    assert refused(world, layout(world).prepare_children(2), parents=parents)


def test_children_leave_no_gap_and_share_no_hash(world: World) -> None:
    low, high = layout(world).prepare_children(2)
    for children in (
        (),
        (low,),
        (low, high, changed(high, segment_id=5)),
        (low, changed(high, start=0x7FFF)),
        (low, changed(high, start=0x8001)),
    ):
        assert refused(world, children, parents=(0, 1, 2))


def test_no_parent_is_named_twice_for_children_that_share_its_hashes() -> None:
    world = opened(2)
    twins = (new_segment(2, 0, 0x7FFF, 1, (0,)), new_segment(3, 0, 0x7FFF, 1, (0,)))
    assert refused(world, twins, parents=(0, 0))


@pytest.mark.parametrize(
    ("given", "covered"),
    [
        ([], []),
        ([(5, 5)], [(5, 5)]),
        ([(8, 9), (0, 7)], [(0, 9)]),
        ([(9, 9), (0, 3), (5, 8)], [(0, 3), (5, 9)]),
        ([(0, 3), (3, 5)], None),
        ([(3, 3), (3, 3)], None),
        ([(0, 9), (2, 3)], None),
        ([(0, 3), (8, 9), (9, 12)], None),
        ([(4, 3)], None),
        ([(0, 3), (9, 8)], None),
    ],
)
def test_the_stretches_that_segments_cover_are_told_unless_a_hash_is_covered_twice(
    given: list[tuple[int, int]], covered: list[tuple[int, int]] | None
) -> None:
    assert stretches([new_segment(0, start, end, 1) for start, end in given]) == covered


def test_the_ends_of_segments_are_no_part_of_its_begin(world: World) -> None:
    children = layout(world).prepare_children(2)
    assert refused(world, children, end_offsets=(1, 2))


def test_a_sealed_segment_is_no_parent() -> None:
    world = opened(2)
    world.committed(Operation.SPLIT, layout(world).split_children(0))
    stale = SegmentLayout(1, 4, initial_segments(2)).prepare_children(3)
    assert refused(world, stale)


def test_there_is_one_operation_at_a_time(world: World) -> None:
    world.must(world.begin(_PREPARE, layout(world).prepare_children(2)))
    again = world.begin(_PREPARE, layout(world).prepare_children(4))
    assert world.tell(again) is Verdict.ILLEGAL_MOVE


@pytest.mark.parametrize("operation", [Operation.SPLIT, Operation.MERGE])
def test_many_parents_with_many_children_are_nothing_but_a_prepare(
    world: World, operation: Operation
) -> None:
    begin = world.begin(operation, layout(world).prepare_children(2))
    assert world.tell(begin) is Verdict.SEGMENTS_INVALID


# --- what it makes --------------------------------------------------------------------------


def test_each_parent_gets_its_own_ends_whatever_its_number_of_buckets() -> None:
    world = opened(3)
    world.committed(Operation.REBUCKET, layout(world).rebucket_children(1, 3))
    children = layout(world).prepare_children(2)
    assert [child.parent_ids for child in children] == [(0, 3), (2, 3)]
    world.committed(_PREPARE, children, end_offsets=(7, 1, 2, 3, 9))
    known = layout(world).segments
    assert [known[each].end_offsets for each in (0, 3, 2)] == [(7,), (1, 2, 3), (9,)]
    assert (layout(world).epoch, world.scalable().operation) == (2, Operation.NONE)


@pytest.mark.parametrize("ends", [(), (1, 2), (1, 2, 3, 4), (1, 2, -1)])
def test_its_commit_brings_an_end_of_each_partition_of_each_parent(
    world: World, ends: tuple[int, ...]
) -> None:
    world.must(world.begin(_PREPARE, layout(world).prepare_children(2)))
    world.must(world.topic(TopicMove.SEALING))
    assert world.tell(world.topic(TopicMove.COMMIT, end_offsets=ends)) is Verdict.ENDS_INCOMPLETE


def test_it_starts_the_cooldowns_of_splits_and_of_merges(world: World) -> None:
    world.committed(_PREPARE, layout(world).prepare_children(2))
    topic = world.scalable()
    assert topic.split_ms == topic.merge_ms == topic.since_ms > 0
    assert topic.rebucket_ms == 0


def test_a_consumer_gets_a_child_once_the_parents_whose_hashes_it_has_are_drained(
    world: World,
) -> None:
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.committed(_PREPARE, layout(world).prepare_children(2))

    def readable(*drained: int) -> list[int]:
        return [part.segment_id for part in assignable(layout(world), drained)]

    assert readable() == [0, 1, 2]
    assert readable(0) == [1, 2]
    assert readable(0, 1) == [3, 2]
    assert readable(1, 2) == [0, 4]
    assert readable(0, 1, 2) == [3, 4]


def test_one_that_is_given_up_leaves_the_layout_and_its_children_to_be_deleted(
    world: World,
) -> None:
    before = layout(world)
    world.must(world.begin(_PREPARE, before.prepare_children(8)))
    world.must(world.topic(TopicMove.ABORT))
    assert layout(world).active == before.active
    assert [part.segment_id for part in world.scalable().garbage] == list(range(3, 11))


def test_a_segment_of_many_partitions_gives_way_to_many_children_at_once() -> None:
    world = opened(1)
    children = layout(world).prepare_children(6)
    assert {child.parent_ids for child in children} == {(0,)}
    world.committed(_PREPARE, children, end_offsets=(5, 6, 7, 8))
    assert layout(world).segments[0].child_ids == (1, 2, 3, 4, 5, 6)
    assert new_segment(1, *children[0].range, 1, (0,)).range == layout(world).active[0].range
