"""`run_batches`: several messages in one call, and what follows a call that fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.core.errors import InvalidInputError
from support.lone_consumers import Filled, consuming
from support.there import there
from support.waiting import until

NOW = sdk.Backoff(first=0.001, factor=1.0, most=0.001)
Batch = list[tuple[sdk.Message, sdk.Work]]


class Scene:
    """A consumer whose handler notes its calls, and then does as the test says."""

    def __init__(self, consumer: sdk.StreamConsumer, plane: Filled) -> None:
        self.consumer, self.plane = consumer, plane
        self.calls: list[list[int]] = []
        self.done: list[int] = []
        self.judge: Callable[[Batch], None] = lambda batch: None

    async def handle(self, batch: Batch) -> None:
        offsets = [message.offset for message, _ in batch]
        self.calls.append(offsets)
        try:
            self.judge(batch)
        except sdk.BatchFailed as error:
            named = {message.offset for message in error.errors}
            self.done += [each for each in offsets if each not in named]
            raise
        self.done += offsets

    @property
    def acknowledged(self) -> int:
        (holding,) = self.consumer._core.holdings.values()
        return there(holding.acknowledged)

    def read(self, keys: str, first: int = 0) -> None:
        offsets = range(first, first + len(keys))
        self.plane.read(offsets, [None if key == "-" else key.encode() for key in keys])
        self.consumer._readable.set()


@asynccontextmanager
async def scene(keys: str, **options: Any) -> AsyncIterator[Scene]:
    """With these messages, a key each, before the first call."""
    async with consuming(1_000) as (consumer, plane):
        made = Scene(consumer, plane)
        made.read(keys)
        options = {"retry": sdk.Retry(delay_s=NOW), "wait_s": 0.0, **options}
        run = asyncio.create_task(consumer.run_batches(made.handle, **options))
        try:
            yield made
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def test_a_call_has_the_messages_of_one_key_in_order() -> None:
    async with scene("aabab-") as at:
        await until(lambda: at.acknowledged == 6)
        assert at.calls == [[0, 1, 3], [2, 4], [5]]


async def test_a_call_has_no_more_than_batch_max() -> None:
    async with scene("aaaaa", batch_max=2) as at:
        await until(lambda: at.acknowledged == 5)
        assert at.calls == [[0, 1], [2, 3], [4]]


async def test_a_call_may_have_the_messages_of_a_bucket_in_the_order_of_the_log() -> None:
    async with scene("ab-ab", of="bucket") as at:
        await until(lambda: at.acknowledged == 5)
        assert at.calls == [[0, 1, 2, 3, 4]]


async def test_a_call_that_is_not_full_waits_for_more() -> None:
    async with scene("a", of="bucket", wait_s=0.2) as at:
        await until(lambda: bool(at.consumer._core.holdings))
        await asyncio.sleep(0)
        at.read("bc", 1)
        await until(lambda: at.acknowledged == 3)
        assert at.calls == [[0, 1, 2]]


async def test_what_a_failed_batch_names_and_what_follows_of_its_key_comes_again() -> None:
    failed: list[int] = []

    def judge(batch: Batch) -> None:
        if not failed:
            failed.extend([1])
            raise sdk.BatchFailed({message: ValueError("no") for message, _ in batch[1:2]})

    async with scene("abbab", of="bucket") as at:
        at.judge = judge
        await until(lambda: at.acknowledged == 5)
        assert at.calls[0] == [0, 1, 2, 3, 4]
        assert sorted(itertools.chain(*at.calls[1:])) == [1, 2, 4]
        assert at.calls[1][0] == 1


async def test_a_batch_that_fails_is_halved_until_the_poison_is_alone() -> None:
    attempts: dict[int, list[int]] = {}

    def judge(batch: Batch) -> None:
        for message, work in batch:
            attempts.setdefault(message.offset, []).append(work.attempt)
        if any(message.offset == 5 for message, _ in batch):
            raise ValueError("poison")

    retry = sdk.Retry(attempts_max=2, delay_s=NOW)
    async with scene("abcdefgh", of="bucket", retry=retry) as at:
        at.judge = judge
        await until(lambda: sorted(set(at.done)) == [0, 1, 2, 3, 4, 6, 7])
        await until(lambda: bool(at.consumer.blocked()))
        assert at.acknowledged == 5
        assert sorted(at.done) == [0, 1, 2, 3, 4, 6, 7], "none is done twice"
        assert [len(call) for call in at.calls if 5 in call][:4] == [8, 4, 2, 1]
        assert {max(each) for offset, each in attempts.items() if offset != 5} == {1}


async def test_a_plain_function_has_batches_on_threads() -> None:
    calls: list[list[int]] = []

    def handle(batch: Batch) -> None:
        calls.append([message.offset for message, _ in batch])

    async with consuming(1_000) as (consumer, plane):
        plane.read(range(3), [b"a"] * 3)
        run = asyncio.create_task(consumer.run_batches(handle, concurrency=2, wait_s=0.0))
        await until(lambda: bool(calls))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    assert calls == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_max": 0}, "batch_max is 1 to"),
        ({"wait_s": 9.0}, "wait_s is 0 to 2"),
        ({"of": "topic"}, "of is one of key, bucket"),
        ({"ordering": "none"}, "of='bucket'"),
    ],
)
async def test_batches_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    async with consuming(9) as (consumer, _):
        with pytest.raises(InvalidInputError, match=said):
            await consumer.run_batches(lambda batch: None, **options)


def test_a_failed_batch_names_what_failed() -> None:
    with pytest.raises(InvalidInputError, match="one or more"):
        sdk.BatchFailed({})
