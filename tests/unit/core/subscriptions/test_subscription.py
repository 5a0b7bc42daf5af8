"""Subscriptions of scalable topics in the log: creation, consumers, drains."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.subscription import (
    DELIVERIES_MAX,
    NOBODY,
    PRUNED_MAX,
    SegmentPositions,
    SubscriptionKind,
    SubscriptionOp,
    dead_letter_topic,
)
from anabranch.core.entities.topic import Operation, TopicMove, TopicState
from anabranch.core.log.verdicts import Verdict
from support.topics import opened, owned, split
from support.world import TOPIC, World


def read(segments: int = 2) -> World:
    """A topic with a subscription."""
    world = opened(segments)
    world.must(world.subscription(SubscriptionOp.CREATE))
    return world


def drained(world: World, *ids: int, name: str = "sub") -> Verdict:
    return world.tell(world.subscription(SubscriptionOp.DRAINED, name, segment_ids=ids))


# --- subscriptions --------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return opened()


@pytest.mark.parametrize("kind", list(SubscriptionKind))
def test_a_subscription_is_created_once(world: World, kind: SubscriptionKind) -> None:
    create = world.subscription(SubscriptionOp.CREATE, kind=kind)
    other = world.subscription(SubscriptionOp.CREATE)
    offset = world.fold(create).offset
    found = world.subscribed()
    assert (found.kind, found.created_offset, found.version) == (kind, offset, offset + 1)
    assert world.tell(create) is Verdict.REPEATED
    assert world.tell(other) is Verdict.STALE_VERSION
    assert world.tell(world.subscription(SubscriptionOp.CREATE)) is Verdict.ILLEGAL_MOVE
    assert [name for name, _ in world.replica.subscriptions(TOPIC)] == ["sub"]


def test_consumers_join_once_and_are_kept_by_name() -> None:
    world = read()
    for name in ("c-9", "c-10", "B"):
        world.must(world.subscription(SubscriptionOp.JOIN, consumer=name))
    assert world.subscribed().consumers == ("B", "c-10", "c-9")
    again = world.subscription(SubscriptionOp.JOIN, consumer="c-9")
    assert world.tell(again) is Verdict.CONSUMER_EXISTS
    world.must(world.subscription(SubscriptionOp.LEAVE, consumer="c-10"))
    assert world.subscribed().consumers == ("B", "c-9")
    gone = world.subscription(SubscriptionOp.LEAVE, consumer="c-10")
    assert world.tell(gone) is Verdict.UNKNOWN_CONSUMER


def test_a_name_is_a_processs_own_or_free_for_any_once_its_last_one_has_ended() -> None:
    world = read()
    assert not world.subscribed().knows("c", 3)
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c", instance=3))
    assert world.subscribed().knows("c", 3)
    assert not world.subscribed().knows("c", 4)
    world.must(world.subscription(SubscriptionOp.LAPSED, consumer="c", instance=3))
    assert world.subscribed().knows("c", 4)


def test_a_queue_may_be_told_to_keep_dead_letters_and_to_keep_none(world: World) -> None:
    where: dict[str, Any] = {"dead_letter": dead_letter_topic(TOPIC, "sub")}
    where |= {"kind": SubscriptionKind.QUEUE, "deliveries_max": DELIVERIES_MAX}
    world.must(world.subscription(SubscriptionOp.CREATE, **where))
    assert world.subscribed().deliveries_max == 9
    world.must(world.subscription(SubscriptionOp.DEAD_LETTER))
    assert (world.subscribed().dead_letter, world.subscribed().deliveries_max) == ("", 0)


@pytest.mark.parametrize(
    ("where", "tries"),
    [
        *(("public/default/aside", 0), ("public/default/aside", DELIVERIES_MAX + 1), ("", 5)),
        *((TOPIC, 5), ("topic://public/default/aside", 5), ("aside", 5), ("public/default/a b", 5)),
    ],
)
@pytest.mark.parametrize("op", [SubscriptionOp.CREATE, SubscriptionOp.DEAD_LETTER])
def test_dead_letters_that_could_not_be_kept_are_refused(
    world: World, op: SubscriptionOp, where: str, tries: int
) -> None:
    if op is not SubscriptionOp.CREATE:
        world.must(world.subscription(SubscriptionOp.CREATE, kind=SubscriptionKind.QUEUE))
    record = world.subscription(
        op, kind=SubscriptionKind.QUEUE, dead_letter=where, deliveries_max=tries
    )
    assert world.tell(record) is Verdict.INVALID_VALUE


def test_a_stream_has_dead_letters_without_a_number_of_tries(world: World) -> None:
    where: dict[str, Any] = {"dead_letter": "public/default/aside"}
    world.must(world.subscription(SubscriptionOp.CREATE, kind=SubscriptionKind.STREAM, **where))
    assert (world.subscribed().dead_letter, world.subscribed().deliveries_max) == (
        "public/default/aside",
        0,
    )


@pytest.mark.parametrize(
    ("kind", "tries"),
    [
        (SubscriptionKind.STREAM, 5),
        (SubscriptionKind.CHECKPOINT, 0),
        (SubscriptionKind.CHECKPOINT, 5),
    ],
)
def test_who_counts_otherwise_or_keeps_its_own_positions_has_no_dead_letters(
    world: World, kind: SubscriptionKind, tries: int
) -> None:
    own: dict[str, Any] = {"dead_letter": "public/default/aside", "deliveries_max": tries}
    create = world.subscription(SubscriptionOp.CREATE, kind=kind, **own)
    assert world.tell(create) is Verdict.INVALID_VALUE
    world.must(world.subscription(SubscriptionOp.CREATE, kind=kind))
    later = world.subscription(SubscriptionOp.DEAD_LETTER, kind=SubscriptionKind.QUEUE, **own)
    assert world.tell(later) is Verdict.INVALID_VALUE


def test_a_process_that_has_lapsed_is_nobodys_and_its_name_stays_registered() -> None:
    world = read()
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c", instance=3))
    for name, number in (("d", 3), ("c", 4)):
        lapsed = world.subscription(SubscriptionOp.LAPSED, consumer=name, instance=number)
        assert world.tell(lapsed) is Verdict.UNKNOWN_CONSUMER
    lapsed = world.subscription(SubscriptionOp.LAPSED, consumer="c", instance=3)
    late = world.subscription(SubscriptionOp.LAPSED, consumer="c", instance=3)
    world.must(lapsed)
    assert world.tell(late) is Verdict.STALE_VERSION
    assert world.subscribed().instance_of("c") == NOBODY
    nobody = world.subscription(SubscriptionOp.LAPSED, consumer="c", instance=NOBODY)
    assert world.tell(nobody) is Verdict.UNKNOWN_CONSUMER
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c", instance=3))
    assert world.subscribed().instance_of("c") == 3


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "x" * 256])
def test_bad_names_of_subscriptions_and_consumers_are_refused(world: World, name: str) -> None:
    assert world.tell(world.subscription(SubscriptionOp.CREATE, name)) is Verdict.INVALID_VALUE
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


def test_subscriptions_change_while_an_operation_is_under_way(world: World) -> None:
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.subscription(SubscriptionOp.CREATE))
    world.must(world.topic(TopicMove.SEALING))
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c"))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(0, 0)))
    assert drained(world, 0) is Verdict.ACCEPTED


def test_segments_are_drained_in_the_order_of_the_dag() -> None:
    world = read(1)
    world.committed(Operation.SPLIT, split(world))
    world.committed(Operation.SPLIT, split(world, 1))
    assert drained(world, 1) is Verdict.NOT_DRAINED
    for ids in ((), (2,), (9,), (0, 3)):
        assert drained(world, *ids) is Verdict.SEGMENTS_INVALID, ids
    assert drained(world, 1, 0) is Verdict.ACCEPTED
    assert world.subscribed().drained == (0, 1)
    assert drained(world, 0) is Verdict.SEGMENTS_INVALID
    world.committed(Operation.SPLIT, split(world, 2))
    assert drained(world, 2) is Verdict.ACCEPTED


# --- positions ------------------------------------------------------------------------------


def at(segment_id: int, *offsets: int) -> SegmentPositions:
    return SegmentPositions(segment_id, offsets)


def noted(world: World, *positions: SegmentPositions) -> Verdict:
    return world.tell(world.subscription(SubscriptionOp.POSITIONS, positions=positions))


def test_positions_read_before_another_change_of_the_subscription_come_too_late() -> None:
    world = read(4)
    late = world.subscription(SubscriptionOp.POSITIONS, positions=(at(0, 5),))
    world.must(world.subscription(SubscriptionOp.RESET, positions=(at(0, 2),)))
    assert world.tell(late) is Verdict.STALE_VERSION
    assert world.subscribed().position(0, 0) == 2


def test_a_checkpoints_subscription_keeps_the_ends_of_the_last_segments_that_were_pruned() -> None:
    world = opened(2)
    world.must(world.subscription(SubscriptionOp.CREATE, "stream"))
    kind = SubscriptionKind.CHECKPOINT
    world.must(world.subscription(SubscriptionOp.CREATE, kind=kind, positions=(at(1, 3, 0),)))
    pruned = []
    for turn in range(PRUNED_MAX + 1):
        layout = world.scalable().layout
        (parent,) = {*layout.segments} - {1}
        ends = (turn,) * layout.segments[parent].buckets
        pruned.append(at(parent, *ends))
        children = layout.rebucket_children(parent, 3 - len(ends))
        world.committed(Operation.REBUCKET, children, end_offsets=ends)
        assert drained(world, parent) is drained(world, parent, name="stream") is Verdict.ACCEPTED
        world.must(world.topic(TopicMove.PRUNE, segment_ids=(parent,)))
    assert world.subscribed("stream").positions == ()
    kept = (at(1, 3, 0), *pruned[1:])
    assert (world.subscribed().positions, len(kept)) == (kept, PRUNED_MAX + 1)
    assert noted(world, *kept) is Verdict.ACCEPTED  # what is in use is written down as it is
    assert noted(world, pruned[0]) is Verdict.SEGMENTS_INVALID
    assert noted(world, pruned[-1], at(1, 3)) is Verdict.SEGMENTS_INVALID  # it has two buckets


@pytest.mark.parametrize("op", [SubscriptionOp.CREATE, SubscriptionOp.RESET])
def test_a_subscription_begins_where_the_record_says(op: SubscriptionOp) -> None:
    world = opened(4)
    world.committed(Operation.SPLIT, split(world), end_offsets=(4,))
    if op is SubscriptionOp.RESET:
        world.must(world.subscription(SubscriptionOp.CREATE))
        assert drained(world, 0) is Verdict.ACCEPTED  # at which a reset does not look
    begin = world.subscription(op, positions=(at(0, 4), at(4, 3)), segment_ids=(0,))
    offset = world.fold(begin).offset
    found = world.subscribed()
    assert (found.created_offset, found.drained, found.positions) == (offset, (0,), (at(4, 3),))


def test_a_stream_keeps_its_group_when_it_is_put_somewhere_else_and_a_queue_has_another() -> None:
    world = opened(4)
    for kind in (SubscriptionKind.STREAM, SubscriptionKind.QUEUE):
        name = kind.name.lower()
        world.must(world.subscription(SubscriptionOp.CREATE, name, kind=kind))
        first = world.subscribed(name).group_offset
        for _ in range(2):
            offset = world.fold(world.subscription(SubscriptionOp.RESET, name)).offset
        found = world.subscribed(name)
        assert found.created_offset == offset
        assert found.group_offset == (offset if kind is SubscriptionKind.QUEUE else first)


@pytest.mark.parametrize(
    "positions",
    [
        (at(9, 1),),  # there is no such segment
        (at(4, 1), at(4, 2)),
        (at(4, 1, 1),),  # it has one bucket
        (at(4, -1),),
        (at(0, 5),),  # it was sealed at 4
    ],
)
@pytest.mark.parametrize(
    "op", [SubscriptionOp.CREATE, SubscriptionOp.RESET, SubscriptionOp.POSITIONS]
)
def test_positions_that_do_not_fit_the_layout_are_refused(
    op: SubscriptionOp, positions: tuple[SegmentPositions, ...]
) -> None:
    world = opened(4)
    world.committed(Operation.SPLIT, split(world), end_offsets=(4,))
    if op is not SubscriptionOp.CREATE:
        world.must(world.subscription(SubscriptionOp.CREATE))
    assert world.tell(world.subscription(op, positions=positions)) is Verdict.SEGMENTS_INVALID


def test_children_have_positions_once_they_take_messages() -> None:
    world = read(4)
    world.must(world.begin(Operation.SPLIT, split(world)))
    assert noted(world, at(4, 3)) is Verdict.SEGMENTS_INVALID
    world.must(world.topic(TopicMove.SEALING))
    assert noted(world, at(4, 3), at(0, 2)) is Verdict.ACCEPTED
