"""`run` of a queue: each message is settled by the end of its handler."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.assignment import Assignment
from anabranch.client._queue.messages import ACCEPT, DELAY, REJECT, RELEASE, Delivery
from anabranch.client._queue.share_group import Delivering
from anabranch.core.errors import InvalidInputError
from support.given import Given
from support.lone_consumers import ready_queue
from support.still_watch import lone_member
from support.waiting import until


def delivered(*counts: int, hold_s: float = math.inf) -> tuple[sdk.QueueConsumer, Delivery]:
    """A consumer with a delivery of messages that were given out so often."""
    messages: list[Any] = [Given(b"%d" % n, n, count) for n, count in enumerate(counts)]
    delivery = Delivery(messages, {"k": len(messages)}, 3, time.monotonic() + hold_s)
    consumer = ready_queue(lone_member("jobs", "one"), delivery)
    consumer._delivering = Delivering(30.0, 10)
    consumer._core.assignment = Assignment(1, 1, 1, "group", 10.0)
    return consumer, delivery


async def settled(
    delivery: Delivery, consumer: sdk.QueueConsumer, handler: Callable[..., Any], **options: Any
) -> list[int]:
    """The answers once each message has one."""
    run = asyncio.create_task(consumer.run(handler, **options))
    try:
        await until(lambda: delivery._open == 0 or run.done())
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    return list(delivery._answers)


async def test_a_message_is_settled_as_its_handler_ends() -> None:
    errors = {b"1": ValueError("no"), b"2": sdk.Reject("never"), b"3": sdk.Again(delay_s=9.0)}

    async def handle(message: sdk.QueueMessage, work: sdk.Work) -> None:
        if error := errors.get(message.value):
            raise error

    consumer, delivery = delivered(1, 1, 1, 1)
    assert await settled(delivery, consumer, handle) == [ACCEPT, DELAY, REJECT, DELAY]


async def test_messages_are_worked_on_side_by_side_as_many_as_said() -> None:
    running: set[int] = set()
    most = 0
    go_on = asyncio.Event()

    async def handle(message: sdk.QueueMessage, work: sdk.Work) -> None:
        nonlocal most
        running.add(message.offset)
        most = max(most, len(running))
        if len(running) == 2:
            go_on.set()
        await go_on.wait()
        running.discard(message.offset)

    consumer, delivery = delivered(1, 1, 1, 1, 1)
    assert await settled(delivery, consumer, handle, concurrency=2) == [ACCEPT] * 5
    assert most == 2


async def test_an_attempt_ends_with_its_time_and_with_its_lock() -> None:
    async def handle(message: sdk.QueueMessage, work: sdk.Work) -> None:
        await asyncio.Event().wait()

    consumer, delivery = delivered(1)
    assert await settled(delivery, consumer, handle, timeout_s=0.01) == [DELAY]
    consumer, delivery = delivered(1, hold_s=0.01)
    assert await settled(delivery, consumer, handle) == [DELAY]


async def test_what_is_cancelled_is_given_to_another_at_once() -> None:
    begun = asyncio.Event()

    async def handle(message: sdk.QueueMessage, work: sdk.Work) -> None:
        begun.set()
        await asyncio.Event().wait()

    consumer, delivery = delivered(1)
    run = asyncio.create_task(consumer.run(handle))
    await begun.wait()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert list(delivery._answers) == [RELEASE]


async def test_a_handler_is_told_which_attempt_it_is_and_plain_ones_have_threads() -> None:
    told: list[tuple[int, str]] = []

    def handle(message: sdk.QueueMessage, work: sdk.Work) -> None:
        told.append((work.attempt, work.id))

    consumer, delivery = delivered(3)
    assert await settled(delivery, consumer, handle, concurrency=2) == [ACCEPT]
    assert told == [(3, "1/7/0@0")]


async def test_one_either_runs_or_receives() -> None:
    async def handle(message: sdk.QueueMessage, work: sdk.Work) -> None:
        pass

    consumer, delivery = delivered(1, 1)
    await consumer.receive(1)
    with pytest.raises(InvalidInputError, match="either receives or runs"):
        await consumer.run(handle)
    consumer, delivery = delivered(1)
    assert await settled(delivery, consumer, handle) == [ACCEPT]
    with pytest.raises(InvalidInputError, match="whose end settles them"):
        await consumer.receive(1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency is 1 to"),
        ({"timeout_s": 0.0}, "timeout_s is above 0"),
        ({"delay_s": 3}, "must be a Backoff"),
        ({"delay_s": sdk.Backoff(first=0.0)}, "a Backoff grows"),
    ],
)
async def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    consumer, _ = delivered(1)
    with pytest.raises(InvalidInputError, match=said):
        await consumer.run(print, **options)
