"""What a consumer serves, settles, releases and reports, decision by decision."""

import msgspec
import pytest

from anabranch.client._consumer.assignment import (
    AssignedSegment,
    Assignment,
    Holding,
    Phase,
    SegmentBucket,
)
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.group_offsets import patience_s
from anabranch.core.subscriptions.timing import Timing

TIMEOUT_S = 12.0
SETTLE_S = 5.0
A, B = SegmentBucket(1, 0), SegmentBucket(1, 1)


def assignment(
    sequence: int, *buckets: int, ends: tuple[int, ...] = (), incarnation: int = 7
) -> Assignment:
    segments = (AssignedSegment(1, "t-1", buckets, ends),) if buckets else ()
    return Assignment(sequence, incarnation, 1, "group", TIMEOUT_S, segments)


def subscribed(*buckets: int, now: float = 0.0, ends: tuple[int, ...] = ()) -> ConsumerCore:
    core = ConsumerCore(SETTLE_S)
    order = core.begin_subscribe(now)
    assert core.on_subscribed(order.number, assignment(1, *buckets, ends=ends), now)
    return core


def position(core: ConsumerCore, place: SegmentBucket, offset: int = 0) -> Holding:
    holding = core.holdings[place]
    assert holding.fetch is not None
    core.on_position(holding.fetch.number, offset)
    return holding


def told(
    core: ConsumerCore, now: float
) -> tuple[tuple[SegmentBucket, ...], tuple[SegmentBucket, ...]]:
    report = core.begin_report(now)
    assert report is not None
    core.on_reported(report.number, now)
    return report.released, report.drained


def test_what_is_granted_is_read_from_the_committed_offset() -> None:
    core = subscribed(0, 1)
    assert {h.place for h in core.fetches.values()} == {A, B}
    assert {h.fetch.start for h in core.fetches.values() if h.fetch} == {None}


def test_nothing_is_delivered_before_the_position_is_known_nor_after_it_is_taken_away() -> None:
    core = subscribed(0)
    fetch = next(iter(core.fetches))
    assert core.may_deliver(fetch, 0.0) is None
    holding = position(core, A)
    assert core.may_deliver(fetch, 0.0) is holding
    core.on_assignment(assignment(2), 0.0)
    assert core.may_deliver(fetch, 0.0) is None
    assert core.fetches == {}


def test_a_bucket_with_nothing_in_flight_is_released_at_once() -> None:
    core = subscribed(0, 1)
    position(core, A)
    core.on_assignment(assignment(2, 1), 1.0)
    assert core.report_due(1.0)
    assert told(core, 1.0) == ((A,), ())
    assert list(core.holdings) == [B]


def test_in_flight_messages_hold_a_bucket_until_they_are_acknowledged_and_committed() -> None:
    core = subscribed(0)
    holding = position(core, A)
    holding.deliver(10)
    core.on_assignment(assignment(2), 1.0)
    assert holding.phase is Phase.SETTLING
    assert core.acknowledge(holding, 10, 2.0)
    assert core.commit_urgent(2.0)
    assert core.commits(2.0) == [(holding, 10)]
    assert not core.report_due(2.0 - 1.0)
    core.on_committed(holding, 10, 2.0)
    assert told(core, 2.0) == ((A,), ())


def test_a_bucket_is_released_at_the_deadline_with_what_was_acknowledged() -> None:
    core = subscribed(0)
    holding = position(core, A)
    holding.deliver(10)
    core.acknowledge(holding, 4, 0.5)
    core.on_assignment(assignment(2), 1.0)
    assert core.wake_at() == 0.0 + TIMEOUT_S / 6
    told(core, 2.0)
    core.tick(1.0 + SETTLE_S)
    assert core.commits(6.0) == [(holding, 4)]
    core.on_committed(holding, 4, 6.0)
    assert told(core, 6.0) == ((A,), ())
    assert not core.acknowledge(holding, 10, 6.0)


def test_a_settling_bucket_granted_again_goes_on_behind_what_was_delivered() -> None:
    core = subscribed(0)
    holding = position(core, A)
    first = next(iter(core.fetches))
    holding.deliver(10)
    core.on_assignment(assignment(2), 1.0)
    core.on_assignment(assignment(3, 0), 1.5)
    assert core.may_deliver(first, 1.5) is None
    assert holding.fetch is not None
    assert holding.fetch.start == 10
    assert core.may_deliver(holding.fetch.number, 1.5) is holding


