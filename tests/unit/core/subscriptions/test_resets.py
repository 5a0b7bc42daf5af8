"""When buckets change hands while a subscription is put somewhere else."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.draining import Bucket
from anabranch.core.subscriptions.timing import Timing

TIMING = Timing(grace_s=60, session_timeout_s=10)
WHOLE = SegmentLayout.initial(1, bucket_budget=2)
SPLIT = WHOLE.split_segment(0)
FIRST = Subscription(1, SubscriptionKind.STREAM, 7, ("a", "b"), (1, 2), (), 0, 0, "p")
RESET = msgspec.structs.replace(FIRST, version=2, created_offset=8)
BOTH: tuple[Bucket, ...] = ((0, 0), (0, 1))

Shares = dict[int, tuple[tuple[int, tuple[int, ...]], ...]]  # by connection


def coordinator(before: SubscriptionCoordinator | None = None) -> SubscriptionCoordinator:
    made = SubscriptionCoordinator(TIMING, before)
    made.changed(WHOLE, RESET, 100.0)
    return made


def sent(desk: SubscriptionCoordinator, now: float) -> Shares:
    return {connection: each.shares for connection, each in desk.assignments(now)}


def test_what_a_consumer_held_before_is_nobody_elses_until_it_has_heard_of_the_reset() -> None:
    desk = coordinator()
    assert desk.opened("a", 1, 11, BOTH, (), 100.0, anew=True)
    assert desk.opened("b", 2, 12, (), (), 100.0, anew=True)
    assert sent(desk, 100.0) == {11: ((0, (0,)),), 12: ()}, "the answer to a may have been lost"
    assert desk.heard("a", 11, (), (), 101.0)
    assert sent(desk, 101.0) == {12: ((0, (1,)),)}
    assert desk.heard("a", 11, (), (), 102.0)
    assert sent(desk, 102.0) == {}


@pytest.mark.parametrize(("held", "drained"), [((0, 1), (0,)), ((1, 0), ())])
def test_nothing_above_or_below_what_a_consumer_held_is_anothers_before_it_has_heard(
    held: Bucket, drained: tuple[int, ...]
) -> None:
    """Found by the simulation: a skip calls the parent drained that somebody works on."""
    desk = SubscriptionCoordinator(TIMING)
    desk.changed(SPLIT, msgspec.structs.replace(RESET, drained=drained), 100.0)
    assert desk.opened("a", 1, 11, (held,), (), 100.0, anew=True)
    assert desk.opened("b", 2, 12, (), (), 100.0, anew=True)
    others = {segment_id for segment_id, _ in sent(desk, 100.0)[12]}
    assert not others & ({1, 2} if drained else {0})
    assert desk.heard("a", 11, (), (), 101.0)
    assert sent(desk, 101.0)[12]


@pytest.mark.parametrize("is_known", [False, True])
def test_who_goes_back_to_what_it_held_waits_for_whoever_may_work_on_what_is_below(
    is_known: bool,
) -> None:
    """Found by the simulation: seed 7000240 of topics."""
    desk = SubscriptionCoordinator(TIMING)
    desk.changed(SPLIT, RESET, 100.0)
    if is_known:
        assert desk.opened("b", 2, 12, ((2, 0),), (), 100.0, anew=True)
    assert desk.opened("a", 1, 11, ((0, 0), (0, 1)), (), 100.0, anew=True)
    assert sent(desk, 100.0)[11] == ()
    assert is_known or desk.opened("b", 2, 12, ((2, 0),), (), 100.5, anew=True)
    assert desk.heard("b", 12, (), (), 101.0)
    assert sent(desk, 101.0)[11] == ((0, (0,)),)


def test_who_goes_back_to_what_it_held_waits_for_a_replaced_one_that_works_on_what_is_below() -> (
    None
):
    split = msgspec.structs.replace(FIRST, drained=(0,))
    desk = SubscriptionCoordinator(TIMING)
    desk.changed(SPLIT, msgspec.structs.replace(split, consumers=(), instances=()), 99.0)
    desk.changed(SPLIT, split, 99.0)
    assert desk.opened("a", 1, 11, (), (), 99.0)
    assert desk.opened("b", 2, 12, (), (), 99.0)
    assert sent(desk, 99.0)[12] == ((2, (0,)),)
    alone = msgspec.structs.replace(RESET, consumers=("a",), instances=(1,))
    desk.changed(SPLIT, msgspec.structs.replace(alone, created_offset=7, drained=(0,)), 99.0)
    after = SubscriptionCoordinator(TIMING, desk)
    after.changed(SPLIT, alone, 100.0)
    assert after.opened("a", 1, 13, ((1, 0),), (), 100.0, anew=True)
    assert sent(after, 100.0) == {13: ()}
    assert after.heard("a", 13, (), (), 108.0)
    assert sent(after, 99.0 + TIMING.lapse_s + 0.1) == {13: ((0, (0, 1)),)}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_child_of_what_was_pruned_is_not_anothers_before_its_holder_has_heard(
    is_late: bool,
) -> None:
    """Found by the simulation: seed 2842124401 of topics."""
    skipped, pruned = msgspec.structs.replace(RESET, drained=(0,)), SPLIT.prune_segment(0)
    desk = SubscriptionCoordinator(TIMING)
    desk.changed(SPLIT if is_late else pruned, skipped, 100.0)
    assert desk.opened("a", 1, 11, ((0, 1),), (), 100.0, anew=True)
    desk.changed(pruned, RESET, 100.0)
    assert desk.opened("b", 2, 12, (), (), 100.0, anew=True)
    assert sent(desk, 100.0)[12] == ()
    assert desk.heard("a", 11, (), (), 101.0)
    assert sent(desk, 101.0)[12]


def test_who_says_that_it_holds_what_is_not_there_holds_nothing() -> None:
    desk = coordinator()
    assert desk.opened("a", 1, 11, ((0, 2), (9, 0)), (), 100.0)
    desk.closed("a", 11, 100.0)
    assert not desk.is_lapsing("a", 2)


def test_a_consumer_that_did_not_hear_of_the_reset_gives_up_with_its_session() -> None:
    desk = coordinator()
    assert desk.opened("a", 1, 11, BOTH, (), 100.0, anew=True)
    desk.closed("a", 11, 100.5)
    assert desk.opened("b", 2, 12, (), (), 100.0, anew=True)
    assert sent(desk, 101.0) == {12: ()}
    assert desk.heard("b", 12, (), (), 108.0)
    assert sent(desk, 100.0 + TIMING.lapse_s + 0.1) == {12: ((0, (1,)),)}, "a keeps its share"


def test_a_consumer_that_served_nothing_when_it_was_reset_holds_nobody_up() -> None:
    desk = SubscriptionCoordinator(TIMING)
    desk.changed(WHOLE, msgspec.structs.replace(FIRST, consumers=(), instances=()), 10.0)
    desk.changed(WHOLE, FIRST, 10.0)
    assert desk.opened("b", 2, 12, (), (), 10.0)
    assert (sent(desk, 10.0), desk.idle) == ({12: ((0, (0, 1)),)}, [1])
    after = coordinator(desk)
    assert after.opened("b", 2, 13, (), (), 100.0, anew=True)
    assert sent(after, 100.0) == {13: ((0, (1,)),)}
    unknown = coordinator()
    assert unknown.opened("b", 2, 13, (), (), 100.0, anew=True)
    assert sent(unknown, 100.0) == {13: ()}, "a may be serving"


def test_a_consumer_whose_registration_had_ended_when_it_was_reset_serves_until_it_lapses() -> None:
    """Found by the simulation: what it held was forgotten with the former group."""
    desk = SubscriptionCoordinator(TIMING)
    desk.changed(WHOLE, msgspec.structs.replace(FIRST, consumers=(), instances=()), 99.0)
    desk.changed(WHOLE, FIRST, 99.0)
    assert desk.opened("a", 1, 11, (), (), 99.0)
    assert desk.opened("b", 2, 10, (), (), 99.0)
    assert sent(desk, 99.0) == {11: ((0, (0,)),), 10: ((0, (1,)),)}
    alone = msgspec.structs.replace(RESET, consumers=("b",), instances=(2,))
    desk.changed(WHOLE, msgspec.structs.replace(alone, created_offset=7), 99.0)
    after = SubscriptionCoordinator(TIMING, desk)
    after.changed(WHOLE, alone, 100.0)
    assert after.opened("b", 2, 12, (), (), 100.0, anew=True)
    assert sent(after, 100.0) == {12: ((0, (1,)),)}
    assert after.heard("b", 12, (), (), 108.0)
    assert sent(after, 99.0 + TIMING.lapse_s + 0.1) == {12: ((0, (0, 1)),)}
