"""When a bucket may change hands."""

from __future__ import annotations

import msgspec

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import NOBODY, SubscriptionKind
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.subscriptions.timing import Timing
from support.desk import EMPTY, TIMING, WHOLE, Desk


def a_and_b() -> Desk:
    """Two consumers; the first serves both buckets, the second of which is to be the other's."""
    desk = Desk()
    desk.join("a", 1, 11)
    desk.join("b", 2, 12)
    return desk


def test_buckets_given_to_another_are_counted_until_their_segment_is_pruned() -> None:
    desk = Desk()
    desk.join("a", 1, 11)
    desk.join("b", 2, 22)
    desk.report("a", 11, released=((0, 1),))
    assert desk.coordinator.moved == {0: 1}
    desk.layout = WHOLE.split_segment(0)
    desk.show()
    assert desk.coordinator.moved == {0: 1}
    desk.layout = desk.layout.prune_segment(0)
    desk.show()
    assert desk.coordinator.moved == {}


def test_who_is_leaving_is_given_nothing_more_while_it_is_still_registered() -> None:
    desk = a_and_b()
    desk.coordinator.left("a")
    desk.send()  # time passes before the log has taken the end of the registration
    assert desk.has[12] == ((0, (0, 1)),)
    desk.leave("a")
    assert desk.has[12] == ((0, (0, 1)),)


def test_who_leaves_with_its_share_finds_it_within_the_grace_and_nobody_has_it_meanwhile() -> None:
    desk = a_and_b()
    desk.report("a", 11, released=((0, 1),))
    desk.coordinator.left("a", keeps_share=True)
    desk.subscription = desk.subscription.with_consumer("a", NOBODY)
    desk.show()
    assert desk.has[12] == ((0, (1,)),)
    desk.now += TIMING.session_timeout_s
    assert desk.log() is None
    desk.join("a", 3, 13)
    assert desk.has[13] == ((0, (0,)),)
    assert desk.has[12] == ((0, (1,)),)


def test_a_consumer_that_subscribes_again_is_taken_to_serve_what_it_says_until_it_releases_it() -> (
    None
):
    desk = a_and_b()
    desk.coordinator.closed("a", 11, desk.now)
    desk.join("a", 1, 13, holds=((0, 0), (0, 1)))
    desk.report("a", 13)
    assert not desk.has[12], "a is told to give bucket 1 up, and has not said so"
    desk.report("a", 13, released=((0, 1),))
    assert desk.has[12] == ((0, (1,)),)


def test_who_is_silent_for_longer_than_its_session_is_to_be_disconnected() -> None:
    desk = a_and_b()
    assert desk.coordinator.silent(desk.now) == []
    desk.now += TIMING.session_timeout_s - 1
    desk.report("b", 12)
    assert desk.coordinator.silent(desk.now) == []
    desk.now += 2
    assert desk.coordinator.silent(desk.now) == [11]
    desk.coordinator.closed("a", 11, desk.now)
    assert desk.coordinator.silent(desk.now) == []


def test_who_serves_nothing_is_not_said_to_have_lapsed_before_its_time() -> None:
    desk = Desk()
    for number, name in enumerate("abc", 1):  # of two buckets the third gets none
        desk.join(name, number, number)
    desk.coordinator.closed("c", 3, desk.now)
    desk.now += TIMING.lapse_s
    assert desk.coordinator.lapsed(desk.now) == []
    desk.now += 1
    assert desk.coordinator.lapsed(desk.now) == [("c", 3)]


def test_assignments_of_one_connection_have_ascending_numbers() -> None:
    desk = a_and_b()
    desk.leave("b")
    numbers = [each.sequence for connection, each in desk.sent if connection == 11]
    assert len(numbers) == 3
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0


def test_what_the_layout_does_not_have_is_not_remembered() -> None:
    desk = Desk(WHOLE.split_segment(0))
    desk.join("a", 1, 11)
    desk.report("a", 11, drained=tuple((7, bucket) for bucket in range(100)))
    desk.report("a", 11, drained=((0, 0), (0, 1), (0, 2)))
    assert desk.coordinator.drained_segments() == (0,)


def test_a_new_controller_leaves_a_consumer_what_it_holds() -> None:
    desk = Desk(before=EMPTY.with_consumer("a", 1).with_consumer("b", 2))
    desk.join("b", 2, 12, holds=((0, 1),))
    assert desk.has[12] == ((0, (1,)),)
    desk.join("a", 1, 11, holds=((0, 0),))
    assert desk.has[11] == ((0, (0,)),)


def test_a_new_controller_grants_nothing_that_an_unheard_consumer_may_be_serving() -> None:
    desk = Desk(before=EMPTY.with_consumer("a", 1).with_consumer("b", 2))
    desk.join("b", 2, 12)
    assert not desk.has[12], "a may be serving bucket 1: it is not heard of yet"
    desk.join("a", 1, 11, holds=((0, 0),))
    assert desk.has[12] == ((0, (1,)),)


def test_what_another_holds_is_not_taken_over_by_saying_so() -> None:
    desk = Desk()
    desk.join("a", 1, 11)
    desk.join("b", 2, 12, holds=((0, 1),))
    assert not desk.has[12]


