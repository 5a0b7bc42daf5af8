"""When a queue's sealed segment counts as drained, and how a delivery is settled."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import pytest
from confluent_kafka import Message

from anabranch.client._queue.drain import Contact, QuietClock
from anabranch.client._queue.messages import ACCEPT, REJECT, RELEASE, Delivery

LOCK_S = 5.0


def polled(
    clock: QuietClock, start: float, seconds: float, *received: str, answers: bool = True
) -> float:
    """Polls of a tenth of a second without a pause, of which the first brings messages."""
    for number in range(round(seconds * 10)):
        began = start + number / 10
        clock.polled(began, began + 0.1, received if number == 0 else ())
        clock.contact(answered=answers)
    return start + seconds


@pytest.fixture
def clock() -> QuietClock:
    """One that follows a sealed segment."""
    found = QuietClock(LOCK_S)
    found.follow(["sealed"])
    return found


def test_a_sealed_segment_is_drained_after_two_lock_durations_of_silence(clock: QuietClock) -> None:
    at = polled(clock, 100.0, 2 * LOCK_S - 0.2)
    assert clock.drained() == []
    polled(clock, at, 0.4)
    assert clock.drained() == ["sealed"]


def test_a_message_of_the_segment_begins_the_count_anew(clock: QuietClock) -> None:
    at = polled(clock, 100.0, 9.0)
    at = polled(clock, at, 9.0, "sealed")
    assert clock.drained() == []
    polled(clock, at, 1.5)
    assert clock.drained() == ["sealed"]


def test_messages_of_other_segments_do_not_disturb_the_count(clock: QuietClock) -> None:
    polled(clock, 100.0, 11.0, "active")
    assert clock.drained() == ["sealed"]


def test_time_without_polls_proves_nothing(clock: QuietClock) -> None:
    for number in range(20):  # the application takes ten seconds for every delivery
        clock.polled(100.0 + 10 * number, 100.1 + 10 * number, ())
        clock.contact(answered=True)
    assert clock.drained() == []


def test_polls_that_reach_no_kafka_prove_nothing(clock: QuietClock) -> None:
    at = polled(clock, 100.0, 9.0)
    at = polled(clock, at, 60.0, answers=False)
    assert clock.drained() == []
    at = polled(clock, at, 0.5)
    assert clock.drained() == []
    polled(clock, at, 1.0)
    assert clock.drained() == ["sealed"]


def statistics(state: str = "UP", answers: int = 0, requests: int = 1) -> str:
    broker = {"nodeid": 1, "state": state, "rx": answers, "req": {"ShareFetch": requests}}
    bootstrap = {"nodeid": -1, "state": "INIT", "rx": 0, "req": {}}
    return json.dumps({"brokers": {"k:1/1": broker, "k:1/bootstrap": bootstrap}})


def test_only_new_answers_of_all_brokers_that_are_asked_for_messages_are_contact() -> None:
    contact = Contact()
    assert not contact.answered(statistics(answers=5)), "since when is not known"
    assert contact.answered(statistics(answers=6))
    assert not contact.answered(statistics(answers=6))
    assert not contact.answered(statistics("DOWN", answers=7))
    assert contact.answered(statistics(answers=8))
    assert not contact.answered(statistics(answers=9, requests=0)), "nothing is assigned"
    assert not contact.answered("{}")


def test_a_segment_that_is_followed_later_starts_at_zero() -> None:
    clock = QuietClock(LOCK_S)
    clock.follow(["first"])
    at = polled(clock, 100.0, 11.0)
    clock.follow(["first", "second"])
    assert clock.drained() == ["first"]
    clock.follow(["second"])
    polled(clock, at, 5.0)
    assert clock.drained() == []


def delivery(count: int) -> Delivery:
    return Delivery(cast("list[Message]", [None] * count))


def test_what_was_not_settled_in_time_is_released_and_cannot_be_settled_later() -> None:
    three = delivery(3)
    three.acknowledge(1, ACCEPT)
    assert three.end()[0] == [RELEASE, ACCEPT, RELEASE]
    assert not three.acknowledge(0, ACCEPT)
    assert not three.acknowledge_open(3, ACCEPT)


def test_settling_what_is_open_leaves_what_was_said_before() -> None:
    four = delivery(4)
    four.acknowledge(0, REJECT)
    assert four.acknowledge_open(3, ACCEPT)
    assert not four.wait(0.0)
    assert four.acknowledge(3, RELEASE)
    assert four.end()[0] == [REJECT, ACCEPT, ACCEPT, RELEASE]


def test_settling_twice_keeps_the_last_answer_and_counts_once() -> None:
    two = delivery(2)
    two.acknowledge(0, ACCEPT)
    two.acknowledge(0, RELEASE)
    assert not two.wait(0.0)
    two.acknowledge(1, ACCEPT)
    assert two.end()[0] == [RELEASE, ACCEPT]


def test_what_is_told_to_be_settled_is_so_even_if_the_delivery_ends_at_that_moment() -> None:
    one = delivery(1)
    answers: list[int] = []
    end = threading.Thread(target=lambda: answers.extend(one.end()[0]))

    class Ended(bytearray):
        """Whoever writes an answer has passed the check that the delivery is not over."""

        def __setitem__(self, *item: Any) -> None:
            end.start()
            end.join(0.1)
            super().__setitem__(*item)

    one._answers = Ended(1)
    assert one.acknowledge(0, ACCEPT)
    end.join()
    assert answers == [ACCEPT]
