"""What records do to a topic whose Kafka topic was cut over, and is given back to its writers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.core.entities.giving_back import give_back_children
from anabranch.core.entities.segment import SegmentInfo, legacy_segment
from anabranch.core.entities.subscription import SegmentPositions, SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, TopicMove
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.verdicts import Verdict
from anabranch.core.subscriptions.draining import assignable
from anabranch.core.topics.retention import prunable, prunable_at_ms, unsettled_s
from anabranch.core.topics.tasks import DeleteSegments, MakeSegments, SealSegments, next_task
from support.there import there
from support.topics import layout, opened, owned, split
from support.world import FIRST, TOPIC, A, World

KAFKA = "old-orders"
LISTED = "public/default=old-*"
OLD = legacy_segment(KAFKA, "id-1", 3, "murmur2", 900)
ENDS = (4, 0, 7)
OWN = ("max.message.bytes", "2000")


def cut_over(own: tuple[str, ...] = OWN, *, keeps: bool = False) -> World:
    """Segment 0 is Kafka's, sealed; 1 and 2 have taken over. Subscription `sub` is at the start."""
    world = owned()
    world.must(world.topic(TopicMove.CREATE, segments=(OLD,), adoptable=LISTED))
    world.must(world.topic(TopicMove.OPEN))
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.must(world.begin(Operation.PREPARE, layout(world).prepare_children(2), keeps=keeps))
    world.must(world.topic(TopicMove.SEALING, properties=own))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=ENDS))
    return world


def read(world: World, *segments: int, name: str = "sub") -> World:
    world.must(world.subscription(SubscriptionOp.DRAINED, name, segment_ids=segments))
    return world


def given_back() -> World:
    world = read(cut_over(), 0)
    world.committed(Operation.GIVE_BACK, give_back_children(layout(world)))
    return world


def test_the_kafka_topic_goes_on_at_its_old_ends_in_place_of_all_segments() -> None:
    world = given_back()
    (part,) = layout(world).active
    assert (part.legacy_topic, part.topic_id, part.partitioner) == (KAFKA, "id-1", "murmur2")
    assert (part.start, part.end, part.buckets, part.bytes_max) == (0, 0xFFFF, 3, 900)
    assert (part.start_offsets, part.parent_ids) == (ENDS, (1, 2))
    assert world.scalable().adopted == part


@pytest.mark.parametrize(("keeps", "gone"), [(False, (0, 1)), (True, ())])
def test_a_kafka_topic_that_is_kept_stays_in_the_layout_with_all_that_descends_from_it(
    keeps: bool, gone: tuple[int, ...]
) -> None:
    world = cut_over(keeps=keeps)
    world.must(world.subscription(SubscriptionOp.DELETE))
    world.committed(Operation.SPLIT, split(world, 1))
    topic = world.scalable()
    at_ms = topic.segments[1].sealed_at_ms + 10_000
    assert prunable(world.replica, TOPIC, topic, at_ms, 10.0) == gone
    assert (prunable_at_ms(world.replica, TOPIC, topic, 10.0) is None) is keeps


def test_the_sealed_part_of_the_kafka_topic_leaves_the_layout_as_the_new_one_enters() -> None:
    world = given_back()
    assert sorted(layout(world).segments) == [1, 2, 3]
    assert [part.parent_ids for part in layout(world).segments.values()] == [(), (), (1, 2)]
    assert world.scalable().garbage == ()
    assert world.subscribed().drained == ()


def test_no_subscription_goes_on_before_the_old_ends() -> None:
    world = given_back()
    assert world.subscribed().positions == (SegmentPositions(3, ENDS),)


def test_the_kafka_topic_is_read_after_all_that_came_between() -> None:
    world = given_back()
    assert [part.segment_id for part in assignable(layout(world), ())] == [1, 2]
    assert [part.segment_id for part in assignable(layout(world), (1, 2))] == [3]


def test_a_subscription_that_has_yet_to_read_the_kafka_topic_keeps_it_sealed() -> None:
    world = cut_over()
    begin = world.begin(Operation.GIVE_BACK, give_back_children(layout(world)))
    assert world.tell(begin) is Verdict.NOT_DRAINED


def test_a_queue_keeps_the_kafka_topic_sealed_though_it_has_read_it() -> None:
    world = read(cut_over(), 0)
    queue = SubscriptionKind.QUEUE
    world.must(world.subscription(SubscriptionOp.CREATE, "jobs", kind=queue, segment_ids=(0,)))
    begin = world.begin(Operation.GIVE_BACK, give_back_children(layout(world)))
    assert world.tell(begin) is Verdict.NOT_DRAINED


