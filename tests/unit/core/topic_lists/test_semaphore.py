"""The rules of the semaphore that gives memory to topic lists, one by one."""

from __future__ import annotations

import time

import pytest

from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.errors import InvalidPermitsError
from anabranch.core.topic_lists.semaphore import (
    LARGEST,
    Permit,
    PermitGranted,
    Semaphore,
    SemaphoreLimits,
)
from support.permits import NamedRequests

# --- what is asked for ----------------------------------------------------------------------


def test_a_negative_number_of_permits_fails_at_once() -> None:
    for permits_max in (10, 0):
        of = NamedRequests(permits_max)
        assert of.acquire("a", -1) == ["a negative"]
        assert of.messages["a"] == "Invalid negative permits value: -1"
        of.acquire("b", 3)
        assert of.update("c", "b", -2) == ["c negative"]
        assert of.held("b") == 3


def test_more_than_there_will_ever_be_fails_at_once() -> None:
    of = NamedRequests(10)
    assert of.acquire("a", 11) == ["a more_than_all"]
    assert of.messages["a"] == "Requested permits=11 is larger than maxPermits=10"
    assert of.acquire("b", 10) == ["b has 10"]
    assert of.update("c", "b", 11) == ["c more_than_all"]
    assert of.held("b") == 10


def test_no_permits_may_be_asked_for() -> None:
    of = NamedRequests(10)
    assert of.acquire("a", 0) == ["a has 0"]
    assert of.semaphore.available == 10


# --- without a maximum ----------------------------------------------------------------------


@pytest.mark.parametrize("permits_max", [0, -1])
def test_without_a_maximum_everything_succeeds_at_once(permits_max: int) -> None:
    of = NamedRequests(permits_max, queue_max=1)
    of.cancelled.add("a")
    assert of.acquire("a", 1 << 62) == ["a has 4611686018427387904"]
    of.close()
    assert of.acquire("b", 1 << 62) == ["b has 4611686018427387904"]
    assert of.update("c", "b", 7) == ["c has 7"]
    assert of.update("d", "c", 9) == ["d has 9"]
    assert of.release("d") == []
    assert (of.semaphore.available, of.semaphore.acquired) == (LARGEST, 0)
    assert of.semaphore.queue_size == 0
    assert of.latencies == []  # nobody has queued


# --- the queue ------------------------------------------------------------------------------


def test_who_comes_later_does_not_overtake_though_less_would_do() -> None:
    of = NamedRequests(10)
    of.acquire("a", 8)
    assert of.acquire("large", 5) == []
    assert of.acquire("small", 1) == []
    assert of.acquire("none", 0) == []
    assert of.release("a") == ["large has 5", "small has 1", "none has 0"]


def test_with_nothing_available_nothing_is_looked_at() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.cancelled.add("b")
    assert of.acquire("b", 1) == []
    assert of.acquire("none", 0) == []
    assert of.look() == []
    assert of.semaphore.queue_size == 2
    assert of.release("a") == ["b cancelled", "none has 0"]


def test_a_full_queue_refuses_at_once_though_a_cancelled_head_is_in_it() -> None:
    of = NamedRequests(10, queue_max=2)
    of.acquire("a", 10)
    of.cancelled.add("b")
    of.acquire("b", 1)
    of.acquire("c", 1)
    assert of.acquire("d", 0) == ["d queue_full"]
    assert of.messages["d"] == "Semaphore queue is full"
    assert of.update("e", "a", 0) == ["e has 0", "b cancelled", "c has 1"]  # not by the queue
    of.acquire("f", 9)
    of.acquire("g", 1)
    of.acquire("h", 1)
    assert of.update("i", "c", 3) == ["i queue_full"]
    assert of.held("c") == 1


@pytest.mark.parametrize("queue_max", [0, -1])
def test_a_queue_without_a_length_takes_everybody(queue_max: int) -> None:
    of = NamedRequests(1, queue_max)
    of.acquire("first", 1)
    for each in range(3_000):
        assert of.acquire(str(each), 1) == []
    assert of.semaphore.queue_size == 3_000


