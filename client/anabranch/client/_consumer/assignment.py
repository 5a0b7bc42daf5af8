"""What a consumer is granted (`Assignment`), and `Holding`, the life of one bucket in its hands.

Only values, and pure decisions: no I/O, no clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from anabranch.client._settings import DeadLetterPolicy

Partition = tuple[str, int]  # of Kafka: topic and number


class SegmentBucket(NamedTuple):
    """One bucket of one segment: a partition of that segment's Kafka topic."""

    segment_id: int
    bucket: int


class AssignedSegment(msgspec.Struct, frozen=True):
    """A segment of an assignment, with the buckets of it that are granted.

    `end_offsets` has one exclusive end per bucket of the whole segment once it is sealed, and is
    empty before. `start_offsets` has one per granted bucket, for which the group may know no
    position; it is empty where all are 0.
    """

    segment_id: int
    kafka_topic: str
    buckets: tuple[int, ...]
    end_offsets: tuple[int, ...] = ()
    start_offsets: tuple[int, ...] = ()

    def start_of(self, bucket: int) -> int:
        """Where to begin in a granted bucket of which the group knows no position."""
        return self.start_offsets[self.buckets.index(bucket)] if self.start_offsets else 0


class Assignment(msgspec.Struct, frozen=True):
    """What the controller grants to one consumer. Sequences of one session ascend.

    `begun_at`: the log offset that made the subscription, or put it somewhere else last. `pruned`:
    for a checkpoint consumer, by id, the exclusive ends of the last segments that the subscription
    had drained before the layout let go of them. `commits_again`: somebody else has changed what
    the group had committed.
    """

    sequence: int
    incarnation: int
    layout_epoch: int
    group_id: str
    session_timeout_s: float
    segments: tuple[AssignedSegment, ...] = ()
    bootstrap_servers: str = ""
    dead_letter: DeadLetterPolicy | None = None
    pruned: Mapping[int, tuple[int, ...]] = {}
    begun_at: int = 0
    commits_again: bool = False

    def places(self) -> dict[SegmentBucket, AssignedSegment]:
        """The granted buckets."""
        return {SegmentBucket(s.segment_id, b): s for s in self.segments for b in s.buckets}


class Fetch(msgspec.Struct, frozen=True):
    """An order to read one bucket; each has a number of its own, so that what was read for an
    earlier order is never taken for this one's.

    `start` is the offset to start at; without one it is the committed offset of the group, or the
    caller's position in a checkpoint consumer; where there is none either, `otherwise`.
    """

    number: int
    place: SegmentBucket
    kafka_topic: str
    start: int | None
    otherwise: int = 0

    @property
    def partition(self) -> Partition:
        return self.kafka_topic, self.place.bucket


class SubscribeOrder(msgspec.Struct, frozen=True):
    """What the next Subscribe says. `number` names the attempt; only the last one counts.

    `begun_at`: of the subscription that holdings and drained speak of; 0 when there are none.
    `committed`: how far holdings are, where that is known.
    """

    number: int
    holdings: tuple[SegmentBucket, ...]
    drained: tuple[SegmentBucket, ...]
    begun_at: int
    committed: Mapping[SegmentBucket, int] = {}


class AssignmentReport(msgspec.Struct, frozen=True):
    """What the next report says; empty, it keeps the session. `committed`: of what is released."""

    number: int
    released: tuple[SegmentBucket, ...]
    drained: tuple[SegmentBucket, ...]
    dead_letters_waiting: int = 0
    committed: Mapping[SegmentBucket, int] = {}


class Phase(enum.Enum):
    """The life of a holding, in this order; steps may be left out, and SETTLING may be undone."""

    SERVING = "SERVING"
    SETTLING = "SETTLING"
    RELEASED = "RELEASED"
    LOST = "LOST"


class Loss(enum.Enum):
    """Why a bucket is given up or lost, and the remedy where messages come again for it."""

    NOT_HELD = "this consumer does not have it; acknowledge only what it has received"
    SETTLE_TIMEOUT = (
        "another consumer was to have it, and settle_timeout_s was over; acknowledge sooner, or "
        "set no settle_timeout_s"
    )
    LAPSED = (
        "no controller answered for the session time; keep the event loop free (asyncio.to_thread) "
        "and the nodes within reach"
    )
    CLOSED = "this consumer left it; acknowledge before closing, or before the topic is deselected"
    ANEW = (
        "the topic or the subscription was made again, or put elsewhere; go on with what is "
        "received next"
    )
    FENCED = "another process has taken the consumer's name over; give each one its own name"
    FAILED = "the consumer failed; see what it raises, and make another one"


