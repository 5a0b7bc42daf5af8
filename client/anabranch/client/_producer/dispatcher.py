"""`Dispatcher`: the shell of a producer's `Sender`: event loop, timers, and librdkafka.

Everything happens on the event loop. librdkafka has threads of its own for the network, so asking
it for reports (`poll(0)`) never waits; it is asked every millisecond while something is under way.
A polling thread was tried and dropped: librdkafka's binding takes the interpreter's lock for each
single report, which a busy event loop hands over every 5 ms only.

Reports are taken inside `poll`, where nothing may be sent (confluent-kafka-python#457); what they
lead to is done after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from anabranch.client._aio import Tasks
from anabranch.client._errors import ClientError, DeadlineError, SegmentMissingError
from anabranch.client._producer import settlement
from anabranch.client._producer.kafka_writer import (
    DeliveryReport,
    KafkaPartitionWriter,
    Volume,
    delivery_error,
    no_room,
)
from anabranch.client._producer.messages import Callbacks, DeliveryResult
from anabranch.client._producer.missing import MissingTopics
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.client._producer.segment_writer import SegmentWriter
from anabranch.client._producer.sender import Sender
from anabranch.client._producer.writer_pool import LOOK_S, Upkeep, WriterPool
from anabranch.client._settings import ProducerSettings
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.client._topics.traffic import TopicTraffic
from anabranch.wire import clock
from anabranch.wire.logging import get_logger

_TICK_S: Final = 0.001
_IDLE_S: Final = 0.5
_LAST_REPORTS_S: Final = 2.0  # for what is given up at the end; it takes milliseconds
_logger = get_logger(__name__)


class Dispatcher:
    """Appends each message where its sender wants it, once, and says what became of it."""

    def __init__(
        self,
        layout: TopicLayout,
        settings: ProducerSettings,
        kafka: Mapping[str, Any],
        now: Callable[[], float] = clock.now,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.under_way = Volume()  # or held
        self._given_up = Volume()
        self._traffic = traffic or TopicTraffic()
        self.sender: Sender[KafkaPartitionWriter] = Sender(
            layout, self, settings.delivery_timeout_s
        )
        self.router = self.sender.router
        self.awaited: set[DeliveryReport] = set()
        self.changed = asyncio.Event()  # set whenever something was settled
        self.timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._settings = settings
        self._kafka = kafka
        self._topic = f"topic://{layout.topic}"
        self._tasks = Tasks(self._task_failed)
        self.writers = WriterPool(settings, kafka, self._tasks.spawn, self._ready, now)
        self.callbacks = Callbacks(self._topic, now)
        self._loop = asyncio.get_running_loop()
        self._now = now
        self._look_at = now() + LOOK_S
        self._upkeep = Upkeep(self.sender, self.writers, settings.delivery_timeout_s)
        self._missing = MissingTopics(
            self.sender, self.writers, self._tasks.spawn, self._upkeep.give_up, now
        )

    # --- what happens -------------------------------------------------------------------

    async def start(self) -> None:
        """Gets ready to append to the active segments."""
        self._idle_timer = self._loop.call_later(_IDLE_S, self._idle)
        await self.writers.start(self.router.layout)

    def take(self, message: PendingMessage) -> None:
        """Appends a new message, or holds it while its bucket is moving.

        Raises DeliveryError when there is nothing to append it by, UncoveredHashError.
        """
        partition = self.router.route(message.key)
        self.under_way.count += 1
        self.under_way.bytes += len(message.value or b"")
        message.since = self._now()
        self.sender.append(message, partition)
        self.arm()

    def update(self, layout: TopicLayout) -> None:
        """Takes a newer layout; the listener of a watch."""
        self.sender.update(layout, self._now())
        if layout.deleted:
            for writer in self.writers:
                writer.give_up("the topic was deleted")
        else:
            self.writers.update(layout)
        self.sender.advance()
        self._retire()
        self._finish()

    def delivered(
        self, partition: KafkaPartitionWriter, message: PendingMessage, offset: int, time_ms: int
    ) -> None:
        """Kafka has the message."""
        self.under_way.count -= 1
        self.under_way.bytes -= len(message.value or b"")
        if message.on_delivery is not None:
            segment_id = partition.segment.segment_id
            result = DeliveryResult(self._topic, segment_id, partition.bucket, offset, time_ms)
            self.callbacks.delivered(message, result)

    def _troubled(
        self,
        partition: KafkaPartitionWriter,
        error: KafkaError,
        pending: PendingMessage,
        message: Message,
    ) -> None:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # as a sealed segment refuses everything
            now = self._now()
            pending.since = pending.since or now - (message.latency() or 0.0)
            self.sender.refused(partition, pending, partition.is_doubtful(message), now)
            return
        partition.failed()
        writer = partition.segment_writer
        writer.broke(error)
        if self.router.layout.deleted:
            self.sender.fail(pending, self.sender.gone())
        elif partition.lost and error.code() == KafkaError._PURGE_QUEUE:  # it was never sent
            self.sender.fail(pending, SegmentMissingError(partition.lost))
        else:
            why = delivery_error(error, partition.where, writer.given_up, writer.trouble)
            self.sender.fail(pending, why)

    def _ready(self, writer: SegmentWriter) -> None:
        """Takes note that a new segment's leaders lead."""
        for partition in writer.partitions:
            if writer not in self._upkeep.ending and not partition.lost:
                partition.resume()
                self.sender.append_held(partition)
        self._finish()

    # --- what the sender has done (`Effects`) ---------------------------------------------

    def make(self, incarnation: int, segment: Segment, bucket: int) -> KafkaPartitionWriter:
        writer = self.writers.of(self.router.layout, incarnation, segment, bucket)
        partition = KafkaPartitionWriter(
            incarnation,
            segment,
            bucket,
            self._topic,
            writer,
            self.under_way,
            self._troubled,
        )
        partition.lost = self._missing.of(partition.topic)
        if partition.lost or (writer.readying and not writer.is_ready):
            partition.pause()  # until `_ready`, or until Kafka has the topic again
        return partition

    def append(self, partition: KafkaPartitionWriter, message: PendingMessage) -> bool:
        own, given = partition.headers, message.headers
        # A report without a message of ours tells key and value alone.
        plain = message.on_delivery is None and not given and not message.timestamp_ms
        report: Any = partition.report
        if not (plain and partition.proven):
            report = DeliveryReport(self, partition, message)
        headers = [*(own or ()), *given] if given else own
        error = partition.append(message.value, message.key, message.timestamp_ms, report, headers)
        if error is None:
            partition.mark(message.since)
            return True
        self.awaited.discard(report)
        if isinstance(error, BufferError):
            raise no_room(partition.where) from None
        if not isinstance(error, KafkaException):
            raise error
        if partition.segment_writer.is_broken:
            return False
        raise delivery_error(error.args[0], partition.where, "", "") from None

    def resolve(self, partition: KafkaPartitionWriter) -> None:
        self._tasks.spawn(self._resolve(partition))

    def stored(
        self, partition: KafkaPartitionWriter, message: PendingMessage, offset: int, time_ms: int
    ) -> None:
        self._traffic.wrote(partition.segment.segment_id, 1, len(message.value or b""))
        self.delivered(partition, message, offset, time_ms)

    def failed(self, message: PendingMessage, error: ClientError) -> None:
        size = len(message.value or b"")
        for volume, sign in ((self.under_way, -1), (self._given_up, 1)):
            volume.count += sign
            volume.bytes += sign * size
        self.callbacks.failed(message, error)

    def moved(self, partition: KafkaPartitionWriter, messages: Sequence[PendingMessage]) -> None:
        _logger.info(
            "producer.moved",
            topic=self._topic,
            segment=partition.segment.info.descriptor,
            bucket=partition.bucket,
            messages=len(messages),
            pause_ms=round(1000 * (self._now() - partition.leaving_since), 1),
        )

    async def _resolve(self, partition: KafkaPartitionWriter) -> None:
        try:
            refused = len(partition.refused)
            sent_by = partition.sent_by(self._now(), self._settings.delivery_timeout_s)
            left_s = max(0.0, partition.refused[0].since - sent_by)
            found = await settlement.found(
                partition, self.router.layout, self._kafka, left_s, self.changed
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the bucket must go on
            if not isinstance(error, ClientError):
                self._task_failed(error)
            self.sender.unresolved(partition, str(error) or repr(error))
        else:
            _logger.info(
                "producer.resolved",
                topic=self._topic,
                segment=partition.segment.info.descriptor,
                bucket=partition.bucket,
                found=len(found),
                refused=refused,
            )
            self.sender.resolved(partition, found)
        self._advance()
        self._finish()

    # --- what goes on while something is under way ----------------------------------------

    def arm(self) -> None:
        """Asks for reports soon; they are asked for as long as something is under way."""
        if self.timer is None:
            self.timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self.timer = None
        try:
            self.poll()
        finally:  # whatever goes wrong with one message, others wait for their reports
            if self.under_way.count > 0:
                self.arm()

    def _idle(self) -> None:
        """Now and then, also while nothing is under way."""
        self._idle_timer = self._loop.call_later(_IDLE_S, self._idle)
        self.writers.poll_spares()
        self.poll()

    def poll(self) -> None:
        """Takes the reports that are there, and does what they lead to."""
        self._take_reports()
        self._advance()
        now = self._now()
        if self._upkeep.ending:
            self._upkeep.go_on(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._upkeep.look(now)
            self._missing.look(now)
        self._finish()

    def _take_reports(self) -> None:
        """Nothing is sent meanwhile: so what is not under way any more is stored, or given up."""
        under_way, given_up = self.under_way, self._given_up
        for writer in self.writers:
            before = under_way.count
            count, size = before + given_up.count, under_way.bytes + given_up.bytes
            writer.poll(0)
            if under_way.count != before:
                self._traffic.wrote(
                    next(iter(writer.partitions)).segment.segment_id,  # the same of all of them
                    count - under_way.count - given_up.count,
                    size - under_way.bytes - given_up.bytes,
                )

    def _advance(self) -> None:
        leaving = len(self.router.leaving)
        self.sender.advance()
        if len(self.router.leaving) < leaving:
            self._retire()

    def _retire(self) -> None:
        used = (partition.segment_writer for partition in self.router.writers())
        self.writers.retire(self.router.layout, used)

    def _finish(self) -> None:
        self.callbacks.tell()
        self.changed.set()

    async def flush(self, timeout_s: float) -> None:
        """Returns once everything sent so far is settled. Raises DeadlineError."""
        with self.sender.barrier() as barrier:
            try:
                async with asyncio.timeout(timeout_s):
                    while barrier.left:
                        self.changed.clear()
                        await self.changed.wait()
            except TimeoutError:
                left = f"{barrier.left} messages to {self._topic} are still under way"
                raise DeadlineError(f"{left} after {timeout_s:g} s; wait for them again") from None

    async def close(self) -> None:
        """Gives up what is under way, tells whoever waits for it, and ends the writers."""
        for timer in (self.timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        for writer in self.writers:
            writer.give_up("the producer was closed")
        try:
            await self._tasks.cancel()
            await self._take_last_reports()
        finally:
            self._end()

    async def drop(self, patience_s: float) -> None:
        """Ends the writers where the event loop is over; what they have is sent, or given up."""
        for writer in self.writers:
            for partition in writer.partitions:
                partition.cut_off()
        self.awaited.clear()
        ends = [asyncio.to_thread(end.join) for end in self.writers.close(patience_s)]
        await asyncio.gather(*ends)

    async def _take_last_reports(self) -> None:
        # What was under way is reported by librdkafka's threads, soon after it was given up.
        until = self._loop.time() + _LAST_REPORTS_S
        while any(writer.outstanding for writer in self.writers) and self._loop.time() < until:
            self._take_reports()
            self._finish()
            await asyncio.sleep(_TICK_S)

    def _end(self) -> None:
        """Fails all that is left. From now on no report reaches us: it would be on a thread."""
        for writer in self.writers:
            for partition in writer.partitions:
                partition.cut_off()
        unreported = list(self.awaited)
        self.awaited.clear()
        for report in unreported:
            error = KafkaError(KafkaError._PURGE_INFLIGHT)
            writer = report.partition.segment_writer
            why = delivery_error(error, report.partition.where, writer.given_up, writer.trouble)
            self.sender.fail(report.message, why)
        self.sender.close()
        self.under_way.count = self.under_way.bytes = 0  # nobody waits for the others
        self._finish()
        self.writers.close()

    def _task_failed(self, error: BaseException) -> None:
        _logger.error("producer.fault", topic=self._topic, exc_info=error)
