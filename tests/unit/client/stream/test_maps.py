"""Positions of a run: what a map names is done, and nothing else is."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from confluent_kafka import Message

from anabranch.client._consumer.assignment import SegmentBucket
from anabranch.client._consumer.gaps import Done, Gaps, written
from anabranch.client._consumer.group_offsets import Position
from anabranch.client._consumer.holding import Holding, Loss
from anabranch.client._consumer.messages import Source
from support.handling import Handling, read
from support.lone_consumers import consuming
from support.memory_cluster import until
from support.there import there


async def test_a_message_without_a_key_waits_for_itself_though_its_bucket_has_come_back() -> None:
    """Its former handler takes no notice of its cancellation."""
    async with consuming(100) as (consumer, _):
        run = asyncio.create_task(consumer.run(Handling()))
        await until(lambda: consumer.part is not None)
        (source,) = consumer._reading._sources.values()
        again = Source(source.topic, source.number + 1, source.holding, consumer._settings)
        raw = Message(topic="k", partition=0, offset=3, value=b"")
        key_of = functools.partial(there(consumer._run)._key_of, there(consumer.part))
        assert key_of(raw, source, 3) == key_of(raw, again, 3) != key_of(raw, again, 4)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_what_a_map_names_is_not_worked_on_again() -> None:
    handling = Handling()
    async with consuming(100) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        holding.done_above = 0, Done([(1, 3)])
        run = asyncio.create_task(consumer.run(handling))
        await asyncio.sleep(0)
        read(consumer, plane, "abcd")
        await until(lambda: handling.running == {0, 3})
        await handling.end(0)
        await until(lambda: holding.acknowledged == 3)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


@pytest.mark.parametrize(("first", "begun"), [(4, [5, 7]), (6, [7])])
async def test_a_map_counts_also_where_kafka_has_removed_what_is_before_it(
    first: int, begun: list[int]
) -> None:
    """Its retention removes messages that nobody has done."""
    handling = Handling()
    async with consuming(100) as (consumer, plane):
        (holding,) = consumer._core.holdings.values()
        holding.delivered = holding.acknowledged = holding.committed = first
        holding.done_above = 2, Done([(3, 5), (6, 7)])
        run = asyncio.create_task(consumer.run(handling))
        await asyncio.sleep(0)
        read(consumer, plane, "abcd"[first - 4 :], first)
        await until(lambda: handling.running == set(begun))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_a_map_of_what_kafka_has_lost_is_not_believed() -> None:
    async with consuming(100) as (consumer, _):
        (holding,) = consumer._core.holdings.values()
        holding.done_above = 9, Done([(10, 12)])
        assert holding.acknowledged == 0
        assert list(there(holding.work_apart()).runs) == []


async def test_a_map_counts_also_above_the_first_offset_of_a_bucket() -> None:
    done = Gaps(0, [(1, 3)])

    class Known:
        async def committed(self, places: Any) -> Any:
            return {place: Position(0, written(done, "g", place)) for place in places}, {}

        async def ranges(self, places: Any) -> Any:
            return dict.fromkeys(places, (0, 50)), {}

    async with consuming(100) as (consumer, _):
        (holding,) = consumer._core.holdings.values()
        group: Any = Known()
        await consumer._positions(group, [there(holding.fetch)])
        assert holding.done_above == (0, Done([(1, 3)]))
        assert list(there(holding.work_apart()).runs) == [(1, 3)]


def test_what_ends_after_its_bucket_has_gone_counts_for_nothing() -> None:
    """Its handler took no notice of its cancellation, and the next owner works on the message."""
    holding = Holding(SegmentBucket(0, 0), "k", None)
    holding.begin(0)
    gaps = there(holding.work_apart())
    holding.work_begins(0)
    holding.settle(1.0, Loss.SETTLE_TIMEOUT)
    holding.release_if_settled(1.0)
    assert not holding.is_held
    holding.finish(0, 0)
    assert (holding.acknowledged, gaps.running, gaps.watermark) == (0, set(), 0)
