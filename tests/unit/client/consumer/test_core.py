"""What a consumer serves, settles, releases and reports, decision by decision."""

import functools
import math

import msgspec
import pytest

from anabranch.client._consumer.assignment import AssignedSegment, Assignment, SegmentBucket
from anabranch.client._consumer.core import TRANSACTION_S, ConsumerCore
from anabranch.client._consumer.group_offsets import patience_s
from anabranch.client._consumer.holding import Holding, Loss, Phase
from anabranch.core.subscriptions.timing import Timing
from support.there import there

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
    core.on_position(there(holding.fetch).number, offset)
    return holding


def delivering(end: int, now: float = 0.0) -> tuple[ConsumerCore, Holding]:
    """A consumer that was given a bucket's messages up to there."""
    core = subscribed(0, now=now)
    holding = position(core, A)
    holding.deliver(end)
    return core, holding


def told(
    core: ConsumerCore, now: float
) -> tuple[tuple[SegmentBucket, ...], tuple[SegmentBucket, ...]]:
    report = there(core.begin_report(now))
    core.on_reported(report.number, now)
    return report.released, report.drained


@pytest.fixture
def core() -> ConsumerCore:
    """A consumer of bucket A, whose position is not known yet."""
    return subscribed(0)


def test_nothing_is_delivered_before_a_position_is_known_or_after_a_loss() -> None:
    core = subscribed(0)
    fetch = next(iter(core.fetches))
    assert core.may_deliver(fetch, 0.0) is None
    holding = position(core, A)
    assert core.may_deliver(fetch, 0.0) is holding
    core.on_assignment(assignment(2), 0.0)
    assert core.may_deliver(fetch, 0.0) is None
    assert core.fetches == {}


def test_in_flight_messages_hold_a_bucket_until_they_are_acknowledged_and_committed() -> None:
    core, holding = delivering(10)
    core.on_assignment(assignment(2), 1.0)
    assert holding.phase is Phase.SETTLING
    assert core.acknowledge(holding, 10, 2.0)
    assert core.commit_urgent(2.0)
    assert core.commits(2.0) == [(holding, 10)]
    assert not core.report_due(2.0 - 1.0)
    core.on_committed(holding, 10, 2.0)
    assert told(core, 2.0) == ((A,), ())


def test_a_bucket_is_released_at_the_deadline_with_what_was_acknowledged() -> None:
    core, holding = delivering(10)
    core.acknowledge(holding, 4, 0.5)
    core.on_assignment(assignment(2), 1.0)
    assert core.wake_at() == 0.0 + TIMEOUT_S / 6
    told(core, 2.0)
    core.tick(1.0 + SETTLE_S)
    assert core.commits(6.0) == [(holding, 4)]
    core.on_committed(holding, 4, 6.0)
    assert told(core, 6.0) == ((A,), ())
    assert not core.acknowledge(holding, 10, 6.0)


def test_without_a_bound_a_bucket_in_flight_stays_as_long_as_the_session_lasts() -> None:
    core, holding = delivering(10)
    core.settle_s = math.inf
    core.on_assignment(assignment(2), 1.0)
    for now in (11.0, 21.0, 31.0):
        told(core, now)
        assert not core.tick(now)
        assert (holding.phase, core.is_held(holding, now)) == (Phase.SETTLING, True)
    assert not core.is_held(holding, 31.1 + TIMEOUT_S), "its own clock has run out"
    assert core.tick(31.1 + TIMEOUT_S)
    assert (holding.phase, holding.loss) == (Phase.LOST, Loss.LAPSED)


