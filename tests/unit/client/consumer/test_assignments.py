"""What a consumer makes of assignments that cross its own words: none of them is lost on it."""

from anabranch.client._consumer.assignment import AssignedSegment, Assignment, SegmentBucket
from anabranch.client._consumer.core import ConsumerCore

A, B = SegmentBucket(1, 0), SegmentBucket(1, 1)


def assignment(sequence: int, *buckets: int) -> Assignment:
    segments = (AssignedSegment(1, "t-1", buckets),) if buckets else ()
    return Assignment(sequence, 7, 1, "group", 12.0, segments)


def subscribed(*buckets: int) -> ConsumerCore:
    core = ConsumerCore(5.0)
    order = core.begin_subscribe(0.0)
    assert core.on_subscribed(order.number, assignment(1, *buckets), 0.0)
    return core


def start(core: ConsumerCore) -> None:
    for number in list(core.fetches):
        core.on_position(number, 0)


def released(core: ConsumerCore, now: float) -> tuple[SegmentBucket, ...]:
    report = core.begin_report(now)
    assert report is not None
    core.on_reported(report.number, now)
    return report.released


def test_a_push_that_is_seen_before_the_answer_to_its_subscribe_counts_with_the_answer() -> None:
    core = subscribed(0)
    order = core.begin_subscribe(0.1)
    core.on_assignment(assignment(3, 0, 1), 0.2)
    core.on_assignment(assignment(2, 1), 0.2)
    assert [h.place for h in core.fetches.values()] == [A]  # not before the answer
    assert core.on_subscribed(order.number, assignment(1, 0), 0.2)
    assert {h.place for h in core.fetches.values()} == {A, B}


def test_a_bucket_that_was_granted_and_taken_away_before_the_answer_was_seen_is_released() -> None:
    core = ConsumerCore(5.0)
    order = core.begin_subscribe(0.0)
    core.on_assignment(assignment(2, 0, 1), 0.0)
    core.on_assignment(assignment(3, 0), 0.0)
    assert core.on_subscribed(order.number, assignment(1, 0), 0.0)
    assert [h.place for h in core.fetches.values()] == [A]
    assert released(core, 0.0) == (B,)


def test_a_push_of_an_attempt_that_was_given_up_does_not_count_for_the_next() -> None:
    core = subscribed(0)
    core.begin_subscribe(0.1)
    core.on_assignment(assignment(9, 0, 1), 0.2)
    core.on_disconnected()
    core.on_assignment(assignment(10, 0, 1), 0.2)
    order = core.begin_subscribe(0.3)
    assert core.on_subscribed(order.number, assignment(1, 0), 0.4)
    assert [h.place for h in core.fetches.values()] == [A]


def test_a_grant_that_crosses_a_release_is_not_believed() -> None:
    core = subscribed(0)
    start(core)
    core.on_assignment(assignment(2), 1.0)
    report = core.begin_report(1.0)
    assert report is not None
    core.on_assignment(assignment(3, 0), 1.1)
    assert core.fetches == {}
    core.on_reported(report.number, 1.2)
    assert core.needs_subscribe
    order = core.begin_subscribe(1.3)
    assert order.holdings == ()
    core.on_subscribed(order.number, assignment(4, 0), 1.4)
    assert [h.place for h in core.fetches.values()] == [A]


def test_a_bucket_granted_again_and_taken_away_during_its_release_is_told_to_be_free() -> None:
    core = subscribed(0)
    start(core)
    core.on_assignment(assignment(2), 1.0)
    report = core.begin_report(1.0)
    assert report is not None
    core.on_assignment(assignment(3, 0), 1.1)
    core.on_assignment(assignment(4), 1.2)
    core.on_reported(report.number, 1.3)
    assert core.needs_subscribe
    assert core.begin_subscribe(1.3).holdings == ()


def test_an_older_assignment_is_ignored() -> None:
    core = subscribed(0)
    core.on_assignment(assignment(3, 0, 1), 0.0)
    core.on_assignment(assignment(2), 0.0)
    assert len(core.fetches) == 2


# --- from when a session counts ------------------------------------------------------------------

SESSION_S = 12.0


def test_a_session_counts_from_when_it_was_asked_for_not_from_when_it_was_answered() -> None:
    core = ConsumerCore(5.0)
    order = core.begin_subscribe(100.0)
    assert core.on_subscribed(order.number, assignment(1, 0), 109.0)
    assert core.is_alive(100.0 + SESSION_S)
    assert not core.is_alive(100.1 + SESSION_S)
    core.tick(100.1 + SESSION_S)
    assert not core.holdings


def test_an_answered_report_extends_the_session_from_when_it_was_sent() -> None:
    core = subscribed(0)
    report = core.begin_report(3.0)
    assert report is not None
    core.on_reported(report.number, 9.0)
    assert core.is_alive(3.0 + SESSION_S)
    assert not core.is_alive(3.1 + SESSION_S)


def test_an_answer_to_an_older_question_takes_nothing_from_the_session() -> None:
    core = subscribed(0)
    order = core.begin_subscribe(5.0)
    assert core.on_subscribed(order.number, assignment(1, 0), 5.0)
    assert core.is_alive(5.0 + SESSION_S)


def test_an_older_assignment_that_comes_later_is_not_applied_again() -> None:
    core = subscribed(0)
    start(core)
    core.on_assignment(assignment(3, 0, 1), 1.0)
    core.on_assignment(assignment(2, 0), 1.0)
    core.on_assignment(assignment(3), 1.0)
    assert {h.place for h in core.fetches.values()} == {A, B}
    core.on_assignment(assignment(4, 1), 1.0)
    assert {h.place for h in core.fetches.values()} == {B}
