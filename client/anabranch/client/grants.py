"""What consumers and controllers speak of: places, assignments, holdings, reports. Only values."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import msgspec


class Place(NamedTuple):
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

    def places(self) -> dict[Place, AssignedSegment]:
        """The granted buckets."""
        return {Place(s.segment_id, b): s for s in self.segments for b in s.buckets}


class Phase(enum.Enum):
    """The life of a holding, in this order; steps may be left out, and SETTLING may be undone."""

    SERVING = "SERVING"
    SETTLING = "SETTLING"
    RELEASED = "RELEASED"
    LOST = "LOST"


class Fetch(msgspec.Struct, frozen=True):
    """An order to read one bucket; each has a number of its own, so that what was read for an
    earlier order is never taken for this one's.

    `start` is the offset to start at; without one it is the committed offset of the group, or the
    caller's position in a checkpoint consumer, or the earliest.
    """

    number: int
    place: Place
    kafka_topic: str
    start: int | None


class Holding:
    """A bucket from its grant until it is released or lost. Offsets are exclusive ends.

    `delivered` is what the application has been given, `acknowledged` what it has done with, and
    `committed` what will not be delivered again; all are None until the position is known.
    Below `reached` Kafka has nothing that was not delivered.
    """

    __slots__ = (
        "acknowledged",
        "committed",
        "delivered",
        "drain_told",
        "end_offset",
        "fetch",
        "kafka_topic",
        "phase",
        "place",
        "reached",
        "settle_by",
    )

    def __init__(self, place: Place, kafka_topic: str, end_offset: int | None) -> None:
        self.place = place
        self.kafka_topic = kafka_topic
        self.end_offset = end_offset
        self.phase = Phase.SERVING
        self.fetch: Fetch | None = None
        self.delivered: int | None = None
        self.acknowledged: int | None = None
        self.committed: int | None = None
        self.reached = 0
        self.settle_by = math.inf
        self.drain_told = False

    @property
    def is_held(self) -> bool:
        """Whether the controller must count on this consumer for the bucket."""
        return self.phase in (Phase.SERVING, Phase.SETTLING)

    @property
    def in_flight(self) -> bool:
        """Whether something was delivered that is not acknowledged."""
        if self.delivered is None or self.acknowledged is None:
            return False
        return self.acknowledged < self.delivered

    @property
    def uncommitted(self) -> bool:
        """Whether something is acknowledged that is not committed."""
        if self.acknowledged is None or self.committed is None:
            return False
        return self.committed < self.acknowledged

    @property
    def drained(self) -> bool:
        """Whether the segment is sealed and nothing of the bucket will be delivered again."""
        if self.end_offset is None or self.committed is None:
            return False
        return self.committed >= self.end_offset

    def __repr__(self) -> str:
        return (
            f"Holding({self.place.segment_id}/{self.place.bucket} {self.phase.name} "
            f"committed={self.committed} acknowledged={self.acknowledged} "
            f"delivered={self.delivered} end={self.end_offset})"
        )


class SubscribeOrder(msgspec.Struct, frozen=True):
    """What the next Subscribe says. `number` names the attempt; only the last one counts.

    `group_id`: of the subscription that holdings and drained speak of; "" when there are none.
    """

    number: int
    holdings: tuple[Place, ...]
    drained: tuple[Place, ...]
    group_id: str


class Report(msgspec.Struct, frozen=True):
    """What the next report says; empty, it keeps the session."""

    number: int
    released: tuple[Place, ...]
    drained: tuple[Place, ...]
