"""`WriterPool`: a producer's segment writers, and some spare ones for the next children; `Upkeep`:
when one of them is given up or is used no more.

A new librdkafka producer needs a connection and a producer id before it can append: some 20 ms, but
half a second when its first try for the id comes too early. A split may take less than that from
its beginning to the seal, so children are given writers that are ready.

Where Kafka has several brokers each bucket has a writer of its own, up to eight of a segment. One
broker may refuse appends because the segment is sealed while another one still takes them; then
librdkafka begins a new epoch, and sends again under it what it has in doubt at the other broker,
which takes that for new. A broker alone obeys the seal of all its buckets at once. Each bucket also
has its own where batches are to be counted (`batches`).

Each writer has three threads of librdkafka's, or more where Kafka has several brokers, and 0.6 MB.
So of a topic of many segments only the first ones are got ready beforehand, and a writer that
nothing was sent through for some minutes is closed.

Time-outs. Each message has `delivery_timeout_s` from when it was sent. What is still in our hands
then is simply not sent. What was appended can be given up only together with everything else that
its segment's writer has under way: librdkafka can skip no single message, since Kafka takes the
producer's numbers without a gap. So the other buckets of the segment stop appending for a moment,
and what Kafka acknowledges in it is safe; the rest is given up, outcome unknown. Then the segment
gets a writer that is new to Kafka (`sender`, "renewed"), and what was held meanwhile goes on. So it
does when librdkafka has met an error after which it takes nothing more.

Rest. Kafka forgets an idempotent producer that appends nothing to a partition for a day
(`producer.id.expiration.ms`), so a partition writer that has rested for an hour begins anew. A
segment's writer that nothing was sent through for some minutes is closed, for its threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final

from anabranch.client._errors import DeliveryError
from anabranch.client._producer.kafka_writer import KafkaPartitionWriter
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.client._producer.segment_writer import BatchStats, SegmentWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.throttled import Throttled
from anabranch.client._settings import ProducerSettings
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.wire.logging import get_logger

LOOK_S: Final = 1.0
_GRACE_S: Final = 0.5
_FORGOTTEN_S: Final = 3_600.0
_UNUSED_S: Final = 300.0
_SPARES: Final = 2
_WARM_AT_ONCE: Final = 4
_READY_AT_START: Final = 8
_OF_SEGMENT_MAX: Final = 8
_LEADERS_S: Final = 0.1  # a refused append costs no more than that

_logger = get_logger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def writers_of(buckets: int, brokers: int) -> int:
    """How many writers a segment needs on so many of Kafka's brokers; 0: perhaps several."""
    return 1 if brokers == 1 else min(buckets, _OF_SEGMENT_MAX)


class WriterPool:
    """`spawn` runs what takes a while; its owner waits for it or cancels it."""

    def __init__(
        self,
        settings: ProducerSettings,
        kafka: Mapping[str, Any],
        spawn: Spawn,
        on_ready: Callable[[SegmentWriter], None],
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._kafka = kafka
        self._spawn = spawn
        self._on_ready = on_ready
        self._now = now
        self.brokers = 0  # of Kafka; 0: not known, so perhaps several
        self._writers: dict[tuple[int, int, int], SegmentWriter] = {}
        self._spares: list[SegmentWriter] = []
        self._spent: list[
            SegmentWriter
        ] = []  # replaced, and still in use by partition writers that leave
        self._throttled = Throttled()
        self._warming = asyncio.Semaphore(_WARM_AT_ONCE)

    def __iter__(self) -> Iterator[SegmentWriter]:
        return iter((*self._writers.values(), *self._spent))

    def poll_spares(self) -> None:
        """Takes what librdkafka has to say of the spare ones: it would pile up."""
        for writer in self._spares:
            writer.poll(0)

    async def start(self, layout: TopicLayout) -> None:
        """Gets ready to append to the active segments, if they are not many."""
        if layout.active:
            part = layout.active[0]  # which tells how many brokers there are
            await self._warm(self.of(layout, layout.incarnation, part, 0), part.kafka_topic)
        places = [(part, bucket) for part in layout.active for bucket in self._buckets(part)]
        await asyncio.gather(
            *[
                self._warm(self.of(layout, layout.incarnation, part, bucket), part.kafka_topic)
                for part, bucket in places[1:_READY_AT_START]
            ]
        )
        self._keep_spares(layout)

    def update(self, layout: TopicLayout) -> None:
        """Gets ready to append to the children under way; if that fails, whoever sends is told."""
        before = len(self._writers)
        with contextlib.suppress(DeliveryError):
            for child in layout.children:
                for bucket in self._buckets(child):
                    writer = self.of(layout, layout.incarnation, child, bucket)
                    if layout.sealing and not writer.readying:
                        # Not before: while the topic is not there, to ask for it might make it.
                        writer.readying = child.kafka_topic
                        self._spawn(self._ready(writer))
        if len(self._writers) > before:
            self._keep_spares(layout)

    def _buckets(self, part: Segment) -> range:
        """One bucket for each writer that the segment needs."""
        apart = self._settings.count_batches
        return range(writers_of(part.info.buckets, 0 if apart else self.brokers))

    def of(
        self, layout: TopicLayout, incarnation: int, part: Segment, bucket: int
    ) -> SegmentWriter:
        """The writer of a bucket of a segment. Raises DeliveryError when none can be made."""
        number = (incarnation, part.segment_id, bucket % len(self._buckets(part)))
        found = self._writers.get(number)
        if found is None:
            spare = self._spares.pop(0) if self._spares else None
            if spare is not None and spare.fits != SegmentWriter.fitting(layout):
                spare.close()
                spare = None
            found = spare or SegmentWriter(layout, self._settings, self._kafka, self._throttled)
            found.given_at = self._now()
            self._writers[number] = found
            if spare is not None:
                self._keep_spares(layout)
        return found

    def replace(self, writer: SegmentWriter) -> None:
        """From now on its segment has another writer, made when it is needed."""
        for number, each in list(self._writers.items()):
            if each is writer:
                del self._writers[number]
                self._spent.append(writer)

    def retire(self, layout: TopicLayout, used: Iterable[SegmentWriter]) -> None:
        """Closes the writers of segments that are sealed and left, deleted, or were never made."""
        parts = () if layout.deleted else (*layout.active, *layout.children)
        wanted = {part.segment_id for part in parts}
        in_use = {id(writer) for writer in used}
        for writer in [each for each in self._spent if id(each) not in in_use]:
            self._spent.remove(writer)
            writer.close()
        while layout.deleted and self._spares:
            self._spares.pop().close()
        for number, writer in list(self._writers.items()):
            is_wanted = number[0] == layout.incarnation and number[1] in wanted
            if not is_wanted and id(writer) not in in_use:
                del self._writers[number]
                writer.close()

    def stats(self) -> list[BatchStats]:
        """How full the batches are, by segment and bucket."""
        found = [stats for writer in self if (stats := writer.batch_stats()) is not None]
        return sorted(found, key=lambda each: (each.segment_id, each.buckets))

    def close(self, patience_s: float = 0.0) -> list[threading.Thread]:
        """Ends all writers, as each of these threads does one of them."""
        ends = [writer.close(patience_s) for writer in (*self, *self._spares)]
        self._writers.clear()
        self._spares.clear()
        self._spent.clear()
        return ends

    def _keep_spares(self, layout: TopicLayout) -> None:
        count = _SPARES if self.brokers == 1 else 2 * _SPARES
        with contextlib.suppress(DeliveryError):
            while len(self._spares) < count and layout.active:
                spare = SegmentWriter(layout, self._settings, self._kafka, self._throttled)
                self._spares.append(spare)
                self._warm(spare, layout.active[0].kafka_topic)

    async def _ready(self, writer: SegmentWriter) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEADERS_S):
                await writer.await_leaders(writer.readying)
        writer.is_ready = True
        self._count_brokers(writer)
        self._on_ready(writer)

    def _count_brokers(self, writer: SegmentWriter) -> None:
        self.brokers = writer.brokers or self.brokers

    def _warm(self, writer: SegmentWriter, kafka_topic: str) -> asyncio.Task[None]:
        async def warm() -> None:
            async with self._warming:
                await writer.warm(kafka_topic)
            self._count_brokers(writer)

        return self._spawn(warm())


