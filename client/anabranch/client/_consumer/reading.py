"""`Reading`: keeps a consumer's reads from Kafka equal to the fetches of `ConsumerCore`."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from anabranch.client._aio import Tasks
from anabranch.client._consumer.assignment import Fetch, Partition
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.holding import Holding
from anabranch.client._consumer.messages import Batch, Source
from anabranch.client._consumer.reads import Read, ReadTrouble, partition_of
from anabranch.client._consumer.resources import ConsumerResources, Offsets, Plane
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.watch import LayoutWatch
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.core.subscriptions.known_positions import mark_of
from anabranch.wire.logging import get_logger
from anabranch.wire.supervised import supervised

LOOK_S: Final = 2.0  # the interval of asking why a sealed bucket does not come to its end
_WAITS_AGAIN_S: Final = 60.0  # so often is told that one waits for a transaction
_RETRY_S: Final = 0.2
_logger = get_logger(__name__)

Positions = Callable[[Offsets, list[Fetch]], Awaitable[dict[int, int]]]


class Reading:
    """Starts and stops fetches. `positions` finds the offsets to start at, and may raise
    KafkaException.

    It calls `on_read` if there is something to take. It calls `on_change` if the core has learned
    something, or if `trouble` has a failure. `is_held` is that of `Source`, `skips_gone` that of
    `DataPlane`. What is taken counts for the subscription.
    """

    def __init__(
        self,
        core: ConsumerCore,
        positions: Positions,
        settings: ConsumerSettings,
        watch: LayoutWatch,
        kafka: Mapping[str, Any],
        tasks: Tasks,
        resources: ConsumerResources,
        on_read: Callable[[], None],
        on_change: Callable[[], None],
        *,
        is_held: Callable[[Holding], bool],
        skips_gone: bool,
        subscription: str,
    ) -> None:
        self._subscription = subscription
        self.plane: Plane | None = None
        self.offsets: Offsets | None = None
        self.trouble = ReadTrouble(on_change)
        self._is_held = is_held
        self._skips_gone = skips_gone
        self._core = core
        self._positions = positions
        self._settings = settings
        self._watch = watch
        self._kafka = kafka
        self._tasks = tasks
        self._resources = resources
        self._on_read = on_read
        self._on_change = on_change
        self._begun_at = 0
        self._started: set[int] = set()  # fetches that are started or being started
        self._sources: dict[int, Source] = {}  # the sources of the started fetches
        self._look_at: dict[int, float] = {}
        self._waits = LogRateLimit(_WAITS_AGAIN_S)
        self._former: list[asyncio.Task[None]] = []  # clients of a former life that are closing

    def reconcile(self, now: float) -> None:
        """Starts and stops fetches, so that it reads exactly the core's buckets."""
        plane = self._made_plane()
        if plane is None:
            return
        fetches = self._core.fetches
        for number in [n for n in self._started if n not in fetches]:
            self._started.discard(number)
            self._look_at.pop(number, None)
            source = self._sources.pop(number, None)
            if source is not None:
                self.trouble.found(source.holding.kafka_topic)  # it may be gone for good reason
                plane.stop(number)
                if source.holding.is_cut_short:
                    self._warn("consumer.segment_lost", source.holding)
        new = [h.fetch for n, h in fetches.items() if n not in self._started and h.fetch]
        if new:
            self._started.update(fetch.number for fetch in new)
            self._tasks.spawn(self._begin(plane, new))
        if self.offsets is not None:
            self._look_for_obstacles(self.offsets, now)

    def stop(self, former: int, holding: Holding) -> None:
        """Stops to read a bucket, which has another fetch now: that begins with `resume`."""
        source = self._sources.pop(former, None)
        if source is None or holding.fetch is None or self.plane is None:
            return  # `reconcile` begins it
        self._started.discard(former)
        self._look_at.pop(former, None)
        self.plane.stop(former)
        source.number = holding.fetch.number
        self._started.add(source.number)
        self._sources[source.number] = source

    def resume(self, fetch: Fetch) -> None:
        """Begins a fetch of a bucket that has stopped."""
        if self.plane is not None and fetch.start is not None and fetch.number in self._sources:
            self.plane.start(fetch, fetch.start)

    def look_at(self, now: float) -> float:
        """Returns the time of the next look of `reconcile` that no event announces."""
        fetches = self._core.fetches.values()
        return now + LOOK_S if any(h.end_offset is not None for h in fetches) else math.inf

    def take(self) -> Batch | None:
        """Returns the next batch, once all of the one before was delivered.

        It has nothing of buckets that are not read any more.
        """
        read = self._next_read()
        if read is None:
            return None
        self._count(read)
        sources = {
            partition: self._sources[number]
            for partition, number in read.fetches.items()
            if number in self._sources
        }
        ends = {n: e for n, e in read.ends.items() if n in self._sources}
        beyond = {n: h for n in ends if ends[n] > (h := self._sources[n].holding).limit}
        if len(ends) == len(read.ends) and not beyond:
            return Batch(read.messages, sources, read.ends)
        for number, holding in beyond.items():
            _logger.warning(
                "consumer.strays",
                kafka_topic=holding.kafka_topic,
                bucket=holding.place.bucket,
                end=holding.end_offset,
                read_to=ends[number],
            )
            del ends[number]
        kept = [
            message
            for message in read.messages
            if (source := sources.get(partition_of(message))) is not None
            and (message.offset() or 0) < source.holding.limit
        ]
        # The ends of messages to acknowledge. `reached` tells that nothing follows.
        numbers = {holding.partition: number for number, holding in beyond.items()}
        for message in kept:
            cut = numbers.get(partition_of(message))
            if cut is not None:
                ends[cut] = (message.offset() or 0) + 1
        return Batch(kept, sources, ends)

    def _count(self, read: Read) -> None:
        """Counts messages by the end of each fetch's part.
        Offsets have gaps, so they only give each part's share.
        """
        grown: Counter[int] = Counter()
        for number, end in read.ends.items():
            source = self._sources.get(number)
            if source is not None:
                if end > source.counted:  # a bucket that Kafka had lost may go on further back
                    grown[source.holding.place.segment_id] += end - source.counted
                source.counted = end
        traffic = self._watch.traffic
        traffic.shared_out(self._subscription, grown, len(read.messages), read.size_bytes)

    def _next_read(self) -> Read | None:
        """Returns the next read that has messages."""
        while self.plane is not None and (read := self.plane.take()) is not None:
            if not read.reached:
                return read
            for number, offset in read.reached.items():
                self._core.on_reached(number, offset)
            self._on_change()
        return None

    def warm(self, layout: TopicLayout) -> None:
        """Asks Kafka for the topics of children, which are granted as soon as their parents are
        drained.
        """
        if self.plane is not None and layout.sealing:
            topics = [part.kafka_topic for part in layout.children]
            self._tasks.spawn(self._warm_topics(self.plane, topics))

    async def close(self) -> None:
        """Ends all reading, after the tasks are cancelled."""
        await asyncio.gather(_closed(self.plane, self.offsets), *self._former)

    def _made_plane(self) -> Plane | None:
        assignment = self._core.assignment
        if assignment is None:
            return None
        if self.plane is not None and assignment.begun_at != self._begun_at:
            self._leave_group()
        self._former = [task for task in self._former if not task.done()]
        if self._former:
            return None  # nothing of it is committed over what is committed from now on
        if self.plane is None:
            self._begun_at = assignment.begun_at
            kafka = assignment.in_group(self._kafka, self._watch.layout.bootstrap_servers)
            mark = mark_of(assignment.begun_at)
            self.offsets = self._resources.offsets(kafka, assignment.session_timeout_s, mark)
            self.plane = self._resources.plane(
                kafka,
                self._settings.read,
                self._on_read,
                self.trouble,
                skips_gone=self._skips_gone,
                partitions=len(assignment.places()),
            )
            self.warm(self._watch.layout)
        return self.plane

    def _leave_group(self) -> None:
        """Leaves the group, because the subscription was moved or created again, and commits have
        another mark now.

        The core has let go of everything. Later commits for the former one are not believed.
        """
        former, self.plane, self.offsets = (self.plane, self.offsets), None, None
        self._started.clear()
        self._sources.clear()
        self._look_at.clear()
        closing = supervised(_closed(*former), "former life")
        closing.add_done_callback(lambda _: self._on_change())
        self._former.append(closing)

    async def _begin(self, plane: Plane, fetches: list[Fetch]) -> None:
        """Finds the offsets and starts the fetches.
        A segment that Kafka lacks does not hold up the others.
        """
        pause_s = _RETRY_S
        while fetches := [f for f in fetches if f.number in self._core.fetches]:
            try:
                known = await self._known(plane, {fetch.kafka_topic for fetch in fetches})
                fresh = [f for f in fetches if f.start is None and f.kafka_topic in known]
                found = await self._positions(self.offsets, fresh) if self.offsets and fresh else {}
            except Exception as error:
                if plane is not self.plane:
                    return  # its group was left, and its clients are closed
                if not isinstance(error, KafkaException):
                    raise
                self.trouble.note(error.args[0], "to find out where to read")
                if self.trouble.failure is not None:
                    return
                await asyncio.sleep(_RETRY_S)
                continue
            starts = {f.number: f.start for f in fetches if f.kafka_topic in known} | found
            for fetch in fetches:
                if fetch.number in found:
                    self.trouble.found(fetch.kafka_topic)
                self._start(plane, fetch, starts.get(fetch.number))
            self._on_change()
            fetches = [fetch for fetch in fetches if starts.get(fetch.number) is None]
            if fetches:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_S)

    async def _known(self, plane: Plane, topics: set[str]) -> set[str]:
        """Returns the topics that Kafka has. Raises KafkaException."""
        known = set()
        for topic in sorted(topics):
            try:
                await plane.warm([topic])
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                self.trouble.missed(topic)
            else:  # no sign that Kafka has it now: it is asked once
                known.add(topic)
        return known

    def refused(self, partitions: Mapping[Partition, KafkaError], doing: str) -> None:
        """Notes that Kafka refuses these partitions only."""
        for topic, error in {topic: error for (topic, _), error in partitions.items()}.items():
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.trouble.missed(topic)
            else:
                self.trouble.note(error, doing)

    def _start(self, plane: Plane, fetch: Fetch, start: int | None) -> None:
        holding = self._core.fetches.get(fetch.number)
        if holding is None or start is None:
            return
        source = self._sources[fetch.number] = Source(
            self._watch.topic, fetch.number, holding, self._settings, self._is_held
        )
        source.counted = start
        self._core.on_position(fetch.number, start)
        plane.start(fetch, start)

    def _look_for_obstacles(self, offsets: Offsets, now: float) -> None:
        """Asks why a sealed bucket gets nothing: Kafka's retention removed it, or a transaction is
        open.
        """
        for number, holding in self._core.fetches.items():
            if number not in self._sources or holding.end_offset is None or holding.drained:
                continue
            if holding.in_flight or now < self._look_at.get(number, 0.0):
                continue
            self._look_at[number] = now + LOOK_S
            self._tasks.spawn(self._find_obstacle(offsets, number, holding, now))

    async def _find_obstacle(
        self, offsets: Offsets, number: int, holding: Holding, now: float
    ) -> None:
        with contextlib.suppress(KafkaException):  # it is asked again
            found, refused = await offsets.ranges([holding.partition])
            self.refused(refused, "to find what is left")
            for first, stable_end in found.values():
                self._core.on_reached(number, first)
                waited_s = self._core.waits_for_transaction(number, stable_end, now)
                self._tell_wait(holding, waited_s, now)
                self._on_change()

    def _tell_wait(self, holding: Holding, waited_s: float | None, now: float) -> None:
        if waited_s is not None and self._waits.due(holding.place, now):
            end, waited = holding.end_offset, round(waited_s, 1)
            self._warn("consumer.waits_for_transaction", holding, end=end, waited_s=waited)

    def _warn(self, event: str, holding: Holding, **more: object) -> None:
        """Warns about a bucket, with the position of its consumer."""
        _logger.warning(
            event,
            topic=self._watch.topic,
            segment=holding.place.segment_id,
            bucket=holding.place.bucket,
            position=holding.delivered,
            **more,
        )

    async def _warm_topics(self, plane: Plane, topics: list[str]) -> None:
        with contextlib.suppress(KafkaException):  # it is only a help
            await plane.warm(topics)


async def _closed(plane: Plane | None, offsets: Offsets | None) -> None:
    if offsets is not None:
        await asyncio.to_thread(offsets.close)
    if plane is not None:
        await plane.close()