@pytest.mark.parametrize("loss", [each for each in Loss if each is not Loss.NOT_HELD])
def test_who_works_on_a_bucket_is_told_in_the_step_that_takes_it_and_once_more_if_it_asks(
    loss: Loss,
) -> None:
    core, holding = delivering(10)
    core.acknowledge(holding, 4, 0.0)
    core.on_committed(holding, 4, 0.0)
    heard: list[Loss] = []
    holding.listeners.append(lambda: heard.append(holding.loss))
    match loss:
        case Loss.SETTLE_TIMEOUT:
            core.on_assignment(assignment(2), 1.0)
            assert not heard, "it has time yet"
            core.tick(1.0 + SETTLE_S)
        case Loss.LAPSED:
            core.begin_report(TIMEOUT_S + 0.1)
        case Loss.CLOSED | Loss.FENCED:
            core.close(1.0, loss)
        case Loss.ANEW:
            core.on_assignment(assignment(2, 0, incarnation=8), 1.0)
        case Loss.FAILED:
            core.give_up(Loss.FAILED)
    assert heard == [loss]
    assert core.acknowledge(holding, 4, 7.0), "that much is committed"
    assert core.take_losses() == [holding]
    assert core.take_losses() == []
    assert not core.acknowledge(holding, 5, 7.0)


def test_a_bucket_lost_in_the_middle_asks_for_no_commit_and_waits_for_its_handler() -> None:
    core, holding = delivering(10)
    core.acknowledge(holding, 4, 0.0)
    assert core.commits(0.0) == [(holding, 4)]
    core.on_assignment(assignment(2, 0, ends=(0,)), 1.0)
    assert (core.fetches, core.commits(9.0), holding.is_cut_short) == ({}, [], True)
    assert told(core, 9.0) == ((), ())
    assert core.acknowledge(holding, 10, 9.0)
    assert (core.commits(9.0), told(core, 9.0)) == ([], ((), (A,)))
    core.on_assignment(assignment(3), 9.0)
    assert told(core, 9.0) == ((A,), ())


def test_who_was_told_that_an_acknowledgement_came_too_late_is_not_told_again() -> None:
    core, holding = delivering(10)
    core.give_up(Loss.FAILED)
    assert not core.acknowledge(holding, 10, 1.0)
    assert core.take_losses() == []


def test_a_settling_bucket_granted_again_goes_on_where_it_was(core: ConsumerCore) -> None:
    holding = position(core, A)
    first = next(iter(core.fetches))
    holding.deliver(10)
    core.on_assignment(assignment(2), 1.0)
    core.on_assignment(assignment(3, 0), 1.5)
    assert core.may_deliver(first, 1.5) is None
    assert holding.fetch is not None
    assert holding.fetch.start == 10
    assert core.may_deliver(holding.fetch.number, 1.5) is holding


def test_a_grant_after_an_answered_release_starts_anew(core: ConsumerCore) -> None:
    position(core, A, 3)
    core.on_assignment(assignment(2), 1.0)
    told(core, 1.0)
    core.on_assignment(assignment(3, 0), 1.1)
    assert [h.fetch.start for h in core.fetches.values() if h.fetch] == [None]


def test_a_sealed_bucket_is_drained_once_all_of_it_is_committed() -> None:
    core, holding = delivering(10)
    core.acknowledge(holding, 10, 0.1)
    assert not core.commit_urgent(0.1)
    core.on_assignment(assignment(2, 0, ends=(10,)), 0.2)
    assert core.commit_urgent(0.2)
    assert not core.report_due(0.2)
    core.on_committed(holding, 10, 0.3)
    assert told(core, 0.3) == ((), (A,))
    assert not core.report_due(0.4)


def test_removed_messages_count_only_once_nothing_is_in_flight() -> None:
    core = subscribed(0, ends=(10,))
    holding = position(core, A)
    holding.deliver(9)
    core.on_reached(there(holding.fetch).number, 10)
    assert core.commits(0.0) == []
    core.acknowledge(holding, 9, 0.0)
    assert core.commits(0.0) == [(holding, 10)]


def test_a_wait_for_a_transaction_is_told_once_it_has_lasted_and_no_other_wait_is() -> None:
    core = subscribed(0, 1, ends=(10, 10))
    holding = position(core, A, 4)
    position(core, B, 4)
    waits = functools.partial(core.waits_for_transaction, there(holding.fetch).number)
    looks = [(0.0, 4), (TRANSACTION_S - 1, 4), (TRANSACTION_S, 4), (9.0, 4)]
    assert [waits(end, now) for now, end in looks] == [None, None, TRANSACTION_S, 9.0]
    assert waits(7, 10.0) is None, "what Kafka gives out is not read yet"
    holding.deliver(7)
    assert waits(7, 11.0) is None, "another transaction is another wait"
    assert waits(7, 11.0 + TRANSACTION_S) == TRANSACTION_S
    holding.deliver(10)
    assert waits(10, 30.0) is None
    active = subscribed(0)
    fetch = there(position(active, A, 4).fetch).number
    assert [active.waits_for_transaction(fetch, 4, now) for now in (0.0, 90.0)] == [None, None]


