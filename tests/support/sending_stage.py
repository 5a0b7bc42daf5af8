"""A producer's dispatcher before a Kafka that the test plays, on a clock that stands still."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch import client as sdk
from anabranch.client._producer.batch import PendingMessage
from anabranch.client._producer.dispatcher import Dispatcher
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.core.entities.layout import SegmentLayout
from support.played_kafka import PlayedLinks, Request
from support.still_watch import layout_of
from support.waiting import until

PATIENCE_S = 10.0
_TURNS = 50  # of the event loop, in which all is done that needs no time


class SendingStage:
    """`told` has what became of which value. Keys `key(0)`, `key(1)`, ... go to those buckets of
    the first segment.
    """

    def __init__(
        self, segments: int = 1, linger_ms: float = 0.0, copies: int = 1, **layout: Any
    ) -> None:
        self.at = 1_000.0
        self.told: dict[bytes, sdk.DeliveryResult | Exception | None] = {}
        self.plain = SegmentLayout.initial(segments, 4 * segments)
        self.layout = layout_of(self.plain, **layout)
        leaders: dict[str, list[int] | int] = {f"t{number}": [0] * 4 for number in range(segments)}
        self.kafka = PlayedLinks(leaders, copies)
        settings = sdk.ProducerSettings(delivery_timeout_s=PATIENCE_S, linger_ms=linger_ms)
        self.dispatcher = Dispatcher(self.layout, settings, self.kafka, lambda: self.at)
        self._taken = 0

    def key(self, bucket: int) -> bytes:
        """Of a message to that bucket."""
        for number in range(1_000):
            key = b"key-%d" % number
            if self.layout.place(key) == (self.layout.active[0], bucket):
                return key
        raise AssertionError("no key goes there")

    def send(self, value: bytes, bucket: int = 0) -> PartitionWriter:
        """Sends it; returns who has it then."""
        key = self.key(bucket)
        self.dispatcher.take(PendingMessage(key, value, (), 1, self.told_of(value)))
        return self.dispatcher.router.route(key)

    def told_of(self, value: bytes) -> sdk.OnDelivery:
        """Notes what became of the message, once."""

        def told(result: sdk.DeliveryResult | None, error: Exception | None) -> None:
            assert value not in self.told
            self.told[value] = result or error

        return told

    async def request(self) -> Request:
        """The next request that was not taken yet."""
        await until(lambda: len(self.kafka.requests) > self._taken)
        self._taken += 1
        return self.kafka.requests[self._taken - 1]

    async def is_quiet(self) -> bool:
        """Whether no other request comes."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return len(self.kafka.requests) == self._taken

    async def pass_s(self, seconds: float) -> None:
        """Lets so much time go by, in which the dispatcher looks after its messages."""
        for _ in range(int(seconds)):
            self.at += 1.0
            self.look()
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    def look(self) -> None:
        """The dispatcher looks after its messages."""
        if self.dispatcher._timer is not None:
            self.dispatcher._timer.cancel()
        self.dispatcher._look()

    async def settled(self, *values: bytes) -> None:
        """Returns when it is known what became of these."""
        await until(lambda: all(value in self.told for value in values))

    async def error_of(self, value: bytes) -> Exception:
        """Why the message failed, once it has."""
        await self.settled(value)
        error = self.told[value]
        assert isinstance(error, Exception)
        return error

    def announced(self) -> sdk.TopicLayout:
        """The layout while the first segment is being split, and refuses from now on."""
        children = tuple(
            sdk.Segment(part, f"t{part.segment_id}") for part in self.plain.split_children(0)
        )
        return layout_of(
            self.plain, epoch=2, children=children, parents_under_way=frozenset({0}), sealing=True
        )

    def split(self) -> sdk.TopicLayout:
        """The layout once the first segment, which ends at 5 in each bucket, is split."""
        ends = {0: (5, 5, 5, 5)}
        return layout_of(self.plain.replaced((0,), self.plain.split_children(0), ends, 0), epoch=3)


@asynccontextmanager
async def staged(**given: Any) -> AsyncIterator[SendingStage]:
    """A stage that is taken down."""
    stage = SendingStage(**given)
    try:
        yield stage
    finally:
        with contextlib.suppress(sdk.ClientError):
            await stage.dispatcher.close()
