"""What may be deleted, and when a subscription expires: to the second."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from anabranch.core.entities import subscription
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.topic import Operation
from anabranch.core.topics.retention import expiring, prunable, prunable_at_ms, written_down
from support.there import there
from support.topics import layout, opened, split
from support.world import TOPIC, World

USED_MS = 10_000
KNOWN = subscription.Subscription(
    1, subscription.SubscriptionKind.STREAM, 7, (), (), (), USED_MS, 0, ""
)
QUEUE = replace(KNOWN, kind=subscription.SubscriptionKind.QUEUE)


def pruned(world: World, age_s: float, retention_s: float = 10.0) -> tuple[int, ...]:
    """What goes so long after the first segment was sealed."""
    log_ms = layout(world).segments[0].sealed_at_ms + round(age_s * 1000)
    return prunable(world.replica, TOPIC, world.scalable(), log_ms, retention_s)


def test_a_segment_that_is_drained_is_kept_for_its_retention_all_the_same() -> None:
    world = opened(2)
    world.must(world.subscription(subscription.SubscriptionOp.CREATE))
    world.committed(Operation.SPLIT, split(world, 0))
    world.committed(Operation.SPLIT, split(world, 1))
    world.must(world.subscription(subscription.SubscriptionOp.DRAINED, segment_ids=(1,)))
    assert pruned(world, 10.0) == (), "0 has yet to be read, and 1 is young"
    assert pruned(world, 1_000.0) == (1,)


def test_a_child_goes_with_its_parent_and_not_before_it() -> None:
    world = opened(1)
    world.committed(Operation.SPLIT, split(world, 0))
    world.committed(Operation.SPLIT, split(world, 1))
    assert pruned(world, 1_000.0) == (0, 1)
    world.must(world.subscription(subscription.SubscriptionOp.CREATE))
    assert pruned(world, 1_000.0) == ()


def test_it_is_known_when_the_first_one_goes() -> None:
    world = opened(2)

    def at_ms() -> float | None:
        return prunable_at_ms(world.replica, TOPIC, world.scalable(), 10.0)

    assert at_ms() is None
    world.must(world.subscription(subscription.SubscriptionOp.CREATE))
    world.committed(Operation.SPLIT, split(world, 0))
    world.committed(Operation.SPLIT, split(world, 2))
    assert at_ms() is None, "it is yet to be read"
    world.must(world.subscription(subscription.SubscriptionOp.DRAINED, segment_ids=(0,)))
    age_s = (there(at_ms()) - layout(world).segments[0].sealed_at_ms) / 1000
    assert (pruned(world, age_s - 0.001), pruned(world, age_s)) == ((), (0,))
    assert prunable_at_ms(world.replica, TOPIC, world.scalable(), math.inf) is None


@pytest.mark.parametrize(
    ("known", "unused_s", "left_s", "soon", "untold"),
    [
        (KNOWN, 0, 100, False, False),
        (KNOWN, 70, 30, False, False),
        (KNOWN, 80, 20, True, False),
        (KNOWN, 130, -30, True, False),
        (QUEUE, 5, 105, False, False),  # a tenth more: the log hears of its use as late as that
        (QUEUE, 15, 95, False, True),
        (QUEUE, 80, 30, False, True),
        (QUEUE, 90, 20, True, True),
    ],
)
def test_a_subscription_that_nobody_uses_expires_in_time_and_is_announced(
    known: subscription.Subscription, unused_s: int, left_s: float, soon: bool, untold: bool
) -> None:
    found = there(expiring(known, USED_MS + 1000 * unused_s, 100.0))
    assert found.left_s == pytest.approx(left_s)
    assert (found.soon, found.untold) == (soon, untold)


def test_a_bucket_of_which_nothing_was_read_is_written_down_from_its_beginning() -> None:
    parts = initial_segments(2, 4)
    assert written_down(KNOWN, parts, {(0, 1): 5}) == (subscription.SegmentPositions(0, (0, 5)),)
