"""`run`: handlers work on keys side by side, and on each key's messages one after the other."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.assignment import Assignment
from anabranch.client._consumer.holding import Loss
from anabranch.client._consumer.running import begin_stop
from anabranch.client._stream.handler_threads import is_handler_thread
from anabranch.core.errors import InvalidInputError
from support.handling import Handling, read, running
from support.lone_consumers import consuming
from support.memory_cluster import WAIT_S, until
from support.there import there

NOW = sdk.Backoff(first=0.001, factor=1.0, most=0.001)


async def test_keys_run_side_by_side_and_each_in_order() -> None:
    handling = Handling()
    async with running(handling) as (consumer, plane, _):
        read(consumer, plane, "abac")
        await until(lambda: handling.running == {0, 1, 3})
        await handling.end(3)
        await handling.end(1)
        (holding,) = consumer._core.holdings.values()
        assert (holding.acknowledged, list(there(holding.gaps).runs)) == (0, [(1, 2), (3, 4)])
        await handling.end(0)
        await until(lambda: handling.running == {2})
        assert holding.acknowledged == 2
        await handling.end(2)
        await until(lambda: holding.acknowledged == 4)


async def test_messages_without_a_key_are_free_and_those_with_an_empty_one_are_not() -> None:
    handling = Handling()
    async with running(handling) as (consumer, plane, _):
        read(consumer, plane, "--__-")
        await until(lambda: handling.running == {0, 1, 2, 4})


@pytest.mark.parametrize(("ordering", "first"), [("bucket", {0}), ("none", {0, 1, 2})])
async def test_order_may_be_that_of_the_bucket_or_none(ordering: str, first: set[int]) -> None:
    handling = Handling()
    async with running(handling, ordering=ordering) as (consumer, plane, _):
        read(consumer, plane, "aab")
        await until(lambda: handling.running == first)


async def test_no_more_than_the_concurrency_run_at_once() -> None:
    handling = Handling()
    async with running(handling, concurrency=2) as (consumer, plane, _):
        read(consumer, plane, "abcd")
        await until(lambda: handling.running == {0, 1})
        await handling.end(1)
        await until(lambda: handling.running == {0, 2})


async def test_a_failed_message_is_tried_again_while_its_key_waits_and_others_go_on() -> None:
    handling = Handling()
    async with running(handling, retry=sdk.Retry(delay_s=NOW)) as (consumer, plane, _):
        read(consumer, plane, "aab")
        await handling.end(0, ValueError("once"))
        await handling.end(2)
        await until(lambda: handling.begun.count(0) == 2)
        assert 1 not in handling.begun
        await handling.end(0)
        await handling.end(1)
        assert handling.attempts == [1, 1, 2, 1]


async def test_a_key_that_always_fails_blocks_itself_alone_and_is_told() -> None:
    handling = Handling()
    retry = sdk.Retry(attempts_max=2, delay_s=NOW, then="block")
    async with running(handling, retry=retry) as (consumer, plane, _):
        read(consumer, plane, "abab")
        for _ in range(4):
            await handling.end(0, ValueError("poison"))
        await until(lambda: handling.begun.count(0) == 5)
        await handling.end(1)
        await handling.end(3)
        await handling.end(0, sdk.Again(delay_s=30.0))
        await until(lambda: bool(consumer.blocked()))
        assert consumer.blocked() == [(b"a", consumer.topic, 0, 0, 0, 4, "Again: 30.0", True)]
        (holding,) = consumer._core.holdings.values()
        assert (holding.acknowledged, list(there(holding.gaps).runs)) == (0, [(1, 2), (3, 4)])


@pytest.mark.parametrize("error", [ValueError("poison"), sdk.Reject("hopeless")])
async def test_a_failure_may_stop_the_consumer(error: Exception) -> None:
    handling = Handling()
    retry = sdk.Retry(attempts_max=1, then="stop")
    async with running(handling, retry=retry) as (consumer, plane, run):
        read(consumer, plane, "ab")
        await handling.end(0, error)
        with pytest.raises(sdk.HandlerError, match="failed 1 times") as told:
            await run
        assert told.value.__cause__ is error
        assert sorted(handling.ended) == [0, 1], "what runs beside it is cancelled"


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    handling = Handling()
    async with running(handling, retry=sdk.Retry(attempts_max=1)) as (consumer, plane, _):
        read(consumer, plane, "ab")
        await handling.end(0, asyncio.CancelledError())
        await until(lambda: bool(consumer.blocked()))
        assert handling.begun == [0, 1]


async def test_an_attempt_has_its_time() -> None:
    handling = Handling()
    retry = sdk.Retry(delay_s=NOW)
    async with running(handling, timeout_s=0.01, retry=retry) as (consumer, plane, _):
        read(consumer, plane, "a")
        await until(lambda: handling.begun == [0, 0])
        assert handling.ended == [0]


async def test_a_bucket_that_is_taken_away_waits_for_what_runs_and_not_for_what_is_queued() -> None:
    handling = Handling()
    async with running(handling, concurrency=2) as (consumer, plane, _):
        read(consumer, plane, "abcd")
        await until(lambda: handling.running == {0, 1})
        (holding,) = consumer._core.holdings.values()
        consumer._core.on_assignment(Assignment(2, 1, 1, "g", 1_000.0), consumer._now())
        consumer._readable.set()
        await handling.end(1)
        assert holding.is_held
        await handling.end(0)
        await until(lambda: not handling.running)
        assert handling.begun == [0, 1]
        group: Any = Committed()
        await consumer._commit(group, consumer._core.commits(consumer._now()))
        assert not holding.is_held


class Committed:
    """A group that takes each commit."""

    async def commit(self, positions: Any, _until: float) -> Any:
        return {place: each.offset for place, each in positions.items()}, {}


async def test_what_a_lost_bucket_still_works_on_is_cancelled_and_not_acknowledged() -> None:
    handling = Handling()
    async with running(handling) as (consumer, plane, _):
        read(consumer, plane, "ab")
        await until(lambda: handling.running == {0, 1})
        (holding,) = consumer._core.holdings.values()
        consumer._core.give_up(Loss.LAPSED)
        consumer._readable.set()
        await until(lambda: sorted(handling.ended) == [0, 1])
        assert holding.acknowledged == 0


async def test_a_bucket_with_too_much_queued_is_read_on_when_half_of_it_is_done() -> None:
    handling = Handling()
    async with running(handling, concurrency=1, queued_max=8) as (consumer, plane, _):
        read(consumer, plane, "abcdefgh")
        await until(lambda: plane.stops == 1)
        read(consumer, plane, "jk", first=9)  # they were on their way, and come once more
        for offset in range(5):
            await handling.end(offset)
        await until(lambda: plane.starts == [0, 8])
        read(consumer, plane, "ijk", first=8)
        for offset in range(5, 10):
            await handling.end(offset)
        await until(lambda: handling.running == {10})
        assert handling.begun == list(range(11))


async def test_a_handler_may_stop_its_consumer() -> None:
    begun: list[int] = []

    async with consuming(100) as (consumer, plane):

        async def handle(message: sdk.Message, _: sdk.Work) -> None:
            begun.append(message.offset)
            await consumer.stop()

        run = asyncio.create_task(consumer.run(handle, concurrency=1))
        await asyncio.sleep(0)
        read(consumer, plane, "ab")
        await until(lambda: begun == [0])
        (holding,) = consumer._core.holdings.values()
        await until(lambda: holding.acknowledged == 1)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert begun == [0]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_handler_that_stops_its_consumer_says_how_long_others_have(is_plain: bool) -> None:
    """A plain one calls the face, on whose loop the consumer lives."""
    ended: list[bytes] = []

    async with consuming(100) as (consumer, plane):

        def stop_from_thread() -> None:
            assert is_handler_thread()
            loop.call_soon_threadsafe(begin_stop, consumer, 0.01)

        async def handle(message: sdk.Message, _: sdk.Work) -> None:
            try:
                if message.key == b"stop":
                    await consumer.stop(drain_s=0.01)
                else:
                    await asyncio.Event().wait()
            finally:
                ended.append(message.key)

        def handle_plainly(message: sdk.Message, _: sdk.Work) -> None:
            stop_from_thread()
            ended.append(message.key)

        loop = asyncio.get_running_loop()
        handler = handle_plainly if is_plain else handle
        run = asyncio.create_task(consumer.run(handler, concurrency=5))
        read(consumer, plane, "a")
        plane.read([1], [b"stop"])
        await until(lambda: b"stop" in ended and len(ended) == 2)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


class _Odd(BaseException):
    """No Exception, and its words fail."""

    def __str__(self) -> str:
        raise ValueError("no words")


async def test_an_error_of_any_kind_is_a_failed_attempt() -> None:
    handling = Handling()
    async with running(handling, retry=sdk.Retry(attempts_max=1)) as (consumer, plane, _):
        read(consumer, plane, "a")
        await handling.end(0, _Odd())
        await until(lambda: bool(consumer.blocked()))
        assert [each.error for each in consumer.blocked()] == ["_Odd"]


async def test_a_handler_is_cancelled_once_and_may_clean_up() -> None:
    begun, cleaned = asyncio.Event(), list[int]()

    async def handle(message: sdk.Message, _: sdk.Work) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            cleaned.append(message.offset)

    async with running(handle) as (consumer, plane, _):
        read(consumer, plane, "a")
        await begun.wait()
        consumer._core.give_up(Loss.LAPSED)
        for _ in range(10):
            consumer._readable.set()
            await asyncio.sleep(0.001)
        await until(lambda: cleaned == [0])


async def test_one_either_runs_or_receives() -> None:
    handling = Handling()
    async with running(handling) as (consumer, _, __):
        with pytest.raises(InvalidInputError, match="make another consumer to receive"):
            await consumer.receive(timeout_s=0)
        with pytest.raises(InvalidInputError, match="either receives or runs"):
            await consumer.run(handling)
        with pytest.raises(InvalidInputError, match="whose end settles them"):
            consumer.acknowledge_all()
    async with consuming(100) as (consumer, plane):
        plane.read(range(2))
        await consumer.receive(timeout_s=0)
        with pytest.raises(InvalidInputError, match="either receives or runs"):
            await consumer.run(handling)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"ordering": "topic"}, "ordering"),
        ({"ordering": "none", "key_of": str}, "key_of"),
        ({"timeout_s": 59.0}, "settle_timeout_s"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"queued_max": 0}, "queued_max"),
        ({"retry": 3}, "Retry"),
        ({"retry": sdk.Retry(attempts_max=0)}, "attempts_max"),
        ({"retry": sdk.Retry(then="retry")}, "then"),  # type: ignore[arg-type]
        ({"retry": sdk.Retry(delay_s=sdk.Backoff(first=0.0))}, "Backoff"),
    ],
)
async def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    async with consuming(100, settle_timeout_s=60.0) as (consumer, _):
        with pytest.raises(InvalidInputError, match=said):
            await consumer.run(Handling(), **options)


async def test_a_plain_function_runs_on_threads_and_its_key_waits_though_it_is_cancelled() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def handle(message: sdk.Message, _: sdk.Work) -> None:
        begun.append(message.offset)
        if message.offset == 0:
            assert go_on.wait(WAIT_S)
        elif begun.count(message.offset) == 1:
            raise ValueError("once")

    retry = sdk.Retry(delay_s=NOW)
    async with running(handle, timeout_s=0.01, retry=retry) as (consumer, plane, _):
        (holding,) = consumer._core.holdings.values()
        read(consumer, plane, "aba")
        await until(lambda: begun == [0, 1, 1])
        await asyncio.sleep(0.05)
        assert begun == [0, 1, 1]
        go_on.set()
        await until(lambda: holding.acknowledged == 3)
        assert begun == [0, 1, 1, 2, 2]


async def test_a_handler_is_a_function_and_threads_are_few() -> None:
    async with consuming(100) as (consumer, _):
        with pytest.raises(InvalidInputError, match="a handler is a function"):
            await consumer.run(3)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="and to 256"):
            await consumer.run(print, concurrency=257)
