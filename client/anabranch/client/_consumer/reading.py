"""`Reading`: what a consumer reads from Kafka, kept equal to what `ConsumerCore` says."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from anabranch.client._aio import Tasks
from anabranch.client._consumer.assignment import Fetch, Holding
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.messages import Batch, Source
from anabranch.client._consumer.reads import Missing, Read, ReadTrouble
from anabranch.client._consumer.resources import ConsumerResources, Offsets, Plane
from anabranch.client._kafka_options import in_group, partition_of
from anabranch.client._settings import ConsumerSettings
from anabranch.client._topics.layout import TopicLayout
from anabranch.client._topics.traffic import Taken
from anabranch.client._topics.watch import LayoutWatch

LOOK_S: Final = 2.0  # how often is asked whether Kafka removed what a sealed bucket lacks
_RETRY_S: Final = 0.2
_MISSING_S: Final = 30.0  # no topic takes so long to be known to all brokers

Positions = Callable[[Offsets, list[Fetch]], Awaitable[dict[int, int]]]


class Reading:
    """Starts and stops fetches. `positions` finds out where to start; it may raise KafkaException.

    `on_read` is called when there is something to take, `on_change` when the core knows more, or
    `trouble` has a failure. `skips_gone` as in `DataPlane`, `on_taken` as in `Taken`.
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
        skips_gone: bool,
        on_taken: Callable[[int, int, int], None],
    ) -> None:
        self._taken = Taken(on_taken)
        self.plane: Plane | None = None
        self.offsets: Offsets | None = None
        self.trouble = ReadTrouble(on_change)
        self._skips_gone = skips_gone
        self._missing = Missing(_MISSING_S)
        self._core = core
        self._positions = positions
        self._settings = settings
        self._watch = watch
        self._kafka = kafka
        self._tasks = tasks
        self._resources = resources
        self._on_read = on_read
        self._on_change = on_change
        self._group_id = ""
        self._started: set[int] = set()  # fetches that are started or being started
        self._sources: dict[int, Source] = {}  # of those that are started
        self._look_at: dict[int, float] = {}
        self._former: list[asyncio.Task[None]] = []  # clients of former groups that are closing

    def reconcile(self, now: float) -> None:
        """Reads what is to be read, and nothing else."""
        plane = self._made_plane()
        if plane is None:
            return
        fetches = self._core.fetches
        for number in [n for n in self._started if n not in fetches]:
            self._started.discard(number)
            self._look_at.pop(number, None)
            if self._sources.pop(number, None) is not None:
                self._taken.ended(number)
                plane.stop(number)
        new = [h.fetch for n, h in fetches.items() if n not in self._started and h.fetch]
        if new:
            self._started.update(fetch.number for fetch in new)
            self._tasks.spawn(self._begin(plane, new))
        if self.offsets is not None:
            self._look_for_removed(self.offsets, now)

    def look_at(self, now: float) -> float:
        """When `reconcile` has something to look at that nothing else tells of."""
        fetches = self._core.fetches.values()
        return now + LOOK_S if any(h.end_offset is not None for h in fetches) else math.inf

    def take(self) -> Batch | None:
        """The next batch, once all of the one before was delivered.

        Of what is not read any more there is nothing in it.
        """
        read = self._next_read()
        if read is None:
            return None
        self._taken.took(read.ends, len(read.messages), read.size_bytes)
        sources = {
            partition: self._sources[number]
            for partition, number in read.fetches.items()
            if number in self._sources
        }
        if all(number in self._sources for number in read.ends):
            return Batch(read.messages, sources, read.ends)
        kept = [m for m in read.messages if partition_of(m) in sources]
        return Batch(kept, sources, {n: e for n, e in read.ends.items() if n in self._sources})

    def _next_read(self) -> Read | None:
        """The next one that has messages."""
        while self.plane is not None and (read := self.plane.take()) is not None:
            if not read.reached:
                return read
            for number, offset in read.reached.items():
                self._core.on_reached(number, offset)
            self._on_change()
        return None

    def warm(self, layout: TopicLayout) -> None:
        """Children are granted as soon as their parents are drained: know their Kafka topics."""
        if self.plane is not None and layout.sealing:
            topics = [part.kafka_topic for part in layout.children]
            self._tasks.spawn(self._warm_topics(self.plane, topics))

    async def close(self) -> None:
        """Ends all reading; once the tasks are cancelled."""
        await asyncio.gather(_closed(self.plane, self.offsets), *self._former)

    def _made_plane(self) -> Plane | None:
        assignment = self._core.assignment
        if assignment is None:
            return None
        if self.plane is not None and assignment.group_id != self._group_id:
            self._leave_group()
        if self.plane is None:
            self._group_id = assignment.group_id
            kafka = in_group(self._kafka, assignment, self._watch.layout)
            self.offsets = self._resources.offsets(kafka, assignment.session_timeout_s)
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
        """The subscription was put elsewhere, or made again: it has another group now.

        The core has let go of everything; what the former group is told any more counts nowhere.
        """
        former, self.plane, self.offsets = (self.plane, self.offsets), None, None
        self._started.clear()
        for number in self._sources:
            self._taken.ended(number)
        self._sources.clear()
        self._look_at.clear()
        self._former.append(asyncio.create_task(_closed(*former), name="former group"))
        self._former = [task for task in self._former if not task.done()]

    async def _begin(self, plane: Plane, fetches: list[Fetch]) -> None:
        """Finds out where to start, and starts."""
        while fetches := [f for f in fetches if f.number in self._core.fetches]:
            try:
                await self._warm_all(plane, {fetch.kafka_topic for fetch in fetches})
                fresh = [fetch for fetch in fetches if fetch.start is None]
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
            for fetch in fetches:
                self._start(plane, fetch, found.get(fetch.number, fetch.start))
            self._on_change()
            return

    async def _warm_all(self, plane: Plane, topics: set[str]) -> None:
        """Raises KafkaException, for one of a topic that is not there."""
        for topic in sorted(topics):
            try:
                await plane.warm([topic])
            except KafkaException as error:
                unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if unknown and self._missing.missed(topic, time.monotonic()):
                    self.trouble.fail(
                        f"Kafka has had no topic {topic}, a segment of {self._watch.topic}, for "
                        f"{_MISSING_S:g} s"
                    )
                raise
            self._missing.found(topic)

    def _start(self, plane: Plane, fetch: Fetch, start: int | None) -> None:
        holding = self._core.fetches.get(fetch.number)
        if holding is None or start is None:
            return
        self._sources[fetch.number] = Source(
            self._watch.topic, fetch.number, holding, self._settings
        )
        self._taken.began(fetch.number, fetch.place.segment_id, start)
        self._core.on_position(fetch.number, start)
        plane.start(fetch, start)

    def _look_for_removed(self, offsets: Offsets, now: float) -> None:
        """Asks what Kafka's retention left of sealed buckets on which nothing happens."""
        for number, holding in self._core.fetches.items():
            if number not in self._sources or holding.end_offset is None or holding.drained:
                continue
            if holding.in_flight or now < self._look_at.get(number, 0.0):
                continue
            self._look_at[number] = now + LOOK_S
            self._tasks.spawn(self._find_removed(offsets, number, holding))

    async def _find_removed(self, offsets: Offsets, number: int, holding: Holding) -> None:
        with contextlib.suppress(KafkaException):  # it is asked again
            first, _ = (await offsets.ranges([holding.partition]))[holding.partition]
            self._core.on_reached(number, first)
            self._on_change()

    async def _warm_topics(self, plane: Plane, topics: list[str]) -> None:
        with contextlib.suppress(KafkaException):  # it is only a help
            await plane.warm(topics)


async def _closed(plane: Plane | None, offsets: Offsets | None) -> None:
    if offsets is not None:
        await asyncio.to_thread(offsets.close)
    if plane is not None:
        await plane.close()
