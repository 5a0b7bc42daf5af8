"""`Dispatcher`: the shell of a producer's `Sender`: event loop, timers, and Kafka.

Everything happens on the event loop. `Appends` speaks there with Kafka's brokers, over the client's
connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.client._aio import Tasks, on_thread
from anabranch.client._errors import ClientError, DeadlineError, DeliveryError
from anabranch.client._producer import settlement
from anabranch.client._producer.appends import Appends
from anabranch.client._producer.batch import (
    CODECS,
    BatchLimits,
    PendingMessage,
    RecordBatch,
    record_batches,
)
from anabranch.client._producer.leaders import MissingTopics
from anabranch.client._producer.messages import BatchStats, Callbacks, DeliveryResult
from anabranch.client._producer.named import NamedProducer
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._settings import ProducerSettings
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.client._topics.traffic import TopicTraffic
from anabranch.wire import clock
from anabranch.wire.errors import WireError
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.kafka.producing import ProducedPartition
from anabranch.wire.logging import get_logger

_LOOK_S: Final = 0.5
_BATCH_BYTES_MAX: Final = 1_000_000
_BATCH_MESSAGES_MAX: Final = 10_000
_METADATA_S_MAX: Final = 5.0
_AGAIN_S: Final = 0.1
_logger = get_logger(__name__)


@dataclass(slots=True)  # its attributes are set faster than a Struct's
class Volume:
    """A number of messages, and the bytes of their values."""

    count: int = 0
    bytes: int = 0


class Dispatcher:
    """Appends each message to its sender's choice of place, once, and tells the result."""

    def __init__(
        self,
        layout: TopicLayout,
        settings: ProducerSettings,
        links: KafkaLinks,
        now: Callable[[], float] = clock.now,
        traffic: TopicTraffic | None = None,
        named: NamedProducer | None = None,
    ) -> None:
        record_batches()  # now, so that no message waits for it
        self.under_way = Volume()  # or held
        self.changed = asyncio.Event()  # set whenever something was settled
        self._traffic = traffic or TopicTraffic()
        self._settings = settings
        self._links = links
        self._now = now
        self._topic = f"topic://{layout.topic}"
        self._limits = _limits(layout, settings)
        self._tasks = Tasks(self._task_failed)
        self.callbacks = Callbacks(self._topic, now)
        self._span_s = _LOOK_S + settings.linger_ms / 1000
        self.sender: Sender[PartitionWriter] = Sender(
            layout, self, settings.delivery_timeout_s, self._late_before, self._span_s
        )
        self.router = self.sender.router
        linger_s = settings.linger_ms / 1000
        self.appends = Appends(
            self.sender, links, self._acked, self._finish, self._tasks.spawn, now, linger_s, named
        )
        self._missing = MissingTopics(self.sender, self.appends.leaders)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tells_soon = False

    # --- what happens -------------------------------------------------------------------

    async def start(self) -> None:
        """Gets ready to append to the active segments."""
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        await self.appends.start([part.kafka_topic for part in self.router.layout.active])

    def take(self, message: PendingMessage) -> None:
        """Appends a new message, or holds it while its bucket is moving.

        Raises UncoveredHashError.
        """
        message.since = self._now()
        writer = self.router.route(message.key)  # raises before anything is counted
        self.under_way.count += 1
        self.under_way.bytes += len(message.value or b"")
        self.sender.append(message, writer)

    def update(self, layout: TopicLayout) -> None:
        """Takes a newer layout. It is a listener of the watch."""
        self._limits = _limits(layout, self._settings)
        self.sender.update(layout, self._now())
        if layout.sealing:
            # Not before: while the topic is not there, to ask for it is in vain.
            topics = {child.kafka_topic for child in layout.children}
            self.appends.leaders.ask([t for t in topics if not self.appends.leaders.knows(t)])
        self.sender.advance()
        self._finish()

    def _acked(
        self, writer: PartitionWriter, batch: RecordBatch, produced: ProducedPartition
    ) -> None:
        self._settled(writer, batch.count, batch.bytes)
        for place, message in batch.noted:
            offset = produced.offset + place if produced.offset >= 0 else -1
            time_ms = message.timestamp_ms
            if produced.log_append_time_ms >= 0:
                time_ms = produced.log_append_time_ms
            self._delivered(writer, message, offset, time_ms)

    def _settled(self, writer: PartitionWriter, count: int, size: int) -> None:
        self.under_way.count -= count
        self.under_way.bytes -= size
        self._traffic.wrote(writer.segment.segment_id, count, size)

    def _delivered(
        self, writer: PartitionWriter, message: PendingMessage, offset: int, time_ms: int
    ) -> None:
        if message.on_delivery is not None:
            segment_id = writer.segment.segment_id
            result = DeliveryResult(self._topic, segment_id, writer.bucket, offset, time_ms)
            self.callbacks.delivered(message, result)

    def batch_stats(self) -> list[BatchStats]:
        """Returns the fill of the batches, by segment and bucket."""
        found = [
            BatchStats(
                writer.segment.segment_id,
                writer.bucket,
                writer.batches,
                writer.batched_messages,
                writer.batched_bytes,
                writer.limits.bytes,
            )
            for writer in self.router.writers()
        ]
        return sorted(found, key=lambda each: (each.segment_id, each.bucket))

    def _late_before(self, now: float) -> float:
        return self.appends.throttled.sent_by(now, self._settings.delivery_timeout_s)

    # --- what the sender has done (`Effects`) ---------------------------------------------

    def make(self, incarnation: int, segment: Segment, bucket: int) -> PartitionWriter:
        writer = PartitionWriter(incarnation, segment, bucket, self._limits)
        writer.where = f"{writer.where} of {self._topic}"
        writer.lost = self._missing.of(segment.kafka_topic)
        return writer

    def begun(self, writer: PartitionWriter) -> None:
        self.appends.begun(writer)

    def resolve(self, writer: PartitionWriter) -> None:
        self._tasks.spawn(self._resolve(writer))

    def stored(self, writer: PartitionWriter, message: PendingMessage) -> None:
        self._settled(writer, 1, len(message.value or b""))
        self._delivered(writer, message, -1, -1)

    def failed(self, message: PendingMessage, error: ClientError) -> None:
        self.under_way.count -= 1
        self.under_way.bytes -= len(message.value or b"")
        self.callbacks.failed(message, error)
        self.tell_soon()

    def tell_soon(self) -> None:
        """Tells results, but not at once, because the sender's call is not over yet."""
        if not self._tells_soon:
            self._tells_soon = True
            self._loop.call_soon(self._finish)

    def moved(self, writer: PartitionWriter, messages: Sequence[PendingMessage]) -> None:
        _logger.info(
            "producer.moved",
            topic=self._topic,
            segment=writer.segment.info.descriptor,
            bucket=writer.bucket,
            messages=len(messages),
            pause_ms=round(1000 * (self._now() - writer.leaving_since), 1),
        )

    async def _resolve(self, writer: PartitionWriter) -> None:
        refused = len(writer.refused)
        try:
            is_stored = await self._ask(writer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the bucket must go on
            if not isinstance(error, ClientError):
                self._task_failed(error)
            self.sender.unresolved(writer, str(error) or repr(error))
        else:
            _logger.info(
                "producer.resolved",
                topic=self._topic,
                segment=writer.segment.info.descriptor,
                bucket=writer.bucket,
                found=refused if is_stored else 0,
                refused=refused,
            )
            self.sender.resolved(writer, is_stored)
        self.sender.advance()
        self._finish()

    async def _ask(self, writer: PartitionWriter) -> bool:
        """Returns True if Kafka holds the messages in doubt.
        Raises DeadlineError, UnknownOutcomeError.
        """
        end = settlement.sealed_end(writer, self.router.layout)
        topic, bucket = writer.segment.kafka_topic, writer.bucket
        since = writer.refused[0].since
        while True:
            patience_s = max(0.0, since - self._late_before(self._now()))
            try:
                found = await self._links.metadata([topic], min(patience_s, _METADATA_S_MAX))
                told = found.topics[topic]
                if isinstance(told, int):
                    raise ConnectionError(f"Kafka does not tell who leads {topic}")
                leader = found.brokers[told.partitions[bucket].leader]
                kafka = self._links.kafka
                return await on_thread(settlement.ask, writer, leader, end, kafka, patience_s)
            except (OSError, KeyError, WireError) as error:
                if since <= self._late_before(self._now()):
                    raise DeadlineError(f"its leader could not be asked: {error}") from None
                await asyncio.sleep(_AGAIN_S)

    # --- what goes on ---------------------------------------------------------------------

    def _look(self) -> None:
        """Looks for late messages now and then, also while nothing is under way."""
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        now = self._now()
        patience_s = self._settings.delivery_timeout_s
        cause = self.appends.throttled.why(now, patience_s)
        trouble = self._links.trouble
        if trouble:
            cause += f"; the last trouble with Kafka: {trouble}"
        self.sender.expire(now, cause)
        for writer in self.router.writers():
            if writer.filling is not None and writer.filling.since < now - self._span_s:
                writer.cut()
        self.sender.reopen(now)
        self._missing.look(now)
        self._finish()

    def _finish(self) -> None:
        self._tells_soon = False
        self.callbacks.tell()
        self.changed.set()

    async def flush(self, timeout_s: float) -> None:
        """Returns once everything sent so far is settled. Raises DeadlineError."""
        self.appends.hurry()
        with self.sender.barrier() as barrier:
            try:
                async with asyncio.timeout(timeout_s):
                    while barrier.left:
                        self.changed.clear()
                        await self.changed.wait()
            except TimeoutError:
                left = f"{barrier.left} messages to {self._topic} are still under way"
                raise DeadlineError(f"{left} after {timeout_s:g} s; wait for them again") from None

    def end(self, error: DeliveryError) -> None:
        """Sends nothing more, gives up all that is under way, and tells the senders."""
        self.appends.end()
        self.sender.close(str(error), error)
        self.tell_soon()

    async def close(self) -> None:
        """Gives up the messages that are under way, and tells their senders."""
        self.appends.end()
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.cancel()
        self._tells_soon = True
        self.sender.close("the producer was closed")
        self._finish()

    def _task_failed(self, error: BaseException) -> None:
        _logger.error("producer.fault", topic=self._topic, exc_info=error)


def _limits(layout: TopicLayout, settings: ProducerSettings) -> BatchLimits:
    """Returns the limits of a batch.
    Kafka would refuse one beyond the topic's limit as if the segment were sealed.
    """
    most = min(layout.max_message_bytes, _BATCH_BYTES_MAX)
    # Each encrypted message is a batch by itself (`messages`).
    count = 1 if settings.encrypt is not None else _BATCH_MESSAGES_MAX
    return BatchLimits(max(1_000, most), count, CODECS[settings.compression])