def test_a_free_queue_of_one_serves_one_after_the_other() -> None:
    of = NamedRequests(10, queue_max=1)
    assert [of.acquire(each, 2) for each in "abc"] == [["a has 2"], ["b has 2"], ["c has 2"]]


# --- cancelled ------------------------------------------------------------------------------


def test_a_cancel_flag_counts_at_the_head_only() -> None:
    of = NamedRequests(10)
    of.acquire("a", 8)
    of.acquire("head", 5)
    of.cancelled.add("behind")
    of.acquire("behind", 1)
    assert of.look() == []
    assert of.semaphore.queue_size == 2
    of.cancelled.add("head")
    assert of.look() == ["head cancelled", "behind cancelled"]
    assert of.messages["head"] == "Permit acquisition was cancelled"


def test_a_flag_that_is_set_from_the_beginning_gets_nothing_though_permits_are_free() -> None:
    of = NamedRequests(10)
    of.cancelled.add("a")
    assert of.acquire("a", 1) == ["a cancelled"]
    assert of.semaphore.acquired == 0


def test_who_is_withdrawn_leaves_the_place_to_those_behind() -> None:
    of = NamedRequests(10)
    of.acquire("a", 8)
    of.acquire("large", 5)
    of.acquire("small", 1)
    assert of.withdraw("large") == ["small has 1"]
    assert of.withdraw("large") == []
    assert of.withdraw("a") == []  # has ended
    assert of.semaphore.acquired == 9


# --- time-outs ------------------------------------------------------------------------------


def test_a_time_out_counts_from_the_request_and_lets_the_next_one_have_its_turn() -> None:
    of = NamedRequests(10, timeout_ns=100)
    of.acquire("a", 8)
    of.now = 10
    of.acquire("large", 5)
    of.now = 50
    of.acquire("small", 1)
    assert of.semaphore.due_ns == 110
    assert of.pass_time(109) == []
    assert of.pass_time(110) == ["large timed_out", "small has 1"]
    assert of.messages["large"] == "Permit acquisition timed out"
    assert of.semaphore.queue_size == 0
    assert of.pass_time(1_000) == []


def test_a_time_out_takes_a_cancelled_head_as_what_it_is_first() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.cancelled.add("b")
    of.acquire("b", 1)
    assert of.pass_time(100) == ["b timed_out"]


def test_a_timed_out_update_leaves_the_old_permit_as_it_was() -> None:
    of = NamedRequests(10)
    of.acquire("a", 6)
    of.acquire("b", 4)
    assert of.update("c", "a", 7) == []
    assert of.pass_time(100) == ["c timed_out"]
    assert of.held("a") == 6
    of.release("b")
    assert of.semaphore.acquired == 6


def test_latency_is_told_when_served_and_twice_on_a_time_out() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.now = 5
    of.acquire("b", 4)
    of.now = 25
    of.acquire("c", 7)
    of.release("a")
    assert of.latencies == [0, 20]
    of.pass_time(126)
    assert of.latencies == [0, 20, LARGEST, 101]
    of.cancelled.add("d")
    of.acquire("d", 1)
    of.acquire("e", 11)
    of.close()
    assert len(of.latencies) == 4


# --- release --------------------------------------------------------------------------------


def test_a_second_release_gives_back_nothing() -> None:
    of = NamedRequests(10)
    of.acquire("a", 4)
    of.acquire("b", 5)
    of.release("a")
    of.release("a")
    assert (of.semaphore.acquired, of.held("a")) == (5, 0)


def test_a_permit_of_something_else_is_refused_and_changes_nothing() -> None:
    of, other = NamedRequests(10), NamedRequests(10)
    other.acquire("theirs", 4)
    of.acquire("ours", 4)
    for strange in (other.permits["theirs"], None, 4):
        with pytest.raises(InvalidPermitsError, match=r"^Invalid permit type"):
            of.semaphore.release(strange, 0)  # type: ignore[arg-type]
        with pytest.raises(InvalidPermitsError, match=r"^Invalid permit type"):
            of.semaphore.update(7, strange, 1, 0)  # type: ignore[arg-type]
    assert (of.semaphore.acquired, other.held("theirs")) == (4, 4)


