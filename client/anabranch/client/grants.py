"""What consumers and controllers speak of: places, assignments, fetches, reports. Only values."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

Partition = tuple[str, int]  # of Kafka: topic and number


class SegmentBucket(NamedTuple):
    """One bucket of one segment: a partition of that segment's Kafka topic."""

    segment_id: int
    bucket: int


class AssignedSegment(msgspec.Struct, frozen=True):
    """A segment of an assignment, with the buckets of it that are granted.

    `end_offsets` has one exclusive end per bucket of the whole segment once it is sealed, and is
    empty before.
    """

    segment_id: int
    kafka_topic: str
    buckets: tuple[int, ...]
    end_offsets: tuple[int, ...] = ()


class Assignment(msgspec.Struct, frozen=True):
    """What the controller grants to one consumer. Sequences of one session ascend."""

    sequence: int
    incarnation: int
    layout_epoch: int
    group_id: str
    session_timeout_s: float
    segments: tuple[AssignedSegment, ...] = ()
    bootstrap_servers: str = ""

    def places(self) -> dict[SegmentBucket, AssignedSegment]:
        """The granted buckets."""
        return {SegmentBucket(s.segment_id, b): s for s in self.segments for b in s.buckets}


class Fetch(msgspec.Struct, frozen=True):
    """An order to read one bucket; each has a number of its own, so that what was read for an
    earlier order is never taken for this one's.

    `start` is the offset to start at; without one it is the committed offset of the group, or the
    caller's position in a checkpoint consumer, or the earliest.
    """

    number: int
    place: SegmentBucket
    kafka_topic: str
    start: int | None

    @property
    def partition(self) -> Partition:
        return self.kafka_topic, self.place.bucket


class SubscribeOrder(msgspec.Struct, frozen=True):
    """What the next Subscribe says. `number` names the attempt; only the last one counts.

    `group_id`: of the subscription that holdings and drained speak of; "" when there are none.
    """

    number: int
    holdings: tuple[SegmentBucket, ...]
    drained: tuple[SegmentBucket, ...]
    group_id: str


class Report(msgspec.Struct, frozen=True):
    """What the next report says; empty, it keeps the session."""

    number: int
    released: tuple[SegmentBucket, ...]
    drained: tuple[SegmentBucket, ...]
