"""`Dispatcher`: a producer's messages between its buffer and Kafka; see `flows` for the rules.

Everything happens on the event loop. librdkafka has threads of its own for the network, so asking
it for reports (`poll(0)`) never waits; it is asked every millisecond while something is under way.
A polling thread was tried and dropped: librdkafka's binding takes the interpreter's lock for each
single report, which a busy event loop hands over every 5 ms only.

Reports are taken inside `poll`, where nothing may be sent (confluent-kafka-python#457); what they
lead to is done after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from anabranch.client import settlement
from anabranch.client.barriers import Barriers
from anabranch.client.delivery_errors import delivery_error, no_room, not_settled
from anabranch.client.errors import (
    ClientError,
    DeadlineError,
    DeliveryError,
    TopicNotFoundError,
)
from anabranch.client.flows import FlowTable, Held, Step
from anabranch.client.messages import DeliveryResult
from anabranch.client.outcomes import Outcomes
from anabranch.client.reports import Report
from anabranch.client.segment_writer import Lane, SegmentWriter, Tally
from anabranch.client.settings import ProducerSettings
from anabranch.client.tasks import Tasks
from anabranch.client.topic_layout import Segment, TopicLayout
from anabranch.client.traffic import TopicTraffic
from anabranch.client.upkeep import LOOK_S, Upkeep
from anabranch.client.writer_pool import WriterPool
from anabranch.client.written import Written
from anabranch.wire import clock
from anabranch.wire.log import get_logger

_TICK_S: Final = 0.001
_IDLE_S: Final = 0.5
_LAST_REPORTS_S: Final = 2.0  # for what is given up at the end; it takes milliseconds
_log = get_logger(__name__)


class Dispatcher:
    """Appends each message where the newest layout wants it, once, and says what became of it."""

    def __init__(
        self,
        layout: TopicLayout,
        settings: ProducerSettings,
        kafka: Mapping[str, Any],
        now: Callable[[], float] = clock.now,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.tally = Tally()
        self._written = Written(self.tally, traffic or TopicTraffic())
        self.table: FlowTable[Lane] = FlowTable(layout, self._make_lane)
        self.awaited: set[Report] = set()
        self.changed = asyncio.Event()  # set whenever something was settled
        self.timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._settings = settings
        self._kafka = kafka
        self._topic = f"topic://{layout.topic}"
        self._tasks = Tasks(self._task_failed)
        self.writers = WriterPool(settings, kafka, self._tasks.spawn, self._ready, now)
        self.outcomes = Outcomes(self._topic)
        self._barriers = Barriers()
        self._opening: list[Lane] = []  # whose first append is under way
        self._loop = asyncio.get_running_loop()
        self._now = now
        self._look_at = now() + LOOK_S
        patience_s = settings.delivery_timeout_s
        self._upkeep = Upkeep(self.table, self.writers, patience_s, self.fail, self._send_on)

    # --- layouts ------------------------------------------------------------------------

    async def start(self) -> None:
        """Gets ready to append to the active segments."""
        self._idle_timer = self._loop.call_later(_IDLE_S, self._idle)
        await self.writers.start(self.table.layout)

    def update(self, layout: TopicLayout) -> None:
        """Takes a newer layout; the listener of a watch."""
        began = self._now()
        for lane in self.table.update(layout):
            lane.leaving_since = began
        if layout.deleted:
            self.table.routes.clear()
            for writer in self.writers:
                writer.give_up("the topic was deleted")
        else:
            self.writers.update(layout)
        self._advance()
        self.writers.retire(layout, (lane.writer for lane in self.table.flows()))
        self._finish()

    def _make_lane(self, incarnation: int, part: Segment, bucket: int) -> Lane:
        writer = self.writers.of(self.table.layout, incarnation, part, bucket)
        lane = Lane(incarnation, part, bucket, self._topic, writer, self.tally, self._troubled)
        if writer.readying and not writer.is_ready:
            lane.pause()  # until `_ready`
        return lane

    def _ready(self, writer: SegmentWriter) -> None:
        """Takes note that a new segment's leaders lead."""
        for lane in writer.lanes:
            if writer not in self._upkeep.ending:
                lane.resume()
                self._append_held(lane)
        self._finish()

    # --- messages -----------------------------------------------------------------------

    def take(self, held: Held) -> None:
        """Appends a new message, or holds it while its bucket is moving.

        Raises DeliveryError when there is nothing to append it by.
        """
        lane = self.table.route(held.key)
        self.tally.count += 1
        self.tally.bytes += len(held.value or b"")
        held.since = self._now()
        self._append(held, lane)
        self.arm()

    def arm(self) -> None:
        """Asks for reports soon; they are asked for as long as something is under way."""
        if self.timer is None:
            self.timer = self._loop.call_later(_TICK_S, self._tick)

    def delivered(self, lane: Lane, held: Held, offset: int, timestamp_ms: int) -> None:
        """Kafka has the message."""
        self.tally.count -= 1
        self.tally.bytes -= len(held.value or b"")
        if held.on_delivery is not None:
            segment_id = lane.segment.segment_id
            result = DeliveryResult(self._topic, segment_id, lane.bucket, offset, timestamp_ms)
            self.outcomes.delivered(held, result)

    def fail(self, held: Held, error: Exception) -> None:
        """The message is given up."""
        self._barriers.settled(held)
        size = len(held.value or b"")
        self.tally.count -= 1
        self.tally.bytes -= size
        self._written.gave_up(size)
        self.outcomes.failed(held, error)

    def _append(self, held: Held, lane: Lane) -> None:
        if not lane.may_append:
            lane.held.append(held)
            return
        if not lane.proven:
            self._opening.append(lane)
        plain = lane.proven and held.on_delivery is None and not held.headers
        report: Any = lane.report if plain else Report(self, lane, held)
        headers = [*(lane.headers or ()), *held.headers] if held.headers else lane.headers
        try:
            lane.produce(
                lane.topic,
                held.value,
                held.key,
                lane.bucket,
                report,
                None,
                held.timestamp_ms,
                headers,
            )
        except KafkaException as error:
            self.awaited.discard(report)
            if lane.writer.broke(error.args[0]):
                lane.held.append(held)
            else:
                self.fail(held, delivery_error(error.args[0], lane.where, "", ""))
        except BufferError:
            self.awaited.discard(report)
            self.fail(held, no_room(lane.where))
        else:
            lane.sent()
            lane.mark(held.since)
            self._barriers.appended(held, lane)

    def _send_on(self, messages: list[Held]) -> None:
        for held in messages:
            try:
                lane = self.table.route(held.key)
            except DeliveryError as error:
                self.fail(held, error)
            else:
                self._append(held, lane)

    def _troubled(self, lane: Lane, error: KafkaError, held: Held, message: Message) -> None:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            now = self._now()
            held.since = held.since or now - (message.latency() or 0.0)
            lane.was_refused(held, lane.is_doubtful(message))
            self._barriers.refused(held, lane)
            if lane.open:
                lane.leaving_since = now
                self.table.close(lane)
            return
        lane.failed()
        lane.writer.broke(error)
        if self.table.layout.deleted:
            self.fail(held, self.gone())
        else:
            writer = lane.writer
            self.fail(held, delivery_error(error, lane.where, writer.given_up, writer.trouble))

    # --- what goes on while something is under way ----------------------------------------

    def _tick(self) -> None:
        self.timer = None
        self.poll()
        if self.tally.count > 0:
            self.arm()

    def _idle(self) -> None:
        """Now and then, also while nothing is under way."""
        self.writers.poll_spares()
        self.poll()
        self._idle_timer = self._loop.call_later(_IDLE_S, self._idle)

    def poll(self) -> None:
        """Takes the reports that are there, and does what they lead to."""
        for writer in self.writers:
            self._written.poll(writer)
        if self._opening:
            self._open_up()
        if self.table.leaving:
            self._advance()
        now = self._now()
        if self._upkeep.ending:
            self._upkeep.go_on(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._upkeep.look(now)
        self._finish()

    def _open_up(self) -> None:
        """Appends what was held for the first append of a flow, once that is settled."""
        opening, self._opening = self._opening, []
        for lane in opening:
            if lane.outstanding and not lane.proven:
                self._opening.append(lane)
            else:
                self._append_held(lane)

    def _append_held(self, lane: Lane) -> None:
        if lane.open:
            messages = list(lane.held)
            lane.held.clear()
            for held in messages:
                self._append(held, lane)

    def _finish(self) -> None:
        self.outcomes.tell()
        self.changed.set()

    def _advance(self) -> None:
        layout, leaving = self.table.layout, len(self.table.leaving)
        for lane in list(self.table.leaving):
            match lane.step(layout):
                case Step.MOVE if layout.deleted:
                    self._fail_all(self.table.leave(lane), self.gone())
                case Step.MOVE:
                    self._move(lane)
                case Step.RESOLVE:
                    lane.resolving = True
                    self._tasks.spawn(self._resolve(lane))
                case Step.GIVE_UP:
                    self._fail_all(lane.fail_refused(), not_settled(lane.where, "is gone"))
                    if layout.deleted:
                        self._fail_all(self.table.leave(lane), self.gone())
                    else:
                        self._move(lane)
        if len(self.table.leaving) < leaving:
            self.writers.retire(layout, (lane.writer for lane in self.table.flows()))

    def _move(self, lane: Lane) -> None:
        messages = self.table.leave(lane)
        _log.info(
            "producer.moved",
            topic=self._topic,
            segment=lane.segment.info.descriptor,
            bucket=lane.bucket,
            messages=len(messages),
            pause_ms=round(1000 * (self._now() - lane.leaving_since), 1),
        )
        self._send_on(messages)

    async def _resolve(self, lane: Lane) -> None:
        """Asks Kafka what the sealed partition holds of what is in doubt."""
        try:
            waited_s = self._now() - lane.refused[0].since
            left_s = max(0.0, self._settings.delivery_timeout_s - waited_s)
            found = await settlement.found(
                lane, self.table.layout, self._kafka, left_s, self.changed
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the bucket must go on
            if not isinstance(error, ClientError):
                self._task_failed(error)
            self._fail_all(lane.fail_refused(), not_settled(lane.where, f"not known: {error}"))
        else:
            there = lane.resolved(len(found))
            _log.info(
                "producer.resolved",
                topic=self._topic,
                segment=lane.segment.info.descriptor,
                bucket=lane.bucket,
                found=len(there),
                refused=len(there) + len(lane.refused),
            )
            for held, (offset, timestamp_ms) in zip(there, found, strict=True):
                self._barriers.settled(held)
                self.delivered(lane, held, offset, timestamp_ms)
            self._written.found(lane, there)
        self._advance()
        self._finish()

    def _fail_all(self, messages: list[Held], error: Exception) -> None:
        for held in messages:
            self.fail(held, error)

    def gone(self) -> TopicNotFoundError:
        """What happens to messages of a topic that was deleted."""
        return TopicNotFoundError(f"{self._topic} was deleted")

    async def flush(self, timeout_s: float) -> None:
        """Returns once everything sent so far is settled. Raises DeadlineError."""
        with self._barriers.opened(self.table.flows()) as barrier:
            try:
                async with asyncio.timeout(timeout_s):
                    while barrier.left:
                        self.changed.clear()
                        await self.changed.wait()
            except TimeoutError:
                left = f"{barrier.left} messages to {self._topic} are still under way"
                raise DeadlineError(f"{left} after {timeout_s:g} s") from None

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

    async def _take_last_reports(self) -> None:
        # What was under way is reported by librdkafka's threads, soon after it was given up.
        until = self._loop.time() + _LAST_REPORTS_S
        while any(writer.outstanding for writer in self.writers) and self._loop.time() < until:
            for writer in self.writers:
                self._written.poll(writer)
            self._finish()
            await asyncio.sleep(_TICK_S)

    def _end(self) -> None:
        """Fails all that is left. From now on no report reaches us: it would be on a thread."""
        for writer in self.writers:
            for lane in writer.lanes:
                lane.cut_off()
        unreported = list(self.awaited)
        self.awaited.clear()
        for report in unreported:
            error = KafkaError(KafkaError._PURGE_INFLIGHT)
            writer = report.lane.writer
            why = delivery_error(error, report.lane.where, writer.given_up, writer.trouble)
            self.fail(report.held, why)
        closed = DeliveryError(f"a message to {self._topic} was not sent: the producer was closed")
        for lane in list(self.table.leaving):
            self._fail_all(lane.fail_refused(), not_settled(lane.where, "was not read yet"))
            self._fail_all(self.table.leave(lane), closed)
        for lane in self.table.flows():
            self._fail_all(self.table.renew(lane), closed)
        self.tally.count = self.tally.bytes = 0  # nobody waits for the others
        self._finish()
        self.writers.close()

    def _task_failed(self, error: BaseException) -> None:
        _log.error("producer.fault", topic=self._topic, exc_info=error)