def test_what_was_reported_of_other_segments_is_remembered_when_one_is_logged_as_drained() -> None:
    desk = Desk(SegmentLayout.initial(2, bucket_budget=4).split_segment(0).split_segment(1))
    desk.join("a", 1, 11)
    desk.report("a", 11, drained=((0, 0), (0, 1), (1, 0)))
    assert desk.coordinator.drained_segments() == (0,)
    desk.subscription = msgspec.structs.replace(desk.subscription, drained=(0,))
    desk.show()
    desk.report("a", 11, drained=((1, 1),))
    assert desk.coordinator.drained_segments() == (1,)


def test_a_queues_consumers_are_those_who_are_heard_and_kafka_says_what_they_have_drained() -> None:
    queue = msgspec.structs.replace(EMPTY, kind=SubscriptionKind.QUEUE)
    desk = Desk(WHOLE.split_segment(0), queue)
    for number in (1, 2, 3):
        desk.coordinator.opened(f"q{number}", number, number, (), (), desk.now)
    desk.send()
    assert [segment for segment, _ in desk.has[1]] == [0, 1, 2], "a queue has no order to keep"
    desk.coordinator.closed("q3", 3, desk.now)
    assert desk.coordinator.connected == ["q1", "q2"]
    desk.now += TIMING.lapse_s - 1
    desk.report("q2", 2, drained=((0, 0), (0, 1)))
    desk.now += 2
    desk.send()
    assert desk.coordinator.connected == ["q2"]
    assert not desk.report("q1", 1)
    assert desk.coordinator.drained_segments() == ()
    assert desk.coordinator.over(desk.now + 100) == []
    assert desk.coordinator.opened("q1", 4, 14, (), (), desk.now)


class Many(tuple[int, ...]):
    """Too many segments to be gone through for each one of as many others."""

    __slots__ = ()

    def __contains__(self, _: object) -> bool:
        raise AssertionError("one by one")


# --- a backlog that several drain ----------------------------------------------------------------


def test_a_backlog_is_shared_after_a_while_and_the_readers_go_back_to_segments_after_it() -> None:
    desk = Desk(SegmentLayout.initial(2, bucket_budget=4))
    desk.join("a", 1, 11)
    desk.join("b", 2, 12)
    desk.report("a", 11, released=((1, 0), (1, 1)))
    assert desk.has == {11: ((0, (0, 1)),), 12: ((1, (0, 1)),)}
    desk.layout = desk.layout.split_segment(0).split_segment(1)
    desk.show()
    assert desk.has == {11: ((0, (0, 1)),), 12: ((1, (0, 1)),)}, "who keeps up needs no help"
    desk.subscription = msgspec.structs.replace(desk.subscription, drained=(1,))
    desk.now += TIMING.drain_after_s or 0
    desk.show()
    desk.report("b", 12)
    assert desk.coordinator.target.backlog.draining == {0}
    assert desk.coordinator.withheld() == {0: 1}, "until its reader has settled what it has of it"
    desk.report("a", 11, released=((0, 1),))
    assert (desk.coordinator.withheld(), dict(desk.has[11])[0]) == ({}, (0,))
    assert dict(desk.has[12])[0] == (1,)
    assert desk.coordinator.moved == {1: 2, 0: 1}, "for the second consumer, for the drain"
    desk.subscription = msgspec.structs.replace(desk.subscription, drained=(0, 1))
    desk.show()
    assert desk.coordinator.target.backlog.draining == frozenset()
    assert 0 not in {segment for shares in desk.has.values() for segment, _ in shares}


def test_a_backlog_is_never_shared_when_that_is_switched_off() -> None:
    coordinator = SubscriptionCoordinator(Timing(drain_after_s=None))
    layout = SegmentLayout.initial(2, bucket_budget=4).split_segment(0)
    coordinator.changed(layout, EMPTY.with_consumer("a", 1).with_consumer("b", 2), 0.0)
    for now in (0.0, 1_000.0):
        coordinator.assignments(now)
        assert coordinator.target.backlog.draining == frozenset()


def test_a_new_controller_leaves_a_shared_backlog_as_the_last_one_dealt_it_out() -> None:
    layout = SegmentLayout.initial(2, bucket_budget=4).split_segment(0).split_segment(1)
    both = EMPTY.with_consumer("a", 1).with_consumer("b", 2)
    desk = Desk(layout, msgspec.structs.replace(both, drained=(1,)))
    assert desk.join("a", 1, 11, ((0, 0),))
    assert desk.join("b", 2, 12, ((0, 1),))
    assert (dict(desk.has[11])[0], dict(desk.has[12])[0]) == ((0,), (1,))
    assert desk.coordinator.target.backlog.draining == {0}


# --- from when others may serve what somebody had -------------------------------------------------


def test_the_margin_is_more_than_two_clocks_can_differ() -> None:
    assert TIMING.lapse_s == TIMING.session_timeout_s * 1.2
    assert Timing(session_timeout_s=2.0).lapse_s == 2.4


def test_a_report_that_comes_after_the_lapse_is_not_believed() -> None:
    desk = Desk()
    desk.join("a", 1, 11)
    desk.now += TIMING.lapse_s
    assert desk.report("a", 11), "just in time"
    desk.now += TIMING.lapse_s + 0.001
    assert not desk.report("a", 11), "another one may have been granted what it had"