@pytest.mark.parametrize(
    "change",
    [
        {"start_offsets": (4, 0, 6)},
        {"start_offsets": ()},
        {"legacy_topic": "another"},
        {"topic_id": "id-2"},
        {"partitioner": "crc32"},
        {"buckets": 4},
    ],
    ids=str,
)
def test_nothing_but_what_was_cut_over_is_given_back(change: dict[str, object]) -> None:
    world = read(cut_over(), 0)
    (child,) = give_back_children(layout(world))
    begin = world.begin(Operation.GIVE_BACK, (replace(child, **change),))
    assert world.tell(begin) is Verdict.SEGMENTS_INVALID


def test_a_part_of_the_ring_is_not_given_back() -> None:
    world = read(cut_over(), 0)
    (child,) = give_back_children(layout(world))
    part = replace(child, end=0x7FFF, parent_ids=(1,))
    assert world.tell(world.begin(Operation.GIVE_BACK, (part,))) is Verdict.SEGMENTS_INVALID


@pytest.mark.parametrize("other", [Operation.PREPARE, Operation.MERGE])
def test_no_other_operation_gives_back(other: Operation) -> None:
    world = read(cut_over(), 0)
    begin = world.begin(other, give_back_children(layout(world)))
    assert world.tell(begin) is Verdict.SEGMENTS_INVALID


def test_what_was_never_adopted_or_is_pruned_cannot_be_given_back() -> None:
    world = read(cut_over(), 0)
    world.must(world.topic(TopicMove.PRUNE, segment_ids=(0,)))
    for each in (world, opened()):
        with pytest.raises(InvalidInputError, match="no adopted Kafka topic"):
            give_back_children(layout(each))


def test_what_is_given_back_already_needs_nothing() -> None:
    assert give_back_children(layout(given_back())) == ()


def test_first_the_kafka_topic_is_compared_with_what_it_was() -> None:
    world = read(cut_over(), 0)
    world.must(world.begin(Operation.GIVE_BACK, give_back_children(layout(world))))
    task = next_task(world.replica, TOPIC, world.scalable())
    assert isinstance(task, MakeSegments)
    assert [part.legacy_topic for part in task.segments] == [KAFKA]
    assert (task.opened, task.own_settings) == (layout(world).segments[0], OWN)


def test_the_kafka_topic_is_opened_by_the_settings_that_its_seal_had_replaced() -> None:
    world = read(cut_over(), 0)
    sealed = layout(world).segments[0]
    world.must(world.begin(Operation.GIVE_BACK, give_back_children(layout(world))))
    world.must(world.topic(TopicMove.SEALING))
    task = next_task(world.replica, TOPIC, world.scalable())
    assert isinstance(task, SealSegments)
    assert [part.segment_id for part in task.segments] == [1, 2]
    assert (task.opened, task.own_settings) == (sealed, OWN)


def test_a_second_cut_over_forgets_the_settings_of_the_first() -> None:
    world = given_back()
    world.must(world.begin(Operation.PREPARE, layout(world).prepare_children(1)))
    world.must(world.topic(TopicMove.SEALING))
    assert world.scalable().own_settings == ()


def test_it_can_be_cut_over_and_given_back_again_once_nothing_is_above_it() -> None:
    world = read(given_back(), 1, 2)
    later = (5, 3, 9)
    world.committed(Operation.PREPARE, layout(world).prepare_children(1), end_offsets=later)
    again = read(world, 3)
    begin = again.begin(Operation.GIVE_BACK, give_back_children(layout(again)))
    assert again.tell(begin) is Verdict.NOT_DRAINED
    again.must(again.topic(TopicMove.PRUNE, segment_ids=(1, 2)))
    again.committed(Operation.GIVE_BACK, give_back_children(layout(again)))
    assert layout(again).active[0].start_offsets == later


def test_giving_back_undone_leaves_the_kafka_topic_sealed_in_the_layout_and_in_kafka() -> None:
    world = read(cut_over(), 0)
    before = layout(world).segments
    world.must(world.begin(Operation.GIVE_BACK, give_back_children(layout(world))))
    world.must(world.topic(TopicMove.ABORT))
    assert (layout(world).segments, world.scalable().garbage) == (before, ())