class Upkeep:
    """Of one sender, whose messages are given up after `patience_s`. Blocks never."""

    def __init__(
        self, sender: Sender[KafkaPartitionWriter], writers: WriterPool, patience_s: float
    ) -> None:
        self.ending: dict[SegmentWriter, float] = {}  # those that give up, and when
        self._sender = sender
        self._router = sender.router
        self._writers = writers
        self._patience_s = patience_s

    def look(self, now: float) -> None:
        """To be called every `LOOK_S`."""
        for partition in self._router.writers():
            partition.look(now)
            self._sender.expire(partition, now)
            if partition.resting_since() < now - _FORGOTTEN_S:
                partition.rested()
            if partition.waiting_since() < partition.sent_by(now, self._patience_s) or (
                partition.segment_writer.is_broken and partition.open
            ):
                self._begin(partition, now)
        self._sender.reopen(now)
        self._rest(now)

    def go_on(self, now: float) -> None:
        """To be called often while there is something in `ending`."""
        for writer, at in list(self.ending.items()):
            if not writer.outstanding:
                del self.ending[writer]
                self._renew(writer)
            elif not writer.given_up and (now >= at or self._all_late(writer, now)):
                throttling = writer.throttled.why(now, self._patience_s)
                writer.give_up(
                    f"Kafka did not acknowledge it in {self._patience_s:g} s{throttling}"
                )

    def give_up(self, partition: KafkaPartitionWriter) -> None:
        """Its segment's topic is gone: nothing of what is under way will be acknowledged."""
        self.ending[partition.segment_writer] = 0.0
        self._writers.replace(partition.segment_writer)
        partition.segment_writer.give_up(partition.lost)

    def _begin(self, partition: KafkaPartitionWriter, now: float) -> None:
        writer = partition.segment_writer
        if writer in self.ending:
            return
        self.ending[writer] = now + _GRACE_S
        self._writers.replace(writer)
        for each in writer.partitions:
            each.pause()
        _logger.warning(
            "producer.gives_up",
            where=partition.where,
            waiting=writer.outstanding,
            trouble=writer.trouble,
        )

    def _renew(self, writer: SegmentWriter) -> None:
        self._writers.replace(writer)
        messages: list[PendingMessage] = []
        for partition in self._router.writers():
            if partition.segment_writer is writer and partition.open:
                messages += self._router.renew(partition)
        self._writers.retire(
            self._router.layout, (partition.segment_writer for partition in self._router.writers())
        )
        self._sender.send_on(messages)

    def _rest(self, now: float) -> None:
        unused_since = {writer: writer.given_at for writer in self._writers}
        for partition in self._router.writers():
            since = partition.resting_since() if partition.open else math.inf
            unused_since[partition.segment_writer] = max(
                unused_since[partition.segment_writer], since
            )
        for writer, since in unused_since.items():
            if since < now - _UNUSED_S:
                self._renew(writer)

    def _all_late(self, writer: SegmentWriter, now: float) -> bool:
        sent_by = writer.throttled.sent_by(now, self._patience_s)
        return all(
            partition.waiting_since() < sent_by
            for partition in writer.partitions
            if partition.outstanding
        )