# --- update ---------------------------------------------------------------------------------


def test_an_update_to_more_waits_for_the_difference_only() -> None:
    of = NamedRequests(10)
    of.acquire("a", 6)
    of.acquire("b", 3)
    assert of.update("c", "a", 8) == []
    assert of.held("a") == 6  # until then
    assert of.acquire("behind", 1) == []  # strictly in order
    assert of.release("b") == ["c has 8", "behind has 1"]
    assert (of.held("a"), of.semaphore.acquired) == (0, 9)
    of.release("a")
    assert of.semaphore.acquired == 9


def test_an_update_to_fewer_or_as_many_is_done_at_once_without_the_queue() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.acquire("waits", 2)
    assert of.update("same", "a", 10) == ["same has 10"]
    assert of.update("fewer", "same", 7) == ["fewer has 7", "waits has 2"]
    assert (of.held("a"), of.held("same")) == (0, 0)
    of.release("same")
    of.release("fewer")
    assert of.semaphore.acquired == 2


def test_a_cancelled_update_leaves_the_old_permit_as_it_was() -> None:
    of = NamedRequests(10)
    of.acquire("a", 6)
    of.cancelled.add("b")
    assert of.update("b", "a", 7) == ["b cancelled"]
    assert (of.held("a"), of.semaphore.acquired) == (6, 6)


def test_an_update_whose_old_permit_is_released_meanwhile_needs_all() -> None:
    of = NamedRequests(10)
    of.acquire("a", 6)
    of.acquire("b", 4)
    assert of.update("c", "a", 7) == []
    assert of.release("a") == []  # 6 are free, 7 are needed now
    assert of.release("b") == ["c has 7"]
    assert of.semaphore.acquired == 7


def test_an_update_of_a_released_permit_is_an_acquire() -> None:
    of = NamedRequests(10)
    of.acquire("a", 6)
    of.release("a")
    of.acquire("b", 8)
    assert of.update("c", "a", 6) == []
    assert of.release("b") == ["c has 6"]
    assert of.semaphore.acquired == 6


def test_of_two_updates_of_one_permit_the_second_needs_all() -> None:
    of = NamedRequests(10)
    of.acquire("a", 4)
    of.acquire("b", 6)
    of.update("c", "a", 5)
    of.update("d", "a", 5)
    assert of.release("b") == ["c has 5", "d has 5"]
    assert of.semaphore.acquired == 10


# --- close ----------------------------------------------------------------------------------


def test_closing_fails_all_that_wait_in_their_order_and_all_that_come() -> None:
    of = NamedRequests(10)
    of.acquire("a", 6)
    of.acquire("b", 4)
    of.acquire("c", 1)
    of.update("d", "a", 7)
    of.acquire("e", 0)
    assert of.close() == ["c closed", "d closed", "e closed"]
    assert of.messages["c"] == "Semaphore is closed"
    assert of.acquire("f", 1) == ["f closed"]
    assert of.update("g", "a", 7) == ["g closed"]
    assert of.close() == []
    assert of.release("b") == []
    assert of.update("h", "a", 2) == ["h has 2"]  # fewer is another word for releasing
    assert of.semaphore.acquired == 2


# --- other limits while running -------------------------------------------------------------


def test_a_higher_maximum_serves_who_waits_in_their_order() -> None:
    of = NamedRequests(10)
    of.acquire("a", 8)
    of.acquire("b", 5)
    of.acquire("c", 5)
    assert of.configure(14) == ["b has 5"]
    assert of.semaphore.available == 1


def test_under_a_lower_maximum_held_permits_stay_and_nothing_is_given_until_they_are_back() -> None:
    of = NamedRequests(100)
    of.acquire("a", 60)
    of.acquire("b", 30)
    assert of.configure(50) == []
    assert (of.semaphore.available, of.semaphore.acquired) == (0, 90)
    assert of.acquire("c", 10) == []
    assert of.update("shrunk", "a", 55) == ["shrunk has 55"]  # more than all, and yet less
    assert of.release("b") == []
    assert of.release("shrunk") == ["c has 10"]
    assert of.semaphore.available == 40


