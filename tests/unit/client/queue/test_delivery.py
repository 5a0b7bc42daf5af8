"""How a delivery is settled."""

from __future__ import annotations

import threading
from typing import Any, cast

from confluent_kafka import Message

from anabranch.client._queue.messages import ACCEPT, REJECT, RELEASE, Delivery


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
