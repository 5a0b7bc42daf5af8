"""Consumers of one topic without nodes and Kafka: the test says what is read or delivered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import Message

from anabranch import client as sdk
from anabranch.client import QueueConsumer, QueueSettings, TopicLayout
from anabranch.client._consumer.assignment import AssignedSegment, Assignment
from anabranch.client._consumer.dead_letters import Produce
from anabranch.client._consumer.reads import Read
from anabranch.client._consumer.resources import OWN, ConsumerResources
from anabranch.wire import anabranch_pb2 as pb
from support.still_watch import lone_member, no_producer

if TYPE_CHECKING:
    from anabranch.client._consumer.assignment import Partition
    from anabranch.client._consumer.consumer import Membership
    from anabranch.client._consumer.group_offsets import Position
    from anabranch.client._queue.messages import Delivery


class Ready:
    """Stands for readers with deliveries."""

    failure = None
    last_trouble = ""

    def __init__(self, *deliveries: Delivery) -> None:
        self._deliveries = list(deliveries)

    def take(self) -> Delivery | None:
        return self._deliveries.pop(0) if self._deliveries else None

    def receiver(self) -> Any:
        return asyncio.timeout(None)

    async def close(self, current: Delivery | None) -> bool:
        return True


def ready_queue(
    member: Membership, *deliveries: Delivery, produce: Callable[..., Any] = no_producer
) -> QueueConsumer:
    """The Kafka topic k is segment 7's."""
    made = QueueConsumer(member, QueueSettings(), produce)
    made._reader = cast("Any", Ready(*deliveries))
    made._sources = {"k": (7, {})}
    member.watch._layout = TopicLayout("public/default/orders", 1, 1, {})
    return made


_PLACE = ("k", 0)


class Filled:
    """A plane on which lies what the test has read."""

    def __init__(self) -> None:
        self.reads: deque[Read] = deque()
        self.starts: list[int] = []
        self.stops = 0
        self.committed: dict[Partition, Position] = {}

    def start(self, fetch: Any, offset: int) -> None:
        self.number = fetch.number
        self.starts.append(offset)

    def stop(self, _number: int) -> None:
        self.stops += 1

    def take(self) -> Read | None:
        return self.reads.popleft() if self.reads else None

    def read(self, offsets: Sequence[int], keys: Sequence[bytes | None] | None = None) -> None:
        """`keys`: one for each, or none at all."""
        messages = [
            Message(topic=_PLACE[0], partition=_PLACE[1], offset=o, value=b"%d" % o, key=key)
            for o, key in zip(offsets, keys or [None] * len(offsets), strict=True)
        ]
        ends = {self.number: offsets[-1] + 1}
        self.reads.append(Read(messages, ends, {_PLACE: self.number}, len(messages)))

    def reach(self, offset: int) -> None:
        self.reads.append(Read([], {}, {_PLACE: self.number}, 0, {self.number: offset}))


@asynccontextmanager
async def consuming(
    end: int,
    produce: Produce = no_producer,
    aside: str = "",
    topic: str = "public/default/orders",
    resources: ConsumerResources = OWN,
    **settings: Any,
) -> AsyncIterator[tuple[sdk.StreamConsumer, Filled]]:
    """A consumer of one bucket, sealed at `end`, that is read from its beginning.

    `aside`: the topic for dead letters, to which `produce` makes producers.
    """
    dag = pb.ScalableTopicDAG(epoch=1, incarnation=1)
    member = lone_member("billing", "", topic, resources)
    member.watch._layout = sdk.TopicLayout.from_proto(topic, dag)
    consumer = sdk.StreamConsumer(member, sdk.ConsumerSettings(**settings), produce)
    core = consumer._core
    order = core.begin_subscribe(consumer._now())
    policy = sdk.DeadLetterPolicy(topic=aside) if aside else None
    parts = (AssignedSegment(0, "k", (0,), (end,)),)
    granted = Assignment(1, 1, 1, "g", 1_000.0, parts, dead_letter=policy)
    assert core.on_subscribed(order.number, granted, consumer._now())
    plane: Any = Filled()
    (holding,) = core.fetches.values()
    assert holding.fetch is not None
    consumer._reading.plane = plane
    consumer._reading._start(plane, holding.fetch, 0)
    committing = asyncio.create_task(_commits(consumer, plane.committed))
    try:
        yield consumer, plane
    finally:
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)


async def _commits(consumer: sdk.StreamConsumer, kept: dict[Partition, Position]) -> None:
    """Commits what is due while a handler runs, as to a Kafka that is there."""
    group: Any = _Kafka(kept)
    while True:
        consumer._commits_rest = not consumer._core.commits(consumer._now())
        await consumer._poke.wait()
        consumer._poke.clear()
        if consumer.part is not None:
            await consumer._commit(group, consumer._core.commits(consumer._now()))
            consumer._readable.set()


class _Kafka:
    """Takes each commit, and keeps the last."""

    def __init__(self, kept: dict[Partition, Position]) -> None:
        self._kept = kept

    async def commit(self, positions: Mapping[Partition, Position], until: float) -> Any:
        self._kept |= positions
        return {place: each.offset for place, each in positions.items()}, {}
