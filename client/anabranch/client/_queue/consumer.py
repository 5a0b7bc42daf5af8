"""`QueueConsumer`: unordered, every message acknowledged by itself; a Kafka share group.

The consumers of a queue subscription share all its segments, including sealed ones until they are
drained. Kafka gives each message to one of them, without the controller. The session with the
controller creates the subscription and keeps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, TypeGuard, Unpack

from confluent_kafka import KafkaException

from anabranch.client._aio import on_thread
from anabranch.client._consumer.assignment import SegmentBucket
from anabranch.client._consumer.consumer import Consumer, Membership
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.dead_letters import DeadLetterReason, Produce
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.messages import Source
from anabranch.client._consumer.reads import partition_of
from anabranch.client._consumer.running import RunsHandlers
from anabranch.client._errors import DeadlineError, KafkaReadError, SubscriptionError
from anabranch.client._queue.dead_letters import DeadLetterProducer, goes_aside, limit_of
from anabranch.client._queue.messages import (
    ACCEPT,
    DELAY,
    REJECT,
    RELEASE,
    Delivery,
    QueueBatch,
    QueueMessage,
)
from anabranch.client._queue.pace import Pace
from anabranch.client._queue.run import Jobs, QueueRun, QueueRunOptions, QueueRunSettings
from anabranch.client._queue.share_group import Delivering, ShareGroup
from anabranch.client._queue.share_reader import ShareReader, ShareReaders
from anabranch.client._queue.strays import without_strays
from anabranch.client._settings import QueueSettings
from anabranch.client._stream.handler_threads import as_async
from anabranch.client._stream.work import Work
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.entities.subscription import DELIVERIES
from anabranch.core.errors import InvalidInputError
from anabranch.wire.anabranch_pb2 import ScalableConsumerType

_TICK_S: Final = 1.0

_Sources = dict[str, tuple[int, dict[int, Source]]]  # Kafka topic to segment id, and by partition


class QueueConsumer(Consumer[QueueMessage], RunsHandlers[QueueMessage]):
    """One consumer of a queue subscription. `Client` makes it, and it is used on the client's event
    loop.

    Settle each message once: `acknowledge` it, `release` it for redelivery (to any consumer), or
    `reject` it for good. A message that is not settled within 0.8 of the group's lock is released.

    A message that was delivered too often, or is rejected, goes to the subscription's dead letters.
    Without dead letters Kafka discards it, after 10 deliveries by default.
    """

    _kind = ScalableConsumerType.QUEUE
    _run: QueueRun | None = None

    def __init__(self, membership: Membership, settings: QueueSettings, produce: Produce) -> None:
        super().__init__(membership, ConsumerCore(0.0), settings.start_ms, settings.dead_letter)
        self._settings = settings
        self._pace = Pace(settings.messages_max)
        self._reader: ShareReaders | None = None
        self._group: ShareGroup | None = None  # until it is known that Kafka can serve it
        self._delivering = Delivering(math.inf)  # not known
        self._group_id = ""  # the group that it reads in, from its first assignment on
        self._sources: _Sources = {}
        self._wanted_before: frozenset[str] = frozenset()  # topics at the last taking of a delivery
        self._delivery: Delivery | None = None
        self._order: Sequence[int] = ()  # the indices in it to give out
        self._given = 0  # the number of these that were given out
        who = (self.topic, self.subscription)
        self._dead_letters = DeadLetterProducer(who, produce, lambda: self._puts_aside()[0])

    async def start(self) -> Self:
        """Subscribes.
        Raises the errors of `ConsumerSession.start` and `ShareGroup`, and InvalidInputError.
        """
        await self._subscribe(self._settings.subscribe_timeout_s)
        self._watch.listeners.append(self._layout_changed)
        self._reconcile()
        self._tasks.spawn(self._drive())
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.await_state(self._settings.subscribe_timeout_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def receive(self, timeout_s: float | None = None) -> QueueMessage:
        """Returns the next message. Raises DeadlineError after `timeout_s` seconds, ClosedError, or
        the error of a failed consumer.
        """
        self._must_not_run()
        return await self._one(timeout_s)

    async def _one(self, timeout_s: float | None = None) -> QueueMessage:
        delivery = await self._next(timeout_s)
        self._given += 1
        return self._wrapped(self._sources, delivery, self._order[self._given - 1])

    async def receive_many(self, timeout_s: float | None = None) -> QueueBatch:
        """Returns the rest of the present delivery, at least one message.
        Raises the errors of `receive`.
        """
        self._must_not_run()
        delivery = await self._next(timeout_s)
        first, self._given = self._given, len(self._order)
        plain = self._settings.value_deserializer is None and self._settings.decrypt is None
        wrapped = functools.partial(self._wrapped, self._sources)
        return QueueBatch(delivery, self._order[first:], wrapped, plain)

    async def run(
        self,
        handler: Callable[[QueueMessage, Work], Any],
        **options: Unpack[QueueRunOptions],
    ) -> None:
        """Works on messages side by side, in no order.

        `handler(message, work)` is an async function, or a plain one, which then runs on threads.
        When it returns, the message is acknowledged. When it raises, it is released, Reject rejects
        it, and `Again` releases it after its time. `QueueRunSettings` has the options. Returns once
        the consumer is closed, or `stop` is called.

        Raises InvalidInputError, also after `receive`, and the error of a consumer that has failed.
        """
        self._home.check()
        settings = QueueRunSettings(**options)
        settings.check(handler)
        self._begins_run(self._delivery is not None)
        self._pace.needs(settings.concurrency)
        jobs = Jobs(
            next=self._one,
            acknowledge=self.acknowledge,
            release=self.release,
            reject=self.reject,
            incarnation=lambda: self._watch.layout.incarnation,
            longest_delay_s=lambda: self._delivering.hold_s,
        )
        with as_async(handler, settings.concurrency) as called:
            self._run = run = QueueRun(jobs, called, settings, self._logger)
            await run.drive()
            await self.close()

    def acknowledge(self, message: QueueMessage) -> bool:
        """Notes that the message has been processed.
        Returns False if it is too late, and the message is delivered again.
        """
        self._home.check()
        return message.delivery.acknowledge(message.index, ACCEPT)

    def acknowledge_all(self) -> bool:
        """Notes that every received and unsettled message has been processed. Returns False if it
        is too late, as `acknowledge` does.
        """
        self._home.check()
        delivery = self._delivery
        if delivery is None or not self._given:
            return True
        return delivery.acknowledge_open(self._order[self._given - 1] + 1, ACCEPT)

    def release(self, message: QueueMessage, *, delay_s: float = 0.0, error: object = None) -> bool:
        """Has a message that could not be processed now delivered again, to any consumer that is
        free.

        That happens after `delay_s` seconds, or once it was held for 0.8 of the group's lock if
        that is earlier. `error` is the reason, an exception or a text, for a later dead letter.
        Returns False if it is too late, and the message is delivered again. Raises
        InvalidInputError.
        """
        self._home.check()
        longest_s = self._delivering.hold_s
        given: Any = delay_s
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 <= delay_s <= longest_s):
            raise InvalidInputError(
                f"delay_s is 0 to {longest_s:g}, 0.8 of Kafka's share.record.lock.duration.ms of "
                f"group {self._group_id}: {delay_s!r}"
            )
        if error is not None:
            self._dead_letters.note_error(message, error)
        where, limit = self._puts_aside()
        if where and goes_aside(message.delivery_count, limit):
            return self._put(message, DeadLetterReason.DELIVERIES)
        if not delay_s:
            return message.delivery.acknowledge(message.index, RELEASE)
        due = min(time.monotonic() + delay_s, message.delivery.hold_until)
        return message.delivery.acknowledge(message.index, DELAY, due)

    def reject(self, message: QueueMessage, *, error: object = None) -> bool:
        """Rejects a message that nobody can process, so that it is never delivered again. `error`
        and the result are those of `release`.
        """
        self._home.check()
        if error is not None:
            self._dead_letters.note_error(message, error)
        where, _ = self._puts_aside()
        if where:
            return self._put(message, DeadLetterReason.REJECTED)
        return message.delivery.acknowledge(message.index, REJECT)

    @property
    def dead_letters_waiting(self) -> int:
        """The number of its messages that could not be put aside so far. It goes on trying."""
        return self._dead_letters.failing

    def _puts_aside(self) -> tuple[str, int]:
        """Returns the topic of the dead letters, "" for none, and the number of deliveries before a
        message goes there.
        """
        policy = self.dead_letter
        if policy is None:
            return "", 0
        most = policy.deliveries_max or DELIVERIES
        return policy.topic, limit_of(most, self._delivering.count_max)

    def _put(self, message: QueueMessage, reason: DeadLetterReason) -> bool:
        count_max = self._delivering.count_max
        return self._dead_letters.put(message.delivery, message.index, message, reason, count_max)

    async def _close(self) -> None:
        """Sends the answers to settled messages, releases the others, and leaves. Before that
        it cancels what runs.
        """
        if self._run is not None:
            await self._run.cancel()
        self._changed()
        self._stop_listening()
        try:
            await self._dead_letters.close()
            await self._tasks.cancel()
            if self._reader is not None:
                await self._reader.close(self._delivery)
            self._core.close(self._now())
            await self._leave()
        finally:
            self._session.stop()  # if the wait was cancelled
            await self._watch.close()

    @property
    def segments(self) -> list[int]:
        """The ids of the segments that it consumes, sorted, including those that are
        about to come.
        """
        return sorted(set(self._polled().values()))

    # Taking.

    async def _next(self, timeout_s: float | None) -> Delivery:
        """Returns the current delivery, part of which is not given out yet."""
        self._home.check()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._check()
                    if self._has_more(self._delivery):
                        return self._delivery
                    self._readable.clear()
                    found = None if self._reader is None else self._reader.take()
                    if found is not None:
                        self._begin(found)
                        continue
                    with self._reader.receiver() if self._reader else contextlib.nullcontext():
                        await self._readable.wait()
        except TimeoutError:
            last = "" if self._reader is None else self._reader.last_trouble
            raise DeadlineError(
                f"no message of {self.topic} came in {timeout_s:g} s{last}"
            ) from None

    def _has_more(self, delivery: Delivery | None) -> TypeGuard[Delivery]:
        """Returns True if a part of the delivery is not given out yet, and may be."""
        if delivery is None or delivery.is_over:
            return False
        return self._given < len(self._order)

    def _begin(self, delivery: Delivery) -> None:
        segments = self._polled()
        self._delivery, self._given = delivery, 0
        self._order = without_strays(delivery, self._core.assignment, self._logger)
        self._count(delivery, segments)
        self._forget(delivery, segments)
        where, limit = self._puts_aside()
        if not where:
            return
        counts = [message.delivery_count() or 0 for message in delivery.messages]
        if max(counts, default=0) > limit:
            for index in self._order:
                if counts[index] > limit:
                    message = self._wrapped(self._sources, delivery, index)
                    self._put(message, DeadLetterReason.DELIVERIES)
            self._order = [index for index in self._order if counts[index] <= limit]

    def _count(self, delivery: Delivery, segments: Mapping[str, int]) -> None:
        """Counts the messages for the load of the segments.
        The sizes are roughly those of the delivery.
        """
        parts = {segments[t]: count for t, count in delivery.counts.items() if t in segments}
        self._watch.traffic.shared_out(
            self.subscription, parts, sum(parts.values()), delivery.size_bytes
        )

    def _forget(self, delivery: Delivery, segments: Mapping[str, int]) -> None:
        """Drops the sources of segments that are gone. Earlier batches keep theirs.

        A delivery was polled for the segments that were wanted when the one before it was taken, or
        later.
        """
        kept = delivery.counts.keys() | segments.keys() | self._wanted_before
        self._wanted_before = frozenset(segments)
        if not self._sources.keys() <= kept:
            self._sources = {each: own for each, own in self._sources.items() if each in kept}

    def _wrapped(self, sources: _Sources, delivery: Delivery, index: int) -> QueueMessage:
        raw = delivery.messages[index]
        return QueueMessage(raw, self._source(sources, *partition_of(raw)), delivery, index)

    def _source(self, known: _Sources, topic: str, partition: int) -> Source:
        segment_id, sources = known[topic]
        if partition not in sources:
            holding = Holding(SegmentBucket(segment_id, partition), topic, None)
            sources[partition] = Source(self.topic, 0, holding, self._settings)
        return sources[partition]

    @property
    def _read_failure(self) -> BaseException | None:
        return None if self._reader is None else self._reader.failure

    # Driving.

    def _layout_changed(self, layout: TopicLayout) -> None:
        self._reconcile()  # at once: the first messages of a child are waiting for it
        if layout.deleted:
            self._changed()

    async def _drive(self) -> None:
        while True:
            self._poke.clear()
            now = self._now()
            if self._reader is not None and self._reader.failure is not None:
                raise self._reader.failure
            self._core.tick(now)
            assignment = self._core.assignment
            if self._group_id and assignment and assignment.group_id != self._group_id:
                raise SubscriptionError(
                    f"subscription {self.subscription} of {self.topic} was deleted and made again, "
                    "or put somewhere else: subscribe again with a new consumer"
                )
            self._reconcile()
            self._core.dead_letters_waiting = self._dead_letters.failing
            if self._core.report_due(now) or self._core.needs_subscribe:
                self._session.poke()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._poke.wait()

    def _reconcile(self) -> None:
        """Polls the topics that are due by now."""
        wanted = self._polled()
        for topic, segment_id in wanted.items():
            self._sources.setdefault(topic, (segment_id, {}))
        assignment = self._core.assignment
        if self._reader is None and assignment is not None:
            self._group_id = assignment.group_id
            kafka = assignment.in_group(self._kafka, self._watch.layout.bootstrap_servers)
            member = functools.partial(self._member, kafka, self._pace)
            self._reader = ShareReaders(member, self._readable.set)
        if self._reader is not None and not self._is_closing:
            self._reader.subscribe(list(wanted))

    def _polled(self) -> dict[str, int]:
        """Returns the segments to poll, by Kafka topic: all that are not drained for all, and those
        that are about to come.
        """
        assignment, layout = self._core.assignment, self._watch.layout
        given = () if assignment is None else assignment.segments
        coming = layout.children if layout.sealing else ()
        found = {each.kafka_topic: each.segment_id for each in given}
        return found | {part.kafka_topic: part.segment_id for part in (*layout.active, *coming)}

    def _member(
        self, kafka: Mapping[str, Any], pace: Pace, on_park: Callable[[], None]
    ) -> ShareReader:
        return ShareReader(
            kafka,
            self._delivering,
            pace,
            self._readable.set,
            on_park,
        )

    async def _prepare(self, timeout_s: float) -> None:
        """Asks for the duration of Kafka's lock, because both ends must go by the same time."""
        assignment, given = self._core.assignment, self._settings.lock_s
        if assignment is None:
            return
        try:
            servers = self._watch.layout.bootstrap_servers
            kafka = assignment.in_group(self._kafka, servers)
            self._group = await on_thread(ShareGroup, kafka)
            found = await self._group.delivering(timeout_s)
        except KafkaException as error:
            raise KafkaReadError(error.args[0].str()) from None
        except KafkaReadError as error:
            if given is None:
                raise
            self._logger.warning("consumer.lock_unchecked", lock_s=given, why=str(error))
            found = Delivering(given)
        if given not in (None, found.lock_s):
            raise InvalidInputError(
                f"lock_s is {given:g}, and Kafka's share.record.lock.duration.ms of group "
                f"{assignment.group_id} is {round(1_000 * found.lock_s)}: leave it out, or change "
                "that"
            )
        self._delivering = found
