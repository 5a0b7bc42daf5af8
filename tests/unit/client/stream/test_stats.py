"""The numbers of a run are what was done, and a bucket's are its own."""

from __future__ import annotations

import asyncio

from anabranch import client as sdk
from anabranch.client._consumer.gaps import Done
from support.lone_consumers import consuming
from support.memory_cluster import until
from support.there import there

SLOW = sdk.Backoff(first=60.0, factor=1.0, most=60.0)


async def test_the_numbers_tell_what_was_done_what_failed_and_what_waits() -> None:
    go_on = asyncio.Event()

    async def handle(message: sdk.Message, _: sdk.Work) -> None:
        if message.key == b"poison":
            raise TimeoutError("poison")
        if message.key == b"slow":
            await go_on.wait()

    async with consuming(100) as (consumer, plane):
        assert consumer.stats() is None
        keys = [b"poison", b"poison", b"slow", b"a", b"a", b"b"]
        plane.read(range(len(keys)), keys)
        run = asyncio.create_task(consumer.run(handle, retry=sdk.Retry(delay_s=SLOW)))
        await until(lambda: consumer.stats() is not None and there(consumer.stats()).done == 3)
        now = there(consumer.stats())
        assert (now.running, now.queued, now.keys, now.waiting, now.deepest_key) == (1, 2, 2, 1, 2)
        assert (now.attempts, now.failed, now.timed_out, now.width) == (4, 1, 1, 100)
        assert sum(now.handler_counts) == now.attempts
        (bucket,) = now.buckets
        assert (bucket.segment_id, bucket.bucket, bucket.running, bucket.queued) == (0, 0, 1, 2)
        assert (bucket.gap_offsets, bucket.gap_runs) == (6, 1)
        assert bucket.oldest_s > 0.0
        go_on.set()
        await until(lambda: there(consumer.stats()).done == 4)
        assert there(consumer.stats()).handler_s > 0.0
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_what_a_map_names_is_counted_as_known() -> None:
    async def handle(message: sdk.Message, _: sdk.Work) -> None:
        pass

    async with consuming(100) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        holding.done_above = 0, Done([(1, 3)])
        plane.read(range(4), [b"a"] * 4)
        run = asyncio.create_task(consumer.run(handle))
        await until(lambda: consumer.stats() is not None and there(consumer.stats()).done == 2)
        assert there(consumer.stats()).known == 2
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
