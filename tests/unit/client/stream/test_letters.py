"""`run` puts messages aside that its handler cannot process, and their keys go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.client._stream import schedule
from anabranch.core.errors import InvalidInputError
from support.aside import Aside
from support.lone_consumers import Filled, consuming
from support.there import there
from support.waiting import until

ASIDE = "topic://public/default/orders-billing-DLQ"
NOW = sdk.Backoff(first=0.001, factor=1.0, most=0.001)
PUT_ASIDE = sdk.Retry(attempts_max=2, delay_s=NOW, then="dead_letter")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be put aside is tried again without a pause."""
    monkeypatch.setattr(schedule, "_LETTER_AGAIN_S", 0.001)


class Scene:
    """A consumer that runs a handler, which fails for poisonous keys."""

    def __init__(self, consumer: sdk.StreamConsumer, plane: Filled, aside: Aside) -> None:
        self.consumer, self.plane, self.aside = consumer, plane, aside
        self.handled: list[int] = []
        self.tried: list[int] = []

    async def handle(self, message: sdk.Message, work: sdk.Work) -> None:
        self.tried.append(message.offset)
        if message.value in (b"0", b"3"):
            raise ValueError("poison")
        if message.value == b"5":
            raise sdk.Reject("hopeless")
        self.handled.append(message.offset)

    @property
    def acknowledged(self) -> int:
        (holding,) = self.consumer._core.holdings.values()
        return there(holding.acknowledged)

    def read(self, keys: str) -> None:
        self.plane.read(range(len(keys)), [key.encode() for key in keys])
        self.consumer._readable.set()


@asynccontextmanager
async def scene(retry: sdk.Retry = PUT_ASIDE) -> AsyncIterator[tuple[Scene, asyncio.Task[None]]]:
    aside = Aside()
    async with consuming(1_000, aside.maker(), ASIDE) as (consumer, plane):
        made = Scene(consumer, plane, aside)
        run = asyncio.create_task(consumer.run(made.handle, retry=retry))
        try:
            yield made, run
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


@asynccontextmanager
async def batching(
    aside: Aside, handle: Callable[..., Any], keys: str, **options: Any
) -> AsyncIterator[sdk.StreamConsumer]:
    """A consumer that runs the handler on batches of these messages, a key each."""
    async with consuming(1_000, aside.maker(), ASIDE) as (consumer, plane):
        plane.read(range(len(keys)), [key.encode() for key in keys])
        options |= {"wait_s": 0.0, "retry": PUT_ASIDE}
        run = asyncio.create_task(consumer.run_batches(handle, **options))
        try:
            yield consumer
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_what_always_fails_is_put_aside_and_its_key_goes_on() -> None:
    async with scene() as (at, _):
        at.read("aab")
        await until(lambda: at.acknowledged == 3)
        assert at.tried.count(0) == 2
        assert at.handled[-1] == 1 or at.handled == [1, 2]
        assert at.aside.topics == [ASIDE]
        (sent,) = at.aside.sent
        assert sent[:2] == (b"0", b"a")
        letter = at.aside.letter()
        assert letter.reason is sdk.DeadLetterReason.ATTEMPTS
        assert (letter.offset, letter.deliveries) == (0, 2)
        assert letter.error == "ValueError: poison"


async def test_what_is_rejected_is_put_aside_at_once() -> None:
    async with scene() as (at, _):
        at.read("abcdef")
        await until(lambda: at.acknowledged == 6)
        assert at.tried.count(5) == 1
        reasons = {at.aside.letter(n).offset: at.aside.letter(n).reason for n in range(3)}
        why = sdk.DeadLetterReason
        assert reasons == {0: why.ATTEMPTS, 3: why.ATTEMPTS, 5: why.REJECTED}


async def test_what_cannot_be_put_aside_waits_and_is_handled_no_more() -> None:
    async with scene() as (at, _):
        at.aside.failure = sdk.DeliveryError("Kafka is away")
        at.read("aab")
        await until(lambda: at.consumer.dead_letters_waiting == 1)
        await until(lambda: at.handled == [2])
        await until(
            lambda: [each.error for each in at.consumer.blocked()] == ["ValueError: poison"]
        )
        assert at.acknowledged == 0
        at.aside.failure = None
        await until(lambda: at.acknowledged == 3)
        assert at.tried.count(0) == 2
        assert at.aside.letter().error == "ValueError: poison"
        await until(lambda: at.consumer.dead_letters_waiting == 0)
        assert there(at.consumer.stats()).attempts == len(at.tried), "letters are no attempts"


async def test_a_key_s_letters_are_in_order_though_the_first_cannot_be_stored() -> None:
    aside = Aside()
    aside.failures = [sdk.DeliveryError("Kafka is away")]

    async def handle(batch: list[tuple[sdk.Message, sdk.Work]]) -> None:
        raise sdk.BatchFailed({message: sdk.Reject("hopeless") for message, _ in batch})

    async with batching(aside, handle, "aaa"):
        await until(lambda: len(aside.sent) == 3)
    assert [aside.letter(number).offset for number in range(3)] == [0, 1, 2]


async def test_a_call_that_is_cancelled_begins_no_further_letter() -> None:
    aside = Aside()
    aside.may_send.clear()

    async def handle(batch: list[tuple[sdk.Message, sdk.Work]]) -> None:
        raise sdk.BatchFailed({message: sdk.Reject("hopeless") for message, _ in batch})

    async with batching(aside, handle, "abc", of="bucket") as consumer:
        await until(lambda: bool(aside.topics))
    assert there(consumer.stats()).left_behind == 0
    aside.may_send.set()
    await asyncio.sleep(0)
    assert aside.sent == []


async def test_a_letter_waits_for_what_is_before_it_of_its_key() -> None:
    aside = Aside()

    async def handle(batch: list[tuple[sdk.Message, sdk.Work]]) -> None:
        errors = {0: ValueError("once more"), 1: sdk.Reject("hopeless")}
        raise sdk.BatchFailed({message: errors[message.offset] for message, _ in batch})

    async with batching(aside, handle, "aa"):
        await until(lambda: len(aside.sent) == 2)
    assert [aside.letter(number).offset for number in range(2)] == [0, 1]


async def test_a_letter_is_not_yet_stored_when_the_consumer_stops_and_comes_again() -> None:
    async with scene() as (at, run):
        at.aside.may_send.clear()
        at.read("ab")
        await until(lambda: bool(at.aside.topics) and at.handled == [1])
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert at.acknowledged == 0
        assert at.aside.sent == []


async def test_too_many_letters_end_the_consumer_and_the_last_one_stays() -> None:
    retry = sdk.Retry(attempts_max=1, delay_s=NOW, then="dead_letter", letters_max=1)
    async with scene(retry) as (at, run):
        at.read("aaaaaa")
        with pytest.raises(sdk.HandlerError, match=r"letters_max.*@3 of .*ValueError: poison"):
            await run
        assert len(at.aside.sent) == 1
        assert at.acknowledged == 3


async def test_dead_letters_need_a_policy_of_the_subscription() -> None:
    async with consuming(9) as (consumer, _):
        with pytest.raises(InvalidInputError, match=r"dead_letter=DeadLetterPolicy"):
            await consumer.run(_nothing, retry=PUT_ASIDE)


async def _nothing(message: sdk.Message, work: sdk.Work) -> Any:
    pass


def test_letters_have_a_limit_of_one_at_least() -> None:
    with pytest.raises(InvalidInputError, match="letters_max must be at least 1"):
        sdk.Retry(letters_max=0).check()
