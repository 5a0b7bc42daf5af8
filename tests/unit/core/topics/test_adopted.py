"""What records do to a topic that a Kafka topic became: adopted, cut over, left in Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.core.entities.segment import (
    BUCKETS_MAX,
    SegmentInfo,
    legacy_segment,
    new_segment,
)
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.hashing import bucket_of, hash32
from anabranch.core.log.verdicts import Verdict
from anabranch.core.partitioners import Partitioner, partition_of
from anabranch.core.topics.tasks import DeleteSegments, MakeSegments, next_task
from support.topics import layout, owned, split
from support.world import FIRST, TOPIC, A, World

KAFKA = "old-orders"
LISTED = "public/default=old-*"
OLD = legacy_segment(KAFKA, "id-1", 12, "murmur2")
ENDS = tuple(range(12))


def adopted(part: SegmentInfo = OLD) -> World:
    world = owned()
    create = world.topic(TopicMove.CREATE, segments=(part,), adoptable=LISTED)
    assert world.tell(create) is Verdict.ACCEPTED
    assert world.tell(world.topic(TopicMove.OPEN)) is Verdict.ACCEPTED
    return world


def cut_over(count: int = 4) -> World:
    world = adopted()
    children = layout(world).prepare_children(count)
    assert world.tell(world.begin(Operation.PREPARE, children)) is Verdict.ACCEPTED
    assert world.tell(world.topic(TopicMove.SEALING)) is Verdict.ACCEPTED
    assert world.tell(world.topic(TopicMove.COMMIT, end_offsets=ENDS)) is Verdict.ACCEPTED
    return world


@pytest.mark.parametrize(
    "entry", ["", "public/default=orders", "public/other=old-*", "public/default=", "old-orders"]
)
def test_a_kafka_topic_that_no_entry_names_is_not_adopted(entry: str) -> None:
    world = owned()
    create = world.topic(TopicMove.CREATE, segments=(OLD,), adoptable=entry)
    assert world.tell(create) is Verdict.NOT_ADOPTABLE


def test_a_kafka_topic_is_adopted_once_in_a_namespace() -> None:
    world = adopted()
    again = world.topic(TopicMove.CREATE, segments=(OLD,), adoptable=LISTED)
    again = replace(again, topic="public/default/again", version=1)
    assert world.tell(again) is Verdict.ALREADY_ADOPTED


@pytest.mark.parametrize(
    "parts",
    [
        (replace(OLD, end=0x7FFF), new_segment(1, 0x8000, 0xFFFF, 1)),
        (replace(OLD, end=0x7FFF),),
        (replace(new_segment(0, 0, 0xFFFF, 1), partitioner="murmur2"),),
        (replace(OLD, buckets=1_025),),
    ],
)
def test_an_adopted_topic_is_one_segment_that_covers_the_ring(
    parts: tuple[SegmentInfo, ...],
) -> None:
    world = owned()
    create = world.topic(TopicMove.CREATE, segments=parts, adoptable=LISTED)
    assert world.tell(create) is Verdict.SEGMENTS_INVALID


def test_a_kafka_topic_becomes_segment_0_over_the_ring_with_its_partitions_as_buckets() -> None:
    (part,) = layout(adopted()).active
    assert part == replace(OLD, created_at_epoch=0, created_at_ms=part.created_at_ms)
    assert (part.segment_id, part.start, part.end, part.buckets) == (0, 0, 0xFFFF, 12)
    assert (part.topic_id, part.legacy_topic, part.partitioner) == ("id-1", KAFKA, "murmur2")
    assert legacy_segment(KAFKA, "", BUCKETS_MAX).partitioner == ""
    adopted(legacy_segment(KAFKA, "", BUCKETS_MAX))


@given(st.text(), st.sampled_from(Partitioner), st.integers(1, 20))
def test_a_key_has_the_partition_that_the_topics_own_writers_give_it(
    key: str, partitioner: Partitioner, partitions: int
) -> None:
    part, data = legacy_segment(KAFKA, "", partitions, partitioner.value), key.encode()
    wanted = partition_of(partitioner, data, partitions)
    assert part.bucket(key, hash32(key)) == part.bucket(data, hash32(data)) == wanted


@pytest.mark.parametrize("unknown", ["", "of a later release"])
def test_a_key_has_no_partition_where_it_is_not_known_how_writers_find_it(unknown: str) -> None:
    assert legacy_segment(KAFKA, "", 12, unknown).bucket("order-17", hash32("order-17")) == -1


@given(st.binary(), st.integers(1, 20))
def test_a_key_has_its_own_bucket_in_a_segment_of_our_making(key: bytes, buckets: int) -> None:
    position = hash32(key)
    assert new_segment(3, 0, 0xFFFF, buckets).bucket(key, position) == bucket_of(position, buckets)


@pytest.mark.parametrize("operation", [Operation.SPLIT, Operation.REBUCKET, Operation.RESTORE])
def test_only_the_cut_over_replaces_an_adopted_segment(operation: Operation) -> None:
    world = adopted()
    children = {
        Operation.SPLIT: lambda: split(world),
        Operation.REBUCKET: lambda: layout(world).rebucket_children(0, 3),
        Operation.RESTORE: lambda: layout(world).restore_children(0),
    }[operation]()
    assert world.tell(world.begin(operation, children)) is Verdict.SEGMENTS_INVALID


def test_a_cut_over_to_one_segment_replaces_the_adopted_one() -> None:
    world = cut_over(1)
    (child,) = layout(world).active
    assert (child.segment_id, child.parent_ids, child.is_legacy) == (1, (0,), False)
    assert layout(world).segments[0].end_offsets == ENDS


def test_every_child_of_a_cut_over_waits_for_the_adopted_segment() -> None:
    world = cut_over(8)
    assert [part.parent_ids for part in layout(world).active] == [(0,)] * 8


def test_no_child_is_an_adopted_segment() -> None:
    world = cut_over(1)
    child = replace(layout(world).rebucket_children(1, 3)[0], legacy_topic=KAFKA)
    assert world.tell(world.begin(Operation.REBUCKET, (child,))) is Verdict.SEGMENTS_INVALID


def test_an_id_of_kafka_that_the_survey_told_stays_where_nobody_tells_it_again() -> None:
    world = owned()
    world.must(world.topic(TopicMove.CREATE, segments=(OLD,), adoptable=LISTED))
    world.must(world.topic(TopicMove.OPEN, topic_ids=("",)))
    assert world.scalable().segments[0].topic_id == OLD.topic_id


@pytest.mark.parametrize(("partitions", "depth"), [(12, 1), (1, 0)])
def test_children_of_several_old_partitions_count_as_merged_of_them(
    partitions: int, depth: int
) -> None:
    world = adopted(replace(OLD, buckets=partitions))
    children = layout(world).prepare_children(2)
    after = layout(world).replaced((0,), children, {}, 0)
    assert {after.merge_depth(part.segment_id) for part in after.active} == {depth}


def test_a_cut_over_takes_an_administrator_where_a_split_takes_less() -> None:
    world = adopted()
    world.grants(FIRST, "ada", "scale")
    world.authorizing(A)
    children = layout(world).prepare_children(2)
    begin = world.begin(Operation.PREPARE, children, principal="ada")
    assert world.tell(begin) is Verdict.NOT_PERMITTED


def test_before_a_cut_over_the_adopted_topic_is_compared_with_what_it_was() -> None:
    world = adopted()
    begin = world.begin(Operation.PREPARE, layout(world).prepare_children(2))
    assert world.tell(begin) is Verdict.ACCEPTED
    task = next_task(world.replica, TOPIC, world.scalable())
    assert isinstance(task, MakeSegments)
    assert [part.legacy_topic for part in task.legacy] == [KAFKA]
    assert not any(part.is_legacy for part in task.segments)


def test_an_adopted_topic_is_left_in_kafka_when_it_is_pruned() -> None:
    world = cut_over(2)
    assert world.tell(world.topic(TopicMove.PRUNE, segment_ids=(0,))) is Verdict.ACCEPTED
    assert world.scalable().garbage == ()
    assert [part.segment_id for part in layout(world).active] == [1, 2]


@pytest.mark.parametrize("world", [adopted, cut_over])
def test_an_adopted_topic_is_left_in_kafka_when_its_scalable_topic_is_deleted(
    world: Callable[[], World],
) -> None:
    made = world()
    assert made.tell(made.topic(TopicMove.DELETE)) is Verdict.ACCEPTED
    task = next_task(made.replica, TOPIC, made.scalable())
    assert isinstance(task, DeleteSegments)
    assert not any(part.is_legacy for part in task.segments)