def test_a_reconnect_names_what_is_held_and_drained_and_goes_on_serving() -> None:
    core = subscribed(0, 1, ends=(3, 5))
    position(core, A, 3)
    position(core, B)
    serving = dict(core.fetches)
    core.on_disconnected()
    assert dict(core.fetches) == serving
    order = core.begin_subscribe(3.0)
    assert (order.holdings, order.drained) == ((A, B), (A,))
    assert core.on_subscribed(order.number, assignment(1, 0, 1, ends=(3, 5)), 3.1)
    assert dict(core.fetches) == serving


def test_a_session_lapses_when_the_last_answered_question_was_sent_too_long_ago() -> None:
    core, holding = delivering(10, now=100.0)
    report = there(core.begin_report(104.0))
    core.on_reported(report.number, 109.0)  # the send time counts
    assert core.is_alive(104.0 + TIMEOUT_S)
    assert not core.tick(104.0 + TIMEOUT_S)
    assert core.tick(104.0 + TIMEOUT_S + 0.001)
    assert core.fetches == {}
    assert not core.acknowledge(holding, 10, 117.0)
    assert core.commits(117.0) == []
    assert core.begin_subscribe(117.0).holdings == ()


def test_delivery_notices_a_lapse_that_no_tick_announced(core: ConsumerCore) -> None:
    position(core, A)
    assert core.may_deliver(next(iter(core.fetches)), TIMEOUT_S + 1) is None
    assert core.lapses == 1


def test_dead_letters_that_wait_are_told_once_and_to_each_controller(core: ConsumerCore) -> None:
    for now, waiting in ((0.1, 2), (0.2, 0)):
        core.dead_letters_waiting = waiting
        assert core.report_due(now)
        report = there(core.begin_report(now))
        core.on_reported(report.number, now)
        assert (report.dead_letters_waiting, core.report_due(now)) == (waiting, False)
    core.dead_letters_waiting = 1
    told(core, 0.3)
    assert core.on_subscribed(core.begin_subscribe(0.4).number, assignment(1, 0), 0.4)
    assert core.report_due(0.4)


def test_an_answer_to_a_subscribe_that_came_too_late_is_void() -> None:
    core = ConsumerCore(SETTLE_S)
    assert not core.on_subscribed(core.begin_subscribe(0.0).number, assignment(1, 0), TIMEOUT_S + 1)
    assert core.needs_subscribe
    assert core.fetches == {}


def test_an_answer_to_an_earlier_subscribe_is_void() -> None:
    core = ConsumerCore(SETTLE_S)
    first = core.begin_subscribe(0.0)
    core.begin_subscribe(0.1)
    assert not core.on_subscribed(first.number, assignment(1, 0), 0.2)


def test_an_answered_release_of_a_former_topic_releases_nothing_new() -> None:
    for placed in ((), (0,)):
        core = subscribed(0)
        position(core, A)
        core.on_assignment(assignment(2), 0.1)
        report = there(core.begin_report(0.1))
        assert report.released == (A,)
        core.on_assignment(assignment(3, *placed, incarnation=8), 0.2)
        core.on_reported(report.number, 0.3)
        assert len(core.holdings) == len(placed)


def test_a_lapse_that_loses_an_acknowledgement_is_remembered() -> None:
    for end in (0, 6):
        core, holding = delivering(10)
        core.acknowledge(holding, end, 0.1)
        assert core.tick(TIMEOUT_S + 1)
        assert core.lost is (end > 0)


