"""`SharedPlanes`: reads the buckets of many topics by few clients of Kafka, each topic by a `Lane`.

A client costs threads and connections, so a thousand topics cannot have one each. librdkafka names
all partitions in each fetch. So an idle plane costs their number divided by the time that a fetch
waits at the broker (`fetch.wait.max.ms`). That time is fixed when a client is made. Everything
behind a fetch on its connection waits for it, above all the first fetch of a new topic. So the
first plane has few partitions and short waits, and each further one has many and long ones: each
plane names 20,000 partitions a second at most.

Reads wait in their lane, and all lanes together have a bound. A lane with more than its share is
paused in Kafka's client, so that a topic with a backlog delays others by no more than that.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import Message, TopicPartition

from anabranch.client._aio import call_on
from anabranch.client._consumer.assignment import Fetch, Partition
from anabranch.client._consumer.data_plane import DataPlane
from anabranch.client._consumer.reads import Read, ReadTrouble, partition_of, size_of
from anabranch.client._settings import ReadSettings

FIRST_PARTITIONS_MAX: Final = 200
PARTITIONS_MAX: Final = 2_000  # of each further plane
_A_SECOND: Final = 20  # thousand partitions that a plane names
_PLANES: Final = 4  # the assumed planes of a consumer: each has an equal part of the read-ahead
_SHARE: Final = 16  # a lane may hold this part of what its plane may


class Lane:
    """The reads of one topic on a plane, with the interface of `DataPlane`."""

    def __init__(
        self,
        plane: SharedPlane,
        on_read: Callable[[], None],
        trouble: ReadTrouble,
        expected: int,
    ) -> None:
        self.plane = plane
        self.trouble = trouble
        self.on_read = on_read
        self.expected = expected  # partitions
        self.reads: collections.deque[Read] = collections.deque()
        self.size_bytes = 0
        self.weight = 0
        self.waiting_max: int = plane.waiting_max
        self.told = False
        self.paused = False  # the polling thread's own
        self.partitions: dict[int, Partition] = {}  # by fetch number

    def start(self, fetch: Fetch, offset: int) -> None:
        """Starts to read a bucket from an offset on."""
        self.partitions[fetch.number] = fetch.partition
        self.plane.owners[fetch.number] = self
        self.plane.by_topic[fetch.kafka_topic] = self
        self.plane.start(fetch, offset)

    def stop(self, number: int) -> None:
        """Stops to read a bucket. Its earlier reads may still be taken."""
        partition = self.partitions.pop(number, None)
        if partition is not None:
            self.plane.stop(number)
            if all(each[0] != partition[0] for each in self.partitions.values()):
                self.plane.by_topic.pop(partition[0], None)

    def take(self) -> Read | None:
        """Returns the next read.
        None means that there is nothing, and that `on_read` will be called.
        """
        return self.plane.take_of(self)

    async def warm(self, topics: Iterable[str]) -> None:
        """Has librdkafka ask for the topics' metadata, unless its fetches wait for long."""
        if self.plane.warms:
            await self.plane.warm(topics)

    async def close(self) -> None:
        """Ends all reading. It drops reads that were not taken."""
        for number in list(self.partitions):
            self.stop(number)
        self.plane.drop(self)


