"""Subscriptions of scalable topics in the log: creation, consumers, drains."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.core.layout import initial_segments
from anabranch.core.subscriptions import SubscriptionKind, SubscriptionOp
from anabranch.core.topics import (
    Operation,
    TopicMove,
    TopicState,
)
from anabranch.core.verdicts import Verdict
from support.topics import opened, owned, split
from support.world import TOPIC, World


def drained(world: World, *ids: int, name: str = "sub") -> Verdict:
    return world.tell(world.subscription(SubscriptionOp.DRAINED, name, segment_ids=ids))


def prune(world: World, *ids: int) -> Verdict:
    return world.tell(world.topic(TopicMove.PRUNE, segment_ids=ids))


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


def test_a_reset_begins_anew_with_another_group_and_the_same_consumers() -> None:
    world = opened()
    world.must(world.subscription(SubscriptionOp.CREATE, kind=SubscriptionKind.QUEUE))
    world.must(world.begin(Operation.SPLIT, split(world)))
    world.must(world.topic(TopicMove.SEALING))
    world.must(world.topic(TopicMove.COMMIT, end_offsets=(0, 0)))
    world.must(world.subscription(SubscriptionOp.JOIN, consumer="c", instance=3))
    assert drained(world, 0) is Verdict.ACCEPTED
    offset = world.fold(world.subscription(SubscriptionOp.RESET)).offset
    found = world.subscribed()
    assert (found.created_offset, found.drained) == (offset, ())
    assert (found.kind, found.consumers, found.instances) == (SubscriptionKind.QUEUE, ("c",), (3,))
    assert drained(world, 0) is Verdict.ACCEPTED


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