def test_a_controller_has_all_that_is_held_committed_again_and_hears_how_far_it_is() -> None:
    core = subscribed(0, 1)
    holding = position(core, A, 3)
    core.on_assignment(msgspec.structs.replace(assignment(2, 0, 1), commits_again=True), 0.1)
    assert core.commits(0.1) == [(holding, 3)], "the position of B is not known"
    core.on_committed(holding, 3, 0.2)
    assert core.commits(0.2) == []
    assert core.begin_subscribe(0.2).committed == {A: 3}


def test_a_bucket_whose_position_is_never_known_is_released_though_it_was_to_be_committed() -> None:
    core = subscribed(0)
    core.holdings[A].commits_again = True
    core.on_assignment(assignment(2), 0.1)
    assert told(core, 0.2) == ((A,), ())


def test_a_bucket_that_is_committed_again_is_not_released_before_that_is_over() -> None:
    core = subscribed(0, 1)
    holding = position(core, A, 3)
    core.commit_again()
    core.on_assignment(assignment(2, 1), 0.2)
    assert (holding.phase, core.commit_urgent(0.2)) == (Phase.SETTLING, True)
    core.on_committed(holding, 3, 0.3)
    assert holding.phase is Phase.RELEASED


def test_a_lapse_before_something_was_committed_again_has_lost_nothing(core: ConsumerCore) -> None:
    position(core, A, 3)
    core.commit_again()
    assert core.tick(TIMEOUT_S + 0.1)
    assert not core.lost


@pytest.mark.parametrize("session_s", [2.0, 10.0, 3_600.0])
def test_a_commit_is_over_well_before_another_may_have_the_bucket(session_s: float) -> None:
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


# --- assignments that cross its own words: none is lost on it ---------------------------------


def test_a_push_seen_before_the_answer_to_a_subscribe_counts_with_it(core: ConsumerCore) -> None:
    order = core.begin_subscribe(0.1)
    core.on_assignment(assignment(3, 0, 1), 0.2)
    core.on_assignment(assignment(2, 1), 0.2)
    assert [h.place for h in core.fetches.values()] == [A]  # not before the answer
    assert core.on_subscribed(order.number, assignment(1, 0), 0.2)
    assert {h.place for h in core.fetches.values()} == {A, B}


def test_a_bucket_that_was_granted_and_taken_away_before_the_answer_was_seen_is_released() -> None:
    core = ConsumerCore(SETTLE_S)
    order = core.begin_subscribe(0.0)
    core.on_assignment(assignment(2, 0, 1), 0.0)
    core.on_assignment(assignment(3, 0), 0.0)
    assert core.on_subscribed(order.number, assignment(1, 0), 0.0)
    assert ([h.place for h in core.fetches.values()], told(core, 0.0)[0]) == ([A], (B,))


def test_a_push_of_an_attempt_that_was_given_up_counts_for_no_other(core: ConsumerCore) -> None:
    core.begin_subscribe(0.1)
    core.on_assignment(assignment(9, 0, 1), 0.2)
    core.on_disconnected()
    core.on_assignment(assignment(10, 0, 1), 0.2)
    assert core.on_subscribed(core.begin_subscribe(0.3).number, assignment(1, 0), 0.4)
    assert [h.place for h in core.fetches.values()] == [A]


def test_a_session_counts_from_when_it_was_asked_for_not_from_when_it_was_answered() -> None:
    core = ConsumerCore(SETTLE_S)
    assert core.on_subscribed(core.begin_subscribe(100.0).number, assignment(1, 0), 109.0)
    assert core.is_alive(100.0 + TIMEOUT_S)
    assert not core.is_alive(100.1 + TIMEOUT_S)
    core.tick(100.1 + TIMEOUT_S)
    assert not core.holdings


@pytest.mark.parametrize("live", [False, True])
def test_a_bucket_that_ended_before_its_first_message_is_drained_without_kafka(live: bool) -> None:
    core = subscribed(0, 1, ends=() if live else (0, 5))
    if live:
        core.on_assignment(assignment(2, 0, 1, ends=(0, 5)), 1.0)
    assert [holding.place for holding in core.fetches.values()] == [B]
    assert told(core, 1.0) == ((), (A,))
    core.on_assignment(assignment(3, 1, ends=(0, 5)), 2.0)
    assert told(core, 2.0) == ((A,), ())