class SharedPlane(DataPlane):
    """A plane of many lanes. Fetches of all lanes have numbers of one count."""

    def __init__(
        self,
        kafka: Mapping[str, Any],
        settings: ReadSettings,
        partitions_max: int,
    ) -> None:
        self.partitions_max = partitions_max
        self.warms = partitions_max == FIRST_PARTITIONS_MAX
        self.owners: dict[int, Lane] = {}  # by fetch number
        self.by_topic: dict[str, Lane] = {}  # by Kafka's name
        self.lanes: set[Lane] = set()
        self._resumed: collections.deque[Lane] = collections.deque()
        self._over_share: dict[Lane, None] = {}  # of the polling thread
        trouble = ReadTrouble(self._all_fail)
        settings = msgspec.structs.replace(settings, fetch_wait_ms=partitions_max // _A_SECOND)
        super().__init__(kafka, settings, _nothing, trouble)

    # On the event loop.

    @property
    def is_over(self) -> bool:
        """True if it can read nothing any more."""
        return self._over or self._trouble.failure is not None

    def has_room(self, partitions: int) -> bool:
        """Returns True if one more topic with so many partitions may have a lane of it."""
        return sum(each.expected for each in self.lanes) + partitions <= self.partitions_max

    def lane(self, on_read: Callable[[], None], trouble: ReadTrouble, partitions: int) -> Lane:
        """Returns a new lane of it."""
        made = Lane(self, on_read, trouble, partitions)
        self.lanes.add(made)
        return made

    def stop(self, number: int) -> None:
        super().stop(number)
        self.owners.pop(number, None)

    def take_of(self, lane: Lane) -> Read | None:
        """Returns the next read of a lane.
        None means that there is nothing, and that the lane will be told.
        """
        with self._lock:
            if not lane.reads:
                lane.told = False
                return None
            read = lane.reads.popleft()
            full = self._is_full()
            self._count(lane, -read.weight, -read.size_bytes)
            resumes = lane.paused and not self._is_over_share(lane, 2)
        if resumes:
            self._resumed.append(lane)
        if resumes or full:
            self._wake.set()
        return read

    def drop(self, lane: Lane) -> None:
        """Drops the lane, because it is closed."""
        with self._lock:
            self._count(lane, -lane.weight, -lane.size_bytes)
            lane.reads.clear()
            self.lanes.discard(lane)
        self._wake.set()

    def _count(self, lane: Lane, weight: int, size_bytes: int) -> None:
        self._buffered += weight
        self._buffered_bytes += size_bytes
        lane.weight += weight
        lane.size_bytes += size_bytes

    def _all_fail(self) -> None:
        for lane in list(self.lanes):
            lane.trouble.fail(str(self._trouble.failure))

    # On the thread.

    def _is_over_share(self, lane: Lane, divisor: int = 1) -> bool:
        share = _SHARE * divisor
        return lane.size_bytes >= self._settings.quarter_bytes // share or lane.weight >= min(
            lane.waiting_max, self.waiting_max // share
        )

    def _obey(self) -> None:
        super()._obey()
        while self._over_share:
            lane, _ = self._over_share.popitem()
            with self._lock:
                lane.paused = pauses = self._is_over_share(lane, 2)
            if pauses:
                self._consumer.pause(self._assigned(lane))
        while self._resumed:
            lane = self._resumed.popleft()
            if lane.paused:
                lane.paused = False
                self._consumer.resume(self._assigned(lane))

    def _new_table(self) -> dict[Partition, int]:
        """Returns the same table, because a lane's batch names only its own partitions."""
        return self._numbers

    def _assigned(self, lane: Lane) -> list[TopicPartition]:
        """Returns the lane's partitions that are read. Any other one would be an error of all."""
        places = list(lane.partitions.items())
        return [TopicPartition(*p) for n, p in places if self._numbers.get(p) == n]

    def _trouble_of(self, kafka_topic: str) -> ReadTrouble:
        lane = self.by_topic.get(kafka_topic)
        return self._trouble if lane is None else lane.trouble

    def _queue_messages(self, messages: list[Message]) -> None:
        parts: dict[Partition, list[Message]] = {}
        for message in messages:
            parts.setdefault(partition_of(message), []).append(message)
        self._turn += 1
        for partition, part in parts.items():
            number = self._numbers.get(partition)
            if number is not None:
                end = self._position[partition] = (part[-1].offset() or 0) + 1
                size = size_of(part, self._turn)
                self._queue(Read(part, {number: end}, {partition: number}, size))

    def _queue(self, read: Read) -> None:
        lane = self.owners.get(next(iter(read.ends or read.reached)))
        if lane is None:
            return  # it was stopped meanwhile
        lane.trouble.well()
        with self._lock:
            if lane not in self.lanes:
                return
            lane.reads.append(read)
            self._count(lane, read.weight, read.size_bytes)
            tell, lane.told = not lane.told, True
            if not lane.paused and self._is_over_share(lane):
                self._over_share[lane] = None
        if tell:
            call_on(self._loop, lane.on_read)


class SharedPlanes:
    """The planes of one consumer over many topics, on one event loop.

    A plane that has failed takes no lane any more, and is closed with the others.
    """

    def __init__(self) -> None:
        self._planes: list[SharedPlane] = []

    def lane(
        self,
        kafka: Mapping[str, Any],
        settings: ReadSettings,
        on_read: Callable[[], None],
        trouble: ReadTrouble,
        partitions: int,
    ) -> Lane:
        """Returns a lane of the first plane with room for so many partitions."""
        for plane in self._planes:
            if not plane.is_over and plane.has_room(partitions):
                return plane.lane(on_read, trouble, partitions)
        most = PARTITIONS_MAX if self._planes else FIRST_PARTITIONS_MAX
        part = msgspec.structs.replace(settings, bytes_max=max(1, settings.bytes_max // _PLANES))
        plane = SharedPlane(kafka, part, most)
        self._planes.append(plane)
        return plane.lane(on_read, trouble, partitions)

    async def close(self) -> None:
        """Ends all threads and clients."""
        planes, self._planes = self._planes, []
        await asyncio.gather(*(plane.close() for plane in planes))


def _nothing() -> None:
    """Does nothing, because each lane is told by itself."""