def test_a_grant_after_an_answered_release_starts_anew() -> None:
    core = subscribed(0)
    position(core, A, 3)
    core.on_assignment(assignment(2), 1.0)
    told(core, 1.0)
    core.on_assignment(assignment(3, 0), 1.1)
    assert [h.fetch.start for h in core.fetches.values() if h.fetch] == [None]


def test_a_sealed_bucket_is_drained_once_all_of_it_is_committed() -> None:
    core = subscribed(0)
    holding = position(core, A)
    holding.deliver(10)
    core.acknowledge(holding, 10, 0.1)
    assert not core.commit_urgent(0.1)
    core.on_assignment(assignment(2, 0, ends=(10,)), 0.2)
    assert core.commit_urgent(0.2)
    assert not core.report_due(0.2)
    core.on_committed(holding, 10, 0.3)
    assert told(core, 0.3) == ((), (A,))
    assert not core.report_due(0.4)


def test_an_empty_sealed_bucket_is_drained_as_soon_as_its_position_is_known() -> None:
    core = subscribed(0, ends=(0,))
    assert not core.report_due(0.0)
    position(core, A)
    assert told(core, 0.0) == ((), (A,))


def test_messages_that_kafka_removed_at_the_end_keep_no_bucket_from_being_drained() -> None:
    core = subscribed(0, ends=(10,))
    holding = position(core, A, 4)
    assert holding.fetch is not None
    core.on_reached(holding.fetch.number, 10)
    assert core.commits(0.0) == [(holding, 10)]


def test_removed_messages_count_only_once_nothing_is_in_flight() -> None:
    core = subscribed(0, ends=(10,))
    holding = position(core, A)
    holding.deliver(9)
    assert holding.fetch is not None
    core.on_reached(holding.fetch.number, 10)
    assert core.commits(0.0) == []
    core.acknowledge(holding, 9, 0.0)
    assert core.commits(0.0) == [(holding, 10)]


def test_a_reconnect_names_what_is_held_and_drained_and_goes_on_serving() -> None:
    core = subscribed(0, 1, ends=(0, 5))
    position(core, A)
    position(core, B)
    serving = dict(core.fetches)
    core.on_disconnected()
    assert dict(core.fetches) == serving
    order = core.begin_subscribe(3.0)
    assert (order.holdings, order.drained) == ((A, B), (A,))
    assert core.on_subscribed(order.number, assignment(1, 0, 1, ends=(0, 5)), 3.1)
    assert dict(core.fetches) == serving


def test_a_session_lapses_when_the_last_answered_question_was_sent_too_long_ago() -> None:
    core = subscribed(0, now=100.0)
    holding = position(core, A)
    holding.deliver(10)
    report = core.begin_report(104.0)
    assert report is not None
    core.on_reported(report.number, 109.0)  # the send time counts
    assert core.is_alive(104.0 + TIMEOUT_S)
    assert not core.tick(104.0 + TIMEOUT_S)
    assert core.tick(104.0 + TIMEOUT_S + 0.001)
    assert core.fetches == {}
    assert not core.acknowledge(holding, 10, 117.0)
    assert core.commits(117.0) == []
    assert core.begin_subscribe(117.0).holdings == ()


def test_delivery_notices_a_lapse_that_no_tick_announced() -> None:
    core = subscribed(0)
    position(core, A)
    fetch = next(iter(core.fetches))
    assert core.may_deliver(fetch, TIMEOUT_S + 1) is None
    assert core.lapses == 1


def test_an_answer_to_a_subscribe_that_came_too_late_is_void() -> None:
    core = ConsumerCore(SETTLE_S)
    order = core.begin_subscribe(0.0)
    assert not core.on_subscribed(order.number, assignment(1, 0), TIMEOUT_S + 1)
    assert core.needs_subscribe
    assert core.fetches == {}


def test_an_answer_to_an_earlier_subscribe_is_void() -> None:
    core = ConsumerCore(SETTLE_S)
    first = core.begin_subscribe(0.0)
    core.begin_subscribe(0.1)
    assert not core.on_subscribed(first.number, assignment(1, 0), 0.2)


def test_an_answered_release_of_a_former_topic_of_that_name_releases_nothing_of_the_new_one() -> (
    None
):
    for placed in ((), (0,)):
        core = subscribed(0)
        position(core, A)
        core.on_assignment(assignment(2), 0.1)
        report = core.begin_report(0.1)
        assert report is not None
        assert report.released == (A,)
        core.on_assignment(assignment(3, *placed, incarnation=8), 0.2)
        core.on_reported(report.number, 0.3)
        assert len(core.holdings) == len(placed)


