"""Kafka's brokers as a test plays them: it sees each request of a producer, and answers it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence

from aiokafka.record.default_records import DefaultRecordBatch

from anabranch.wire.kafka import producing
from anabranch.wire.kafka.link import KafkaLink, KafkaLinks, LinkSecurity
from anabranch.wire.kafka.metadata import KafkaMetadata, PartitionMetadata, TopicMetadata
from anabranch.wire.kafka.producing import Buffer
from anabranch.wire.kafka.protocol import NO_TAGS, Address, ResponseReader, array, text

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
