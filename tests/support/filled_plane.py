"""A stream consumer of one bucket, without nodes and Kafka: what is read, the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import Message

from anabranch import client as sdk
from anabranch.client._consumer.assignment import AssignedSegment, Assignment
from anabranch.client._consumer.reads import Read
from anabranch.wire import anabranch_pb2 as pb
from support.still_watch import lone_member

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


@asynccontextmanager
async def consuming(end: int) -> AsyncIterator[tuple[sdk.StreamConsumer, Filled]]:
    """A consumer of one bucket, sealed at `end`, that is read from its beginning."""
    dag = pb.ScalableTopicDAG(epoch=1, incarnation=1)
    member = lone_member("billing")
    member.watch._layout = sdk.TopicLayout.from_proto("public/default/orders", dag)
    consumer = sdk.StreamConsumer(member, sdk.ConsumerSettings())
    core = consumer._core
    order = core.begin_subscribe(consumer._now())
    granted = Assignment(1, 1, 1, "g", 1_000.0, (AssignedSegment(0, "k", (0,), (end,)),))
    assert core.on_subscribed(order.number, granted, consumer._now())
    plane: Any = Filled()
    (holding,) = core.fetches.values()
    assert holding.fetch is not None
    consumer._reading.plane = plane
    consumer._reading._start(plane, holding.fetch, 0)
    yield consumer, plane
