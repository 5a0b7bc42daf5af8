"""`SegmentWriter`: the librdkafka producer of one segment, and how full its batches are.

Why each segment has a librdkafka producer of its own: after a refusal librdkafka begins a new epoch
of its producer id, for all partitions at once, and sends again under it what it had in doubt
elsewhere. Kafka cannot tell such a message from a new one. So a seal that met a cut connection made
messages of other, open segments appear twice (8 of 25 tries in which one producer served both). A
sealed segment takes nothing under any epoch, so inside its own producer this does no harm.

Doubt. librdkafka tries an append again by itself when its connection ends, and the binding does not
tell whether it did. But it waits `retry.backoff.ms`, give or take a fifth, and never longer than
`retry.backoff.max.ms`, before it does. So what is refused sooner after it was handed over was tried
only once, and the refusal is the whole truth (`retry_backoff`).

Batches (PIP-486, "Metrics"). librdkafka counts the batches of a topic, not of its partitions, so a
producer that is asked for them has a librdkafka producer for each bucket, as it has anyway where
Kafka has several brokers.

What identifies the producer's messages, should any be in doubt (`settlement`): their number, if the
partition's leader can be asked for it, or else a header in each of them, which costs a fifth of the
throughput.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, ThrottleEvent

from anabranch.client._aio import on_thread
from anabranch.client._errors import DeliveryError, UnknownOutcomeError
from anabranch.client._kafka_options import LIBRDKAFKA_LOG, PRODUCER
from anabranch.client._producer.throttled import Throttled
from anabranch.client._settings import ProducerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.topics.entries import PRODUCER_HEADER
from anabranch.wire import clock
from anabranch.wire.kafka import producer_state, protocol, sasl
from anabranch.wire.kafka.protocol import KafkaProtocolError

if TYPE_CHECKING:
    from anabranch.client._producer.kafka_writer import KafkaPartitionWriter

# What is refused sooner is certain, so a slow Kafka does not make every seal one to be settled. It
# is also how long an append waits that a partition refused because its leader does not lead yet.
_BACKOFF_MS: Final = 200
_BACKOFF_MS_MAX: Final = 1_000
_CERTAIN_SHARE: Final = 0.75  # of the backoff; librdkafka's jitter leaves at least 0.8 of it
_BATCH_BYTES: Final = 1_000_000
_PRODUCER_ID_BYTES: Final = 8
_METADATA_S: Final = 5.0
_LEADERS_S: Final = 1.0
_LEADERS_AGAIN_S: Final = 0.005
_STATS_MS: Final = 100  # settling waits for them
_CLOSE_S_MAX: Final = 5.0


def retry_backoff(linger_ms: float) -> tuple[dict[str, int], float]:
    """The properties of librdkafka, and for how many seconds a message was tried only once.

    What lingers is handed over that much before it is tried, so the wait is longer then.
    """
    backoff_ms = min(_BACKOFF_MS + 2 * int(linger_ms), _BACKOFF_MS_MAX)
    properties = {"retry.backoff.ms": backoff_ms, "retry.backoff.max.ms": _BACKOFF_MS_MAX}
    return properties, _CERTAIN_SHARE * backoff_ms / 1000


def brokers_of(metadata: Any, kafka_topic: str) -> int:
    """How many brokers may lead something: those that are there, and those that are away and have a
    replica of that topic. A broker that is alone for a moment is not the only one.
    """
    found = set(metadata.brokers)
    if kafka_topic in metadata.topics:
        found.update(*(part.replicas for part in metadata.topics[kafka_topic].partitions.values()))
    return len(found)


def copies_of(metadata: Any, kafka_topic: str) -> int:
    """How many copies there are of the partition of that topic that has most; 0: not known."""
    if kafka_topic not in metadata.topics:
        return 0
    parts = metadata.topics[kafka_topic].partitions.values()
    return max((len(part.replicas) for part in parts), default=0)


class BatchStats(msgspec.Struct, frozen=True):
    """Of the batches that a producer wrote to a bucket.

    `buckets`: which one; several where the segment has more than 8, which share their producers.
    `bytes`: of the batches as they are stored, so compressed; `bytes_max`: how large one may be.
    What librdkafka had to write again counts again.
    """

    segment_id: int
    buckets: tuple[int, ...]
    batches: int
    messages: int
    bytes: int
    bytes_max: int

    @property
    def mean_messages(self) -> float:
        """Messages of a batch; 0 when there was none."""
        return self.messages / self.batches if self.batches else 0.0

    @property
    def mean_bytes(self) -> float:
        """Bytes of a batch; 0 when there was none."""
        return self.bytes / self.batches if self.batches else 0.0

    @property
    def fill_ratio(self) -> float:
        """Bytes of a batch as a part of what it may have, 0 to about 1."""
        return self.mean_bytes / self.bytes_max


class _Window(msgspec.Struct):
    """Since the statistics before."""

    sum: int
    cnt: int


class _Topic(msgspec.Struct):
    batchsize: _Window
    batchcnt: _Window


class _Statistics(msgspec.Struct):
    topics: dict[str, _Topic]


_DECODER = msgspec.json.Decoder(_Statistics)


class BatchCount:
    """Adds up what librdkafka says of one producer, each time."""

    def __init__(self) -> None:
        self.batches = 0
        self.messages = 0
        self.bytes = 0

    def take(self, statistics: str) -> None:
        """The next statistics, JSON."""
        for topic in _DECODER.decode(statistics).topics.values():
            self.batches += topic.batchcnt.cnt
            self.messages += topic.batchcnt.sum
            self.bytes += topic.batchsize.sum


class SegmentWriter:
    """Everything one producer appends to one segment goes through here. Raises DeliveryError."""

    def __init__(
        self,
        layout: TopicLayout,
        settings: ProducerSettings,
        kafka: Mapping[str, Any],
        throttled: Throttled,
    ) -> None:
        self.fits = self.fitting(layout)
        self.producer_id = os.urandom(_PRODUCER_ID_BYTES)
        self.counts = protocol.can_ask(kafka) and not sasl.is_guarded(kafka)
        header = (PRODUCER_HEADER, self.producer_id)
        self.headers: list[tuple[str, Any]] | None = None if self.counts else [header]
        self.partitions: set[KafkaPartitionWriter] = set()
        self.readying = ""  # the new topic whose leaders are awaited, until
        self.is_ready = False
        self.brokers = 0  # of Kafka, once it has told
        self.copies = 0  # of what is written, once it has told
        self._is_warm = False
        self._is_closed = False
        self._asking = threading.Lock()  # on some thread; it is not closed meanwhile
        self._kafka = kafka
        self.trouble = ""  # what Kafka's client complained of last
        self.throttled = throttled
        self.is_broken = False  # Kafka's client takes nothing more
        self.given_up = ""  # why everything under way is being given up, or was
        backoff, self.certain_s = retry_backoff(settings.linger_ms)
        limit = layout.max_message_bytes or _BATCH_BYTES
        self.given_at = 0.0  # when it became the writer of its segment
        self._stats = ""
        self._stats_at = -math.inf
        self._batches = BatchCount() if settings.count_batches else None
        self._batch_bytes_max = max(1, min(limit, _BATCH_BYTES))
        has_stats = self.counts or settings.count_batches
        statistics = {"statistics.interval.ms": _STATS_MS, "stats_cb": self._take_stats}
        try:
            producer = Producer(
                {
                    **PRODUCER,
                    "error_cb": self._take_trouble,
                    "throttle_cb": self._take_throttling,
                    **(statistics if has_stats else {}),
                    "bootstrap.servers": layout.bootstrap_servers,
                    "client.id": "anabranch-producer",
                    "linger.ms": settings.linger_ms,
                    "compression.type": settings.compression,
                    **backoff,
                    # A batch beyond the topic's limit would be refused as if it were sealed.
                    "message.max.bytes": max(1_000, limit),
                    "batch.size": self._batch_bytes_max,
                    # What is encrypted is a batch by itself (`messages`).
                    **({} if settings.encrypt is None else {"batch.num.messages": 1}),
                    **kafka,
                },
                logger=LIBRDKAFKA_LOG,
            )
        except KafkaException as error:  # there may be no thread left for it
            why = error.args[0].str()
            raise DeliveryError(f"a client of Kafka cannot be made: {why}") from None
        self._producer = producer
        self.produce = producer.produce
        self.poll = producer.poll

    @staticmethod
    def fitting(layout: TopicLayout) -> tuple[str, int]:
        """What of a layout a writer is made for."""
        return layout.bootstrap_servers, layout.max_message_bytes

    @property
    def outstanding(self) -> int:
        """How many reports Kafka has yet to give."""
        return sum(partition.outstanding for partition in self.partitions)

    async def warm(self, kafka_topic: str) -> None:
        """Connects, gets a producer id and learns where that topic's partitions are.

        Best effort: what failed is done again by the first append.
        """
        await on_thread(self._ask, kafka_topic)

    async def await_leaders(self, kafka_topic: str) -> None:
        """The same for a topic that is new: returns when its leaders lead, or after a while.

        Else Kafka would refuse the first appends, which librdkafka tries again after its backoff.
        """
        await on_thread(self._await_leaders if self.counts else self._ask, kafka_topic)

    async def lacks(self, kafka_topic: str) -> bool | None:
        """Whether Kafka says that it has no such topic; None when it says nothing."""
        return await on_thread(self._lacks, kafka_topic)

    def _lacks(self, kafka_topic: str) -> bool | None:
        try:
            error = self._metadata(kafka_topic, _METADATA_S).topics[kafka_topic].error
        except KafkaException:
            return None
        if error is None:
            return False
        return True if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else None

    def _ask(self, kafka_topic: str) -> None:
        try:
            # Asked once, librdkafka may have the answer before it looks for a producer id, and then
            # it looks again only half a second later.
            for _ in range(2):
                found = self._metadata(kafka_topic, _METADATA_S)
            self._learn(found, kafka_topic)
            self._is_warm = True
        except KafkaException as error:
            LIBRDKAFKA_LOG.info("WARM %s: %s", kafka_topic, error)

    def _await_leaders(self, kafka_topic: str) -> None:
        deadline = time.monotonic() + _LEADERS_S
        if not self._is_warm:
            self._ask(kafka_topic)
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                found = self._metadata(kafka_topic, left_s)
                self._learn(found, kafka_topic)
                leaders: dict[int, list[int]] = {}
                for number, part in found.topics[kafka_topic].partitions.items():
                    leaders.setdefault(part.leader, []).append(number)
                if leaders and -1 not in leaders:
                    for leader, numbers in leaders.items():
                        at = found.brokers[leader]
                        producer_state.await_leading(
                            (at.host, at.port), kafka_topic, numbers, self._kafka, left_s
                        )
                    return
            except (KafkaException, KeyError, OSError, KafkaProtocolError) as error:
                LIBRDKAFKA_LOG.info("LEADERS %s: %s", kafka_topic, error)
            time.sleep(_LEADERS_AGAIN_S)

    def _learn(self, metadata: Any, kafka_topic: str) -> None:
        self.brokers = brokers_of(metadata, kafka_topic)
        self.copies = copies_of(metadata, kafka_topic)

    def _metadata(self, kafka_topic: str, timeout_s: float) -> Any:
        """Blocks. Raises KafkaException, also when its segment retired meanwhile."""
        with self._asking:
            if self._is_closed:
                raise KafkaException(KafkaError(KafkaError._DESTROY))
            return self._producer.list_topics(kafka_topic, timeout_s)

    def _take_trouble(self, error: KafkaError) -> None:
        # That all are down only follows from what was said of each, which tells why.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.trouble:
            self.trouble = error.str()

    def _take_throttling(self, event: ThrottleEvent) -> None:
        self.throttled.note(clock.now(), event.throttle_time)

    def _take_stats(self, text: str) -> None:
        self._stats, self._stats_at = text, time.monotonic()
        if self._batches is not None:
            self._batches.take(text)

    def batch_stats(self) -> BatchStats | None:
        """How full its batches are; None where nobody asks, or nothing was written yet."""
        count, partitions = self._batches, self.partitions
        if count is None or not partitions:
            return None
        return BatchStats(
            next(iter(partitions)).segment.segment_id,  # the same of all
            tuple(sorted({partition.bucket for partition in partitions})),
            count.batches,
            count.messages,
            count.bytes,
            self._batch_bytes_max,
        )

    def kafka_id(self, not_before: float) -> int | None:
        """The id that Kafka gave to this producer, once it is known to have been the only one.

        None as long as nothing newer than that time tells. Raises UnknownOutcomeError when the
        producer has had several.
        """
        if self._stats_at <= not_before:
            return None
        eos = json.loads(self._stats)["eos"]
        if eos["epoch_cnt"] > 1:
            raise UnknownOutcomeError("Kafka's client has changed its producer id meanwhile")
        return int(eos["producer_id"]) if eos["epoch_cnt"] else None

    def leader(self, kafka_topic: str, partition: int) -> tuple[str, int]:
        """Where a partition's leader is. Blocks. Raises OSError."""
        try:
            found = self._metadata(kafka_topic, _METADATA_S)
            broker = found.brokers[found.topics[kafka_topic].partitions[partition].leader]
        except (KafkaException, KeyError) as error:
            raise ConnectionError(f"{kafka_topic}[{partition}] has no leader: {error}") from None
        return broker.host, broker.port

    def broke(self, error: KafkaError) -> bool:
        """Kafka's client said so of a message. Whether it takes nothing more: then its buckets hold
        what comes until `Upkeep` has replaced it.
        """
        # What `produce` raises is not marked as fatal itself.
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.is_broken = True
            for partition in self.partitions:
                partition.pause()
        return self.is_broken

    def give_up(self, why: str) -> None:
        """Everything under way is reported as failed, by polls of the next milliseconds."""
        self.given_up = self.given_up or why
        for partition in self.partitions:
            partition.pause()
        # By a fault of the binding it is with `blocking=False` that it waits (2.16.1).
        self._producer.purge()

    def close(self, patience_s: float = 0.0) -> threading.Thread:
        """Ends it on that thread, as librdkafka waits for its own; what is not sent by then never
        is.
        """
        producer = self._producer
        self._is_closed = True
        if not patience_s:
            producer.purge()

        def end() -> None:
            with contextlib.suppress(KafkaException):  # it may be past sending anything
                if patience_s and producer.flush(patience_s):
                    producer.purge()
                producer.flush(_CLOSE_S_MAX)
            with self._asking:
                producer.close()

        ending = threading.Thread(target=end, name="segment-writer-close", daemon=True)
        ending.start()
        return ending