@dataclass(slots=True, eq=False)
class Holding:
    """A bucket from its grant until it is released or lost. Offsets are exclusive ends.

    Its methods say what happened to it; whether the session lasts is `ConsumerCore`'s to know.

    `delivered` is what the application has been given, `acknowledged` what it has done with, and
    `committed` what will not be delivered again; all are None until the position is known.
    Below `reached` Kafka has nothing that was not delivered. `commits_again`: what is committed is
    to be committed once more, or that is under way. `loss`: why it is given up or was lost.
    `listeners` are called in the very step that releases or loses it, before anybody hears of that.
    `held_back`: where the first open transaction begins that nothing is read beyond, and since when
    that is so.
    """

    place: SegmentBucket
    kafka_topic: str
    end_offset: int | None
    phase: Phase = Phase.SERVING
    fetch: Fetch | None = None
    delivered: int | None = None
    acknowledged: int | None = None
    committed: int | None = None
    commits_again: bool = False
    reached: int = 0
    settle_by: float = math.inf
    drain_told: bool = False
    loss: Loss = Loss.NOT_HELD
    listeners: list[Callable[[], None]] = field(default_factory=list)
    held_back: tuple[int, float] | None = None

    @property
    def partition(self) -> Partition:
        return self.kafka_topic, self.place.bucket

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

    def is_committed(self, end: int) -> bool:
        """Whether nothing below `end` will be delivered again."""
        return self.committed is not None and end <= self.committed

    @property
    def uncommitted(self) -> bool:
        """Whether something is acknowledged that is not committed."""
        if self.acknowledged is None or self.committed is None:
            return False
        return self.committed < self.acknowledged

    @property
    def to_commit(self) -> bool:
        """Whether a commit is to be made; one that came after its release would undo others'."""
        return self.uncommitted or (self.commits_again and self.acknowledged is not None)

    @property
    def drained(self) -> bool:
        """Whether the segment is sealed and nothing of the bucket will be delivered again."""
        if self.end_offset is None or self.committed is None or self.in_flight:
            return False  # an end may be before what is worked on, where Kafka lost the segment
        return self.committed >= self.end_offset

    @property
    def at_end(self) -> bool:
        """Whether the segment is sealed and the application has done with all of the bucket."""
        if self.end_offset is None or self.acknowledged is None:
            return False
        return self.acknowledged >= self.end_offset

    @property
    def drain_untold(self) -> bool:
        """Whether the controller is to be told that it is drained."""
        return self.is_held and self.drained and not self.drain_told

    def settled(self, now: float) -> bool:
        """Whether it is to be given up and nothing is waited for but a commit."""
        return self.phase is Phase.SETTLING and (not self.in_flight or now >= self.settle_by)

    def commit_urgent(self, now: float) -> bool:
        """Whether somebody waits for a commit."""
        return self.is_held and self.to_commit and (self.settled(now) or self.at_end)

    @property
    def limit(self) -> float:
        """No message at or behind it is delivered: it is not the segment's."""
        return math.inf if self.end_offset is None else self.end_offset

    def begin(self, offset: int) -> None:
        """Reading starts there, for the first time: everything below is committed."""
        if self.delivered is None:
            self.delivered = self.acknowledged = self.committed = offset
            self._skip_removed()

    def forget_position(self) -> None:
        """Nothing is known of how far it is."""
        self.delivered = self.acknowledged = self.committed = None
        self.drain_told = self.commits_again = False

    def deliver(self, end: int) -> None:
        """The application was given everything below `end`."""
        if self.delivered is not None and end > self.delivered:
            self.delivered = end

    def reach(self, offset: int) -> None:
        """Below it Kafka has nothing that was not delivered."""
        if self.end_offset is not None:
            offset = min(offset, self.end_offset)
        self.reached = max(self.reached, offset)
        self._skip_removed()

    def held_back_s(self, stable_end: int, now: float) -> float:
        """For how long an open transaction has been all that keeps the sealed end from being read.

        Kafka gives out nothing from `stable_end` on, where the first one begins.
        """
        end, read = self.end_offset, self.delivered
        if end is None or read is None or not stable_end <= read < end:
            self.held_back = None
            return 0.0
        if self.held_back is None or self.held_back[0] != stable_end:
            self.held_back = stable_end, now
        return now - self.held_back[1]

    def acknowledge(self, end: int) -> bool:
        """The application has done with everything below `end`; False if it is lost."""
        if not self.is_held or self.acknowledged is None or self.delivered is None:
            return self.is_committed(end)
        self.acknowledged = max(self.acknowledged, min(end, self.delivered))
        if self.end_offset == 0:
            self.committed = self.acknowledged
        self._skip_removed()
        return True

    def commit(self, end: int) -> bool:
        """Everything below `end` is committed; False if it is not held."""
        if not self.is_held or self.acknowledged is None or self.committed is None:
            return False
        self.committed = max(self.committed, min(end, self.acknowledged))
        self.commits_again = False
        return True

    def serve(self, fetch: Fetch | None) -> None:
        """It is read again, or for the first time; None: there is nothing to read."""
        self.phase, self.settle_by, self.fetch = Phase.SERVING, math.inf, fetch

    def settle(self, by: float, loss: Loss) -> None:
        """It is to be given up once what was delivered is acknowledged, or by then."""
        self.phase, self.settle_by, self.loss = Phase.SETTLING, min(self.settle_by, by), loss

    def release_if_settled(self, now: float) -> None:
        if self.settled(now) and not self.to_commit:
            self._end(Phase.RELEASED)

    def end_where_it_began(self) -> None:
        """Nothing of it is delivered any more: it is empty, or lost with its Kafka topic, which
        takes no commit. Somebody may work on what was delivered.
        """
        self.serve(None)
        self.begin(0)
        self.committed = self.acknowledged
        self.commits_again = False

    @property
    def is_cut_short(self) -> bool:
        """Whether more of it was delivered than it holds by now: its Kafka topic was lost."""
        return self.end_offset == 0 and bool(self.delivered)

    def lose(self, loss: Loss) -> None:
        """It is another's, or may be soon."""
        if self.is_held:
            self.loss = loss
        self._end(Phase.LOST)

    def _end(self, phase: Phase) -> None:
        self.phase = phase
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener()

    def _skip_removed(self) -> None:
        if self.delivered is not None and not self.in_flight and self.reached > self.delivered:
            self.delivered = self.acknowledged = self.reached


def committed_of(holdings: Iterable[Holding]) -> dict[SegmentBucket, int]:
    """How far each is, where that is known."""
    return {each.place: each.committed for each in holdings if each.committed is not None}
