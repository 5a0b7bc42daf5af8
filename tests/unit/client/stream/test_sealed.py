"""A key that waits in a sealed bucket has so long, and no longer, before all others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.client._stream import sealed
from anabranch.core.errors import InvalidInputError
from support.aside import Aside
from support.lone_consumers import Filled, consuming
from support.there import there
from support.waiting import until

ASIDE = "topic://public/default/orders-billing-DLQ"
SLOW = sdk.Backoff(first=60.0, factor=1.0, most=60.0)
FAST = sdk.Backoff(first=0.001, factor=1.0, most=0.001)
SOON = 0.05

Handle = Callable[[sdk.Message, sdk.Work], Any]


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "_LOOK_S", 0.0)


async def poison(message: sdk.Message, _: sdk.Work) -> None:
    if message.key == b"p":
        raise ValueError("poison")


@asynccontextmanager
async def scene(
    keys: str, retry: sdk.Retry, *, end: int | None = None, handle: Handle = poison
) -> AsyncIterator[tuple[sdk.StreamConsumer, Filled, Aside]]:
    """`end`: at which the bucket is sealed, unless behind the messages."""
    aside = Aside()
    end = len(keys) if end is None else end
    async with consuming(end, aside.maker(), ASIDE) as (consumer, plane):
        plane.read(range(len(keys)), [key.encode() for key in keys])
        run = asyncio.create_task(consumer.run(handle, retry=retry))
        try:
            yield consumer, plane, aside
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


def acknowledged(consumer: sdk.StreamConsumer) -> int:
    (holding,) = consumer._core.holdings.values()
    return there(holding.acknowledged)


async def test_what_waits_alone_in_a_sealed_bucket_goes_to_the_dead_letters_and_its_key_on() -> (
    None
):
    retry = sdk.Retry(delay_s=SLOW, then="dead_letter", sealed_wait_s=SOON)
    async with scene("apapb", retry) as (consumer, _, aside):
        await until(lambda: acknowledged(consumer) == 5)
        letters = [aside.letter(0), aside.letter(1)]
        assert [(each.offset, each.deliveries) for each in letters] == [(1, 1), (3, 1)]
        assert {each.reason for each in letters} == {sdk.DeadLetterReason.ATTEMPTS}


async def test_a_message_that_is_to_come_again_holds_up_a_sealed_bucket_no_longer() -> None:
    async def again(_: sdk.Message, __: sdk.Work) -> None:
        raise sdk.Again(delay_s=60.0)

    retry = sdk.Retry(then="dead_letter", sealed_wait_s=SOON)
    async with scene("a", retry, handle=again) as (consumer, _, aside):
        await until(lambda: acknowledged(consumer) == 1)
        assert (aside.letter().deliveries, aside.letter().error) == (0, "Again: 60.0")


async def test_attempts_go_on_meanwhile_and_do_not_begin_the_wait_anew() -> None:
    tried: list[int] = []

    async def slow(message: sdk.Message, _: sdk.Work) -> None:
        tried.append(message.offset)
        await asyncio.sleep(0.01)
        raise ValueError("poison")

    retry = sdk.Retry(attempts_max=10_000, delay_s=FAST, then="dead_letter", sealed_wait_s=0.2)
    async with scene("abab", retry, handle=slow) as (consumer, _, aside):
        await until(lambda: acknowledged(consumer) == 4)
        assert len(aside.sent) == 4
        assert min(tried.count(offset) for offset in range(4)) > 1


async def test_a_bucket_that_is_not_sealed_or_not_read_to_its_end_waits_on() -> None:
    retry = sdk.Retry(delay_s=SLOW, then="dead_letter", sealed_wait_s=0.001)
    async with scene("pb", retry, end=3) as (consumer, plane, aside):
        await until(lambda: consumer.stats() is not None and there(consumer.stats()).done == 1)
        for _ in range(5):
            consumer._readable.set()
            await asyncio.sleep(0.002)
        assert there(consumer.stats()).buckets[0].drain_keys == 0
        assert aside.sent == []
        plane.reach(3)
        consumer._readable.set()
        await until(lambda: len(aside.sent) == 1)


async def test_a_handler_that_works_is_not_what_a_waiting_key_waits_for() -> None:
    """It holds up the bucket as well: the key's time has not begun."""
    go_on = asyncio.Event()

    async def handle(message: sdk.Message, work: sdk.Work) -> None:
        await poison(message, work)
        await go_on.wait()

    retry = sdk.Retry(delay_s=SLOW, then="dead_letter", sealed_wait_s=0.001)
    async with scene("pb", retry, handle=handle) as (consumer, _, aside):
        await until(lambda: consumer.stats() is not None and there(consumer.stats()).failed == 1)
        for _ in range(5):
            consumer._readable.set()
            await asyncio.sleep(0.002)
        assert aside.sent == []
        go_on.set()
        await until(lambda: acknowledged(consumer) == 2)


async def test_a_key_that_blocks_a_drain_is_told_without_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retry = sdk.Retry(attempts_max=1, delay_s=SLOW, sealed_wait_s=0.001)
    async with scene("ppqb", retry) as (consumer, _, aside):
        await until(lambda: "consumer.drain_blocked" in caplog.text)
        assert there(consumer.stats()).buckets[0].drain_keys == 1
        assert aside.sent == []
    (told,) = [each for each in caplog.messages if "consumer.drain_blocked" in each]
    assert "segment=0 bucket=0 keys=1" in told


@pytest.mark.parametrize("wait_s", [0.0, -1.0, float("inf"), "60"])
def test_the_wait_is_a_time(wait_s: Any) -> None:
    with pytest.raises(InvalidInputError, match="sealed_wait_s is above 0"):
        sdk.Retry(sealed_wait_s=wait_s).check()