def test_who_waits_for_more_than_a_lower_maximum_is_refused_wherever_in_the_queue() -> None:
    of = NamedRequests(10)
    of.acquire("a", 8)
    of.acquire("b", 3)
    of.acquire("c", 9)
    of.update("d", "a", 10)
    assert of.configure(8) == ["c more_than_all", "d more_than_all"]
    assert of.messages["c"] == "Requested permits=9 is larger than maxPermits=8"
    assert of.held("a") == 8
    assert of.release("a") == ["b has 3"]


def test_a_shorter_queue_refuses_new_requests_only() -> None:
    of = NamedRequests(10, queue_max=3)
    of.acquire("a", 10)
    for each in "bcd":
        of.acquire(each, 1)
    assert of.configure(10, queue_max=1) == []
    assert of.acquire("e", 1) == ["e queue_full"]
    assert of.release("a") == ["b has 1", "c has 1", "d has 1"]


def test_another_time_out_counts_for_those_who_wait_from_their_own_request() -> None:
    of = NamedRequests(10, timeout_ns=100)
    of.acquire("a", 10)
    of.acquire("b", 1)
    of.now = 30
    of.acquire("c", 1)
    of.now = 60
    assert of.configure(10, timeout_ns=50) == ["b timed_out"]
    assert of.configure(10, timeout_ns=500) == []
    assert of.semaphore.due_ns == 530
    assert of.pass_time(529) == []
    assert of.pass_time(530) == ["c timed_out"]


def test_permits_that_a_change_brings_go_before_the_time_out_that_it_brings() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.acquire("b", 5)
    of.now = 60
    assert of.configure(15, timeout_ns=50) == ["b has 5"]


def test_without_a_maximum_any_more_all_that_wait_are_served_even_the_cancelled() -> None:
    of = NamedRequests(10)
    of.acquire("a", 10)
    of.cancelled.add("b")
    of.acquire("b", 2)
    of.acquire("d", 3)
    assert of.configure(0) == ["b has 2", "d has 3"]
    assert (of.semaphore.acquired, of.semaphore.queue_size) == (0, 0)


def test_what_was_held_without_a_maximum_counts_when_there_is_one_again() -> None:
    of = NamedRequests(0)
    of.acquire("a", 70)
    of.acquire("b", 20)
    of.release("b")
    of.update("c", "a", 60)
    of.configure(100)
    assert of.semaphore.acquired == 60
    assert of.acquire("d", 41) == []
    assert of.release("c") == ["d has 41"]


def test_a_time_out_of_nothing_is_no_limit_to_give() -> None:
    with pytest.raises(InvalidInputError, match="give more than 0"):
        SemaphoreLimits(1, 1, 0)


# --- cost -----------------------------------------------------------------------------------


def _seconds_per_event(waiting: int) -> float:
    """Of a request, its grant and a release, while so many others wait."""
    semaphore = Semaphore(SemaphoreLimits(10, 0, 1 << 60))
    held: list[Permit] = []
    for each in range(waiting):
        held += [
            effect.permit
            for effect in semaphore.acquire(each, 10, each)
            if isinstance(effect, PermitGranted)
        ]
    rounds = 2_000
    began = time.process_time()
    for each in range(rounds):
        number = waiting + each
        semaphore.acquire(number, 10, number)
        semaphore.withdraw(number - waiting // 2, number)  # from the middle
        (effect,) = semaphore.release(held.pop(), number)
        assert isinstance(effect, PermitGranted)
        held.append(effect.permit)
        assert semaphore.time_out(number) == []
    return (time.process_time() - began) / rounds


def test_an_event_costs_as_much_with_many_that_wait_as_with_few() -> None:
    few = min(_seconds_per_event(4_000) for _ in range(3))
    many = min(_seconds_per_event(64_000) for _ in range(3))
    assert many < 8 * few  # a search of the queue would take 16 times as long