def test_a_bucket_that_was_not_drained_after_all_is_told_to_be_by_a_new_subscribe() -> None:
    core = subscribed(0, ends=(5,))
    holding = position(core, A, 5)
    assert told(core, 0.1) == ((), (A,))
    core.on_undrained(holding)
    assert core.needs_subscribe
    core.on_disconnected()
    order = core.begin_subscribe(0.2)
    assert (order.holdings, order.drained) == ((A,), ())
    assert core.on_subscribed(order.number, assignment(1, 0, ends=(5,)), 0.3)
    position(core, A, 5)
    assert told(core, 0.4) == ((), (A,))


def test_another_topic_of_the_same_name_shares_nothing_with_the_former() -> None:
    core = subscribed(0)
    former = position(core, A, 50)
    core.on_assignment(assignment(2, 0, incarnation=8), 0.1)
    assert former.phase is Phase.LOST
    assert core.holdings[A] is not former


def test_a_lapse_that_loses_an_acknowledgement_is_remembered() -> None:
    for end in (0, 6):
        core = subscribed(0)
        holding = position(core, A)
        holding.deliver(10)
        core.acknowledge(holding, end, 0.1)
        assert core.tick(TIMEOUT_S + 1)
        assert core.lost is (end > 0)


def test_no_more_counts_as_committed_than_is_acknowledged() -> None:
    core = subscribed(0)
    holding = position(core, A)
    holding.deliver(10)
    core.acknowledge(holding, 4, 0.1)
    core.on_committed(holding, 10, 0.2)
    assert holding.committed == 4


def test_all_that_is_acknowledged_can_be_committed_again() -> None:
    core = subscribed(0, 1)
    holding = position(core, A, 3)
    assert core.commits(0.1) == []
    core.commit_again()
    assert core.commits(0.1) == [(holding, 3)], "the position of B is not known"
    core.on_committed(holding, 3, 0.2)
    assert core.commits(0.2) == []


def test_a_bucket_that_is_committed_again_is_not_released_before_that_is_over() -> None:
    core = subscribed(0, 1)
    holding = position(core, A, 3)
    core.commit_again()
    core.on_assignment(assignment(2, 1), 0.2)
    assert (holding.phase, core.commit_urgent(0.2)) == (Phase.SETTLING, True)
    core.on_committed(holding, 3, 0.3)
    assert holding.phase is Phase.RELEASED


def test_a_lapse_before_something_was_committed_again_has_lost_nothing() -> None:
    core = subscribed(0)
    position(core, A, 3)
    core.commit_again()
    assert core.tick(TIMEOUT_S + 0.1)
    assert not core.lost


@pytest.mark.parametrize("session_s", [2.0, 10.0, 3_600.0])
def test_a_commit_is_over_well_before_another_consumer_may_have_the_bucket(
    session_s: float,
) -> None:
    core = ConsumerCore(SETTLE_S)
    given = msgspec.structs.replace(assignment(1, 0), session_timeout_s=session_s)
    assert core.on_subscribed(core.begin_subscribe(100.0).number, given, 100.0)
    for_answer = patience_s(session_s)
    for_coordinator = 1.0 + for_answer  # as far as was measured
    over_at = core.commits_until() + for_coordinator + for_answer
    assert core.commits_until() > 100.0 + session_s / 6, "no time is left between two reports"
    assert over_at <= 100.0 + Timing(session_timeout_s=session_s).lapse_s - 0.09 * session_s


def test_closing_waits_for_commits_and_for_no_acknowledgement() -> None:
    core = subscribed(0, 1)
    holding = position(core, A)
    holding.deliver(10)
    core.acknowledge(holding, 6, 0.1)
    core.close(0.2)
    assert not core.holds_nothing
    core.on_committed(holding, 6, 0.3)
    assert core.holds_nothing


def test_a_consumer_that_closes_does_not_subscribe_again_for_what_it_gave_back() -> None:
    core = subscribed(0, 1)
    position(core, A)
    core.close(0.2)
    assert told(core, 0.3) == ((A, B), ())
    assert not core.needs_subscribe


def test_a_report_is_due_often_enough_to_lose_some() -> None:
    core = subscribed(0)
    assert not core.report_due(TIMEOUT_S / 6 - 0.01)
    assert core.report_due(TIMEOUT_S / 6)
