"""In which order a consumer takes what was read, and when what was reached counts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message

from anabranch.client import (
    ConsumerSettings,
    DeadlineError,
    LayoutWatch,
    StreamConsumer,
    TopicLayout,
)
from anabranch.client._consumer.assignment import AssignedSegment, Assignment, SegmentBucket
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.reads import Read
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import anabranch_pb2 as pb
from support.still_watch import no_producer
from support.waiting import WAIT_S

_PLACE = ("k", 0)


class Filled:
    """A plane on which lies what the test has read."""

    def __init__(self) -> None:
        self.reads: deque[Read] = deque()

    def start(self, fetch: Any, _offset: int) -> None:
        self.number = fetch.number

    def take(self) -> Read | None:
        return self.reads.popleft() if self.reads else None

    def read(self, offsets: Sequence[int]) -> None:
        messages = [
            Message(topic=_PLACE[0], partition=_PLACE[1], offset=o, value=b"%d" % o)
            for o in offsets
        ]
        ends = {self.number: offsets[-1] + 1}
        self.reads.append(Read(messages, ends, {_PLACE: self.number}, len(messages)))

    def reach(self, offset: int) -> None:
        self.reads.append(Read([], {}, {_PLACE: self.number}, 0, {self.number: offset}))


def run(test: Callable[[StreamConsumer, Filled], Awaitable[None]], end: int) -> None:
    """With a consumer of one bucket, sealed at `end`, that is read from its beginning."""

    async def on_loop() -> None:
        nodes = Nodes("pulsar://127.0.0.1:1")
        watch = LayoutWatch(nodes, "topic://public/default/orders")
        dag = pb.ScalableTopicDAG(epoch=1, incarnation=1)
        watch._layout = TopicLayout.from_proto("public/default/orders", dag)
        consumer = StreamConsumer(
            Membership(nodes, watch, {}, "billing", "", no_producer), ConsumerSettings()
        )
        core = consumer._core
        order = core.begin_subscribe(consumer._now())
        segments = (AssignedSegment(0, "k", (0,), (end,)),)
        granted = Assignment(1, 1, 1, "g", 1_000.0, segments)
        assert core.on_subscribed(order.number, granted, consumer._now())
        plane: Any = Filled()
        (holding,) = core.fetches.values()
        assert holding.fetch is not None
        consumer._reading.plane = plane
        consumer._reading._start(plane, holding.fetch, 0)
        await test(consumer, plane)

    asyncio.run(asyncio.wait_for(on_loop(), WAIT_S))


def test_what_is_there_is_received_also_by_who_has_no_time_to_wait() -> None:
    async def test(consumer: StreamConsumer, plane: Filled) -> None:
        plane.read(range(3))
        assert (await consumer.receive(timeout_s=0)).offset == 0
        batch = await consumer.receive_many(timeout_s=0)
        assert [message.offset for message in batch] == [1, 2]
        for receive in (consumer.receive, consumer.receive_many):
            with pytest.raises(DeadlineError, match="in 0 s"):
                await receive(timeout_s=0)
        plane.read([3])
        assert (await consumer.receive_many(timeout_s=0)).values() == [b"3"]

    run(test, 4)


def test_the_end_of_a_transaction_counts_once_all_before_it_is_received_and_acknowledged() -> None:
    async def test(consumer: StreamConsumer, plane: Filled) -> None:
        (holding,) = consumer._core.holdings.values()
        plane.read(range(3))
        plane.reach(4)
        first = await consumer.receive(1)
        assert consumer.acknowledge(first)
        assert holding.acknowledged == 1, "the others are not received yet"
        rest = await consumer.receive_many(timeout_s=1)
        with pytest.raises(DeadlineError):
            await consumer.receive(timeout_s=0)
        assert holding.acknowledged == 1, "they are not acknowledged"
        assert consumer.acknowledge(rest)
        assert (holding.acknowledged, holding.at_end) == (4, True)

    run(test, 4)


def test_a_transaction_that_was_given_up_keeps_no_bucket_from_its_end() -> None:
    async def test(consumer: StreamConsumer, plane: Filled) -> None:
        (holding,) = consumer._core.holdings.values()
        plane.reach(2)
        plane.read([2, 3])
        plane.reach(7)
        batch = await consumer.receive_many(timeout_s=0)
        assert holding.acknowledged == 2, "nothing was in flight"
        assert consumer.acknowledge(batch)
        with pytest.raises(DeadlineError):
            await consumer.receive(timeout_s=0)
        assert (holding.acknowledged, holding.at_end) == (7, True)

    run(test, 7)


def test_what_is_served_can_be_asked_while_another_thread_changes_it() -> None:
    async def test(consumer: StreamConsumer, _plane: Filled) -> None:
        fetches = consumer._core._fetches

        class Racing:
            """A holding at whose turn another one is granted."""

            @property
            def place(self) -> SegmentBucket:
                fetches[len(fetches) + 1_000] = fetches[min(fetches)]
                return SegmentBucket(0, 7)

        racing: Any = Racing()
        fetches[999] = racing
        assert consumer.buckets == [(0, 0), (0, 7)]

    run(test, 4)
