"""How a handler is stopped when what it works on is taken away, and what it is told."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.assignment import SegmentBucket
from anabranch.client._consumer.holding import Holding, Loss, Phase
from anabranch.client._consumer.messages import Lost
from support.lone_consumers import Filled, consuming
from support.still_watch import lone_member, no_producer


@asynccontextmanager
async def three_received() -> AsyncIterator[tuple[sdk.StreamConsumer, sdk.Batch, Filled]]:
    async with consuming(9) as (consumer, plane):
        plane.read(range(3))
        yield consumer, await consumer.receive_many(timeout_s=0), plane


async def test_a_bucket_has_no_time_in_which_it_must_be_given_up_unless_the_user_sets_one() -> None:
    for given, holds_s in ((None, math.inf), (0.3, 0.3)):
        settings = sdk.ConsumerSettings(settle_timeout_s=given)
        stream = sdk.StreamConsumer(lone_member("billing"), settings, no_producer)
        checkpoint = sdk.CheckpointConsumer(lone_member("billing"), settings)
        assert stream._core.settle_s == checkpoint._core.settle_s == holds_s
    assert sdk.ConsumerSettings().settle_timeout_s is None


async def test_a_handler_is_cancelled_when_its_bucket_is_taken_away_and_hears_why() -> None:
    async with three_received() as (consumer, batch, _):
        begun, ended = asyncio.Event(), asyncio.Event()

        async def handle() -> None:
            async with consumer.while_held(batch):
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

        handler = asyncio.create_task(handle())
        await begun.wait()
        consumer._core.give_up(Loss.LAPSED)
        with pytest.raises(sdk.BucketLostError, match="bucket 0 of segment 0 of public/default/or"):
            await handler
        assert ended.is_set()
        assert batch.is_revoked
        with pytest.raises(sdk.BucketLostError, match="no controller answered"):
            consumer.acknowledge(batch)
        with pytest.raises(sdk.BucketLostError):
            async with consumer.while_held(batch[0]):
                pytest.fail("it is not begun any more")


async def test_a_handler_that_has_acknowledged_is_left_alone_when_its_bucket_goes() -> None:
    async with three_received() as (consumer, batch, _):
        core, (holding,) = consumer._core, consumer._core.holdings.values()
        async with consumer.while_held(batch):
            consumer.acknowledge(batch)
            core.on_committed(holding, 3, consumer._now())
            core.close(consumer._now())
            assert holding.phase is Phase.RELEASED
            await asyncio.sleep(0)
        assert not batch.is_revoked
        consumer.acknowledge(batch)


async def test_a_cancellation_from_elsewhere_and_errors_of_the_handler_go_on_as_they_are() -> None:
    async with three_received() as (consumer, batch, _):
        for error in (TimeoutError, asyncio.CancelledError, ValueError):
            with pytest.raises(error):
                async with consumer.while_held(batch):
                    raise error
        (holding,) = consumer._core.holdings.values()
        assert holding.listeners == []


async def test_a_thread_hears_that_a_session_is_over_also_while_the_event_loop_stands() -> None:
    async with three_received() as (consumer, batch, _):
        now, found = consumer._now(), list[bool]()

        def ask() -> None:
            found.append(batch[0].is_revoked)

        for late_s in (0.0, 1_001.0):
            consumer._now = lambda late_s=late_s: now + late_s  # type: ignore[misc]
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
        assert found == [False, True]


async def test_the_rest_is_acknowledged_where_one_bucket_of_several_is_lost() -> None:
    async with three_received() as (consumer, _, _):
        (kept,) = consumer._core.holdings.values()
        lost = Holding(SegmentBucket(7, 1), "k", None, Phase.LOST, loss=Loss.SETTLE_TIMEOUT)
        found = consumer.note_acknowledged([(lost, 3), (kept, 3)])
        assert found == [Lost(consumer.topic, lost.place, Loss.SETTLE_TIMEOUT)]
        assert kept.acknowledged == 3


async def test_acknowledging_all_tells_once_of_what_was_lost() -> None:
    async with three_received() as (consumer, _, _):
        consumer._core.give_up(Loss.ANEW)
        with pytest.raises(sdk.BucketLostError, match="made again"):
            consumer.acknowledge_all()
        consumer.acknowledge_all()