def test_a_topic_deleted_while_it_is_given_back_leaves_the_kafka_topic_in_kafka() -> None:
    world = read(cut_over(), 0)
    world.must(world.begin(Operation.GIVE_BACK, give_back_children(layout(world))))
    world.must(world.topic(TopicMove.DELETE))
    task = next_task(world.replica, TOPIC, world.scalable())
    assert isinstance(task, DeleteSegments)
    assert [part.segment_id for part in task.segments] == [1, 2]


@pytest.mark.parametrize("op", [SubscriptionOp.CREATE, SubscriptionOp.RESET])
def test_nobody_begins_in_the_kafka_topic_while_it_is_given_back(op: SubscriptionOp) -> None:
    world = read(cut_over(), 0)
    world.must(world.begin(Operation.GIVE_BACK, give_back_children(layout(world))))
    name = "new" if op is SubscriptionOp.CREATE else "sub"
    assert world.tell(world.subscription(op, name)) is Verdict.TOPIC_BUSY


@pytest.mark.parametrize("positions", [(), (SegmentPositions(3, (4, 0, 6)),)], ids=["none", "low"])
@pytest.mark.parametrize(
    "op", [SubscriptionOp.CREATE, SubscriptionOp.RESET, SubscriptionOp.POSITIONS]
)
def test_nobody_begins_before_the_old_ends(
    op: SubscriptionOp, positions: tuple[SegmentPositions, ...]
) -> None:
    world = given_back()
    name = "new" if op is SubscriptionOp.CREATE else "sub"
    wrong = world.subscription(op, name, positions=positions)
    assert world.tell(wrong) is Verdict.SEGMENTS_INVALID
    right = world.subscription(op, name, positions=(SegmentPositions(3, (4, 1, 7)),))
    assert world.tell(right) is Verdict.ACCEPTED


def test_what_is_given_back_and_lost_later_keeps_nobody_from_beginning() -> None:
    """Kafka's topic is gone: its segment ends where it began, and holds nothing."""
    world = given_back()
    world.committed(Operation.PREPARE, layout(world).prepare_children(1), end_offsets=(5, 3, 9))
    world.must(world.topic(TopicMove.LOST, segment_ids=(3,), end_offsets=(5, 3, 9)))
    assert world.tell(world.subscription(SubscriptionOp.CREATE, "new")) is Verdict.ACCEPTED
    assert world.tell(world.subscription(SubscriptionOp.RESET)) is Verdict.ACCEPTED


def test_a_position_that_was_written_down_while_it_is_given_back_stands_once() -> None:
    world = read(cut_over(), 0)
    world.must(world.begin(Operation.GIVE_BACK, give_back_children(layout(world))))
    world.must(world.topic(TopicMove.SEALING))
    early = (SegmentPositions(3, (6, 1, 7)),)
    world.must(world.subscription(SubscriptionOp.POSITIONS, positions=early))
    ends = (0,) * sum(part.buckets for part in layout(world).active)
    world.must(world.topic(TopicMove.COMMIT, end_offsets=ends))
    assert [each.segment_id for each in world.subscribed().positions] == [3]


def test_no_topic_begins_with_a_kafka_topic_that_is_not_whole() -> None:
    world = owned()
    late = replace(OLD, start_offsets=ENDS)
    create = world.topic(TopicMove.CREATE, segments=(late,), adoptable=LISTED)
    assert world.tell(create) is Verdict.SEGMENTS_INVALID


def test_giving_back_takes_an_administrator() -> None:
    world = read(cut_over(), 0)
    world.grants(FIRST, "ada", "scale")
    world.authorizing(A)
    (child,) = give_back_children(layout(world))
    begin = world.begin(Operation.GIVE_BACK, (child,), principal="ada")
    assert world.tell(begin) is Verdict.NOT_PERMITTED


def test_a_bucket_begins_where_the_one_before_it_ended() -> None:
    part: SegmentInfo = layout(given_back()).active[0]
    assert [part.first_offset(bucket) for bucket in range(3)] == list(ENDS)
    assert OLD.first_offset(2) == 0


def test_a_kafka_topic_may_act_late_for_a_time_after_its_seal_and_after_its_opening() -> None:
    sealed = there(cut_over().scalable().cut_over)
    assert unsettled_s(sealed, sealed.sealed_at_ms + 4_000, 10.0) == 6.0
    opened_again = there(given_back().scalable().adopted)
    assert unsettled_s(opened_again, opened_again.created_at_ms + 4_000, 10.0) == 6.0
    never_cut_over = legacy_segment(KAFKA, "id-1", 3, "murmur2", 900)
    assert unsettled_s(never_cut_over, 0, 10.0) == 0.0
