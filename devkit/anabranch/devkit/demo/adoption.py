"""The story of `anabranch demo --adopt`: a plain Kafka topic is adopted, cut over, and splits."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.admin import FromGroup
from anabranch.cli.topics.survey import verdict_in_words
from anabranch.devkit.causality import Span
from anabranch.devkit.demo.judge import Arrival, TraceMessage
from anabranch.devkit.demo.narrator import Narrator
from anabranch.devkit.demo.story import BrokenPromiseError, Story
from anabranch.devkit.demo.traffic import STREAM, Reach, Traffic, load_keys

KAFKA_TOPIC: Final = "merges"
_PARTITIONS: Final = 6
_FIRST: Final = 1_200  # messages before there is a node
_NUMBERS: Final = 10_000_000  # of plain messages, so that none is one of the SDK's
_SEGMENTS: Final = 4
_RATE: Final = 200.0
_SHOWN_S: Final = 3.0  # of load between two steps
_KAFKA_S: Final = 30.0
_QUIET: Final = {"log_level": 0}


class PlainClients:
    """A producer with Java's partitioner and a group, which know Kafka alone."""

    def __init__(self, servers: str, traffic: Traffic, keys: Sequence[str]) -> None:
        self.refusals: Counter[str] = Counter()
        self._servers = servers
        self._traffic = traffic
        self._keys = itertools.cycle(keys)
        self._numbers = itertools.count(_NUMBERS)
        self._producer = Producer(
            {
                **_QUIET,
                "bootstrap.servers": servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
            }
        )
        self._ends = threading.Event()

    def make_topic(self) -> None:
        """Makes the Kafka topic, as somebody did long ago."""
        admin = AdminClient({**_QUIET, "bootstrap.servers": self._servers})
        made = admin.create_topics([NewTopic(KAFKA_TOPIC, _PARTITIONS, 1)])
        made[KAFKA_TOPIC].result(_KAFKA_S)

    def write(self, count: int) -> None:
        """Sends so many messages, and waits until they are stored."""
        for _ in range(count):
            self._send()
        self._producer.flush(_KAFKA_S)

    def write_on(self) -> None:
        """Sends until `stop`; it blocks."""
        while not self._ends.wait(1 / _RATE):
            self._send()
            self._producer.poll(0)
        self._producer.flush(_KAFKA_S)

    def stop(self) -> None:
        """Lets `write_on` return."""
        self._ends.set()

    def read_half(self) -> int:
        """The group reads half of what is there, commits, and leaves; returns how much."""
        count = 0
        with self._group() as consumer:
            while count < _FIRST // 2:
                for each in consumer.consume(_FIRST // 2 - count, 1.0):
                    message = msgspec.json.decode(each.value() or b"", type=TraceMessage)
                    place = (0, each.partition() or 0, each.offset() or 0)
                    self._traffic.arrivals.append(Arrival(message, "the plain group", *place))
                    count += 1
            consumer.commit(asynchronous=False)
        return count

    @contextmanager
    def _group(self) -> Iterator[Consumer]:
        settings = {"group.id": STREAM, "auto.offset.reset": "earliest"}
        manual = {"enable.auto.commit": False}
        consumer = Consumer({**_QUIET, "bootstrap.servers": self._servers, **settings, **manual})
        consumer.subscribe([KAFKA_TOPIC])
        try:
            yield consumer
        finally:
            consumer.close()

    def _send(self) -> None:
        traffic = self._traffic
        message = TraceMessage(next(self._numbers), next(self._keys), 0)
        sent = next(traffic.instants)
        self._producer.produce(
            KAFKA_TOPIC,
            msgspec.json.encode(message),
            message.key,
            on_delivery=partial(self._settled, message, sent),
        )

    def _settled(
        self, message: TraceMessage, sent: int, error: KafkaError | None, _stored: Any
    ) -> None:
        if error is not None:
            self.refusals[error.name()] += 1
            return
        self._traffic.spans[message.number] = Span(sent, next(self._traffic.instants))
        self._traffic.sent.append(message)


class AdoptionStory(Story):
    """A Kafka topic becomes a scalable one under load. To be closed, as any story."""

    def __init__(self, reach: Reach, servers: str, narrator: Narrator) -> None:
        super().__init__(KAFKA_TOPIC, reach, narrator)
        self._plain = PlainClients(servers, self.traffic, load_keys())

    async def tell(self) -> bool:
        """Tells whether the judge finds nothing wrong. Raises BrokenPromiseError."""
        await self._be_plain()
        writing = asyncio.create_task(asyncio.to_thread(self._plain.write_on))
        try:
            await self._adopt()
            await self._cut_over()
        finally:
            self._plain.stop()
            await writing
        await self._split()
        return await self.judge()

    async def _be_plain(self) -> None:
        narrator, plain = self._narrator, self._plain
        narrator.step("plain", "A plain Kafka topic, with Java's partitioner and a group")
        await asyncio.to_thread(plain.make_topic)
        await asyncio.to_thread(plain.write, _FIRST)
        read = await asyncio.to_thread(plain.read_half)
        narrator.say(
            f"Kafka topic {KAFKA_TOPIC} has {_PARTITIONS} partitions and {_FIRST:,} messages; "
            f"group {STREAM} has read {read:,} of them, and has left"
        )

    async def _adopt(self) -> None:
        narrator, topics = self._narrator, self.admin.scalable_topics
        narrator.step("adopt", "It becomes a scalable topic where it lies, under load")
        await self.make_home()
        found = await topics.survey_kafka_topic(self.topic, KAFKA_TOPIC)
        said = verdict_in_words(found.survey.judgement, found.survey.partitions)
        narrator.say(f"the survey says of its partitioner: {said}")
        await topics.adopt_kafka_topic(self.topic, KAFKA_TOPIC)
        narrator.say(f"{self.topic} is that Kafka topic now; plain producers notice nothing")
        await topics.create_subscription(self.topic, STREAM, start=FromGroup(STREAM, "earliest"))
        narrator.say(f"subscription {STREAM} goes on where the group has come to")
        self.traffic.rate = _RATE
        await self.traffic.start()
        await asyncio.sleep(_SHOWN_S)
        narrator.say("producers and readers of the SDK work beside the plain producer")

    async def _cut_over(self) -> None:
        narrator = self._narrator
        narrator.step("cut-over", "One operation replaces it, while all write")
        await self.admin.scalable_topics.prepare_segments(self.topic, _SEGMENTS)
        narrator.say(f"{_SEGMENTS} segments have taken over; Kafka refuses the old topic's writers")

        async def is_refused() -> bool:
            return bool(self._plain.refusals)

        await self._until(is_refused, "the plain producer is not refused")
        (reason, _), *_ = self._plain.refusals.most_common(1)
        narrator.say(f"the plain producer hears {reason}; those of the SDK have moved")

    async def _split(self) -> None:
        narrator, topics = self._narrator, self.admin.scalable_topics
        narrator.step("split", "It splits as any scalable topic")
        for _ in range(2):
            layout = await topics.get_metadata(self.topic)
            active = [each for each, part in layout.segments.items() if part.active]
            await topics.split_segment(self.topic, active[0])
            narrator.say(f"segment {active[0]} is split")
        if not self.traffic.sent:
            raise BrokenPromiseError("nothing was sent")
