"""A producer's dispatcher before a Kafka that the test plays, on a clock that stands still.

The test sees each request of the producer, and answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from anabranch import client as sdk
from anabranch.client._producer.batch import PendingMessage
from anabranch.client._producer.dispatcher import Dispatcher
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire.kafka import producing
from anabranch.wire.kafka.link import KafkaLink, KafkaLinks, LinkSecurity
from anabranch.wire.kafka.metadata import KafkaMetadata, PartitionMetadata, TopicMetadata
from anabranch.wire.kafka.producing import Buffer
from anabranch.wire.kafka.protocol import NO_TAGS, Address, ResponseReader, array, text
from support.still_watch import layout_of
from support.waiting import until

Place = tuple[str, int]  # Kafka topic, partition


class SentBatch:
    """Records as they were sent to a partition."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        records = DefaultRecordBatch(data)
        self.producer_id: int = records.producer_id
        self.sequence: int = records.base_sequence
        self.values = [record.value for record in records]


class Request:
    """A request to append, with the batch for each partition."""

    def __init__(self, address: Address, parts: Sequence[Buffer]) -> None:
        self.address = address
        self.answer: asyncio.Future[ResponseReader] = asyncio.get_running_loop().create_future()
        self.batches: dict[Place, SentBatch] = {}
        reader = ResponseReader(b"".join(parts))
        reader.skip(7)  # no transaction, all copies, how long it may take
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                (partition,) = reader.unpack(">i")
                data = reader.take(reader.varint() - 1)
                self.batches[topic, partition] = SentBatch(data)
                reader.tags()
            reader.tags()

    @property
    def only(self) -> SentBatch:
        """The batch, where there is one."""
        (batch,) = self.batches.values()
        return batch

    @property
    def values(self) -> list[bytes]:
        """Those of all its messages."""
        return [value for batch in self.batches.values() for value in batch.values]

    def answers(
        self,
        code: int = 0,
        *,
        throttle_ms: int = 0,
        offset: int = 0,
        appended_ms: int = -1,
        words: str = "",
        but: Mapping[int, int | None] | None = None,
    ) -> None:
        """Says the same of all partitions, `but` another code of some, or with None nothing."""
        codes = {place: (but or {}).get(place[1], code) for place in self.batches}
        body = array(
            text(topic)
            + array(
                [
                    struct.pack(">ihqqq", partition, told, offset, appended_ms, 0)
                    + (array([]) + text(words) + NO_TAGS)
                ]
            )
            + NO_TAGS
            for (topic, partition), told in codes.items()
            if told is not None
        )
        self.answer.set_result(ResponseReader(body + struct.pack(">i", throttle_ms) + NO_TAGS))

    def fails(self, error: Exception) -> None:
        """The link has no answer."""
        self.answer.set_exception(error)


class _PlayedLink(KafkaLink):
    def __init__(self, address: Address, requests: list[Request]) -> None:
        super().__init__(address, LinkSecurity({}))
        self._requests = requests

    async def connect(self, timeout_s: float) -> None:
        pass

    def send(
        self, api: int, version: int, body: bytes | Sequence[Buffer], timeout_s: float
    ) -> asyncio.Future[ResponseReader]:
        assert (api, version) == (producing.PRODUCE, producing.PRODUCE_VERSION)
        assert not isinstance(body, bytes)
        self._requests.append(Request(self.address, body))
        return self._requests[-1].answer


class PlayedLinks(KafkaLinks):
    """Links to brokers 0, 1, ... at hosts of that name.

    `leaders`: of each topic, by partition; or Kafka's error. `no_leaders`, `no_id`: an error
    instead of an answer. `requests`: all to append, the oldest first.
    """

    def __init__(self, leaders: dict[str, list[int] | int], copies: int = 1) -> None:
        super().__init__("", {})
        self.leaders = leaders
        self.copies = copies
        self.no_leaders: Exception | None = None
        self.no_id: Exception | None = None
        self.ids = 100  # given so far, and before
        self.requests: list[Request] = []

    def link(self, address: Address) -> KafkaLink:
        return _PlayedLink(address, self.requests)

    async def metadata(self, topics: Iterable[str], timeout_s: float) -> KafkaMetadata:
        await asyncio.sleep(0)
        if self.no_leaders is not None:
            raise self.no_leaders
        brokers = {number: (str(number), 9092) for number in range(3)}
        return KafkaMetadata(brokers, {topic: self._told(topic) for topic in topics})

    def _told(self, topic: str) -> TopicMetadata | int:
        led = self.leaders.get(topic, int(producing.KafkaCode.UNKNOWN_TOPIC_OR_PARTITION))
        if isinstance(led, int):
            return led
        parts = (PartitionMetadata(0, broker, 0, self.copies) for broker in led)
        return TopicMetadata(topic, dict(enumerate(parts)))

    async def producer_id(self, timeout_s: float) -> tuple[int, int]:
        await asyncio.sleep(0)
        if self.no_id is not None:
            raise self.no_id
        self.ids += 1
        return self.ids, 0


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
