"""`Assignment`, the grants to a consumer, and `Holding`, the life of one bucket in its hands.

The module holds values, their forms on the wire, and pure decisions: no I/O, no clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from anabranch.access import kafka_tokens
from anabranch.client._settings import DeadLetterPolicy
from anabranch.wire.anabranch_pb2 import DeadLetterPolicy as PolicyForm
from anabranch.wire.anabranch_pb2 import ScalableConsumerAssignment, SegmentBuckets

Partition = tuple[str, int]  # Kafka's topic and number
_NOTHING: Final[Mapping[SegmentBucket, int]] = {}


class SegmentBucket(NamedTuple):
    """One bucket of one segment: a partition of that segment's Kafka topic."""

    segment_id: int
    bucket: int


class AssignedSegment(msgspec.Struct, frozen=True):
    """A segment of an assignment, with its granted buckets.

    `end_offsets` has one exclusive end per bucket of the whole segment once it is sealed, and is
    empty before. `start_offsets` has one offset per granted bucket, for buckets without a position
    in the group. It is empty if all are 0.
    """

    segment_id: int
    kafka_topic: str
    buckets: tuple[int, ...]
    end_offsets: tuple[int, ...] = ()
    start_offsets: tuple[int, ...] = ()

    def start_of(self, bucket: int) -> int:
        """Returns the offset to begin at in a granted bucket without a position in the group."""
        return self.start_offsets[self.buckets.index(bucket)] if self.start_offsets else 0


class Assignment(msgspec.Struct, frozen=True):
    """The controller's grants to one consumer. Sequences of one session ascend.

    `begun_at` is the log offset of the record that created the subscription, or moved it last.
    `pruned` is for a checkpoint consumer: the exclusive ends, by id, of the last segments that were
    drained before they left the layout. `commits_again` is True if somebody else has changed the
    group's committed offsets.
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
        """The granted buckets, with their segments."""
        return {SegmentBucket(s.segment_id, b): s for s in self.segments for b in s.buckets}

    def in_group(self, kafka: Mapping[str, Any], servers: str) -> dict[str, Any]:
        """Returns `kafka`, the application's properties, with the subscription's group and Kafka's
        address. This is `servers` if the controller told none.
        """
        return group_properties(kafka, self.bootstrap_servers or servers, self.group_id)


def group_properties(kafka: Mapping[str, Any], servers: str, group_id: str) -> dict[str, Any]:
    """Returns `kafka`, the application's properties, with a group and Kafka's address."""
    own = {"bootstrap.servers": servers, "group.id": group_id}
    return {"client.id": "anabranch", **kafka_tokens.at(kafka, servers), **own}


class Fetch(msgspec.Struct, frozen=True):
    """An order to read one bucket. Each has a number of its own, so that reads for an earlier order
    never count for this one.

    `start` is the offset to start at. None means the group's committed offset, or the caller's
    position in a checkpoint consumer, or else `otherwise`.
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
    """The content of the next Subscribe. `number` names the attempt, and only the last attempt
    counts.

    `begun_at` names the subscription of `holdings` and `drained`, and is 0 without these.
    `committed` has the committed ends of holdings, as far as they are known.
    """

    number: int
    holdings: tuple[SegmentBucket, ...]
    drained: tuple[SegmentBucket, ...]
    begun_at: int
    committed: Mapping[SegmentBucket, int] = {}


class AssignmentReport(msgspec.Struct, frozen=True):
    """The content of the next report. An empty one keeps the session.
    `committed` has the ends of released buckets.
    """

    number: int
    released: tuple[SegmentBucket, ...]
    drained: tuple[SegmentBucket, ...]
    dead_letters_waiting: int = 0
    committed: Mapping[SegmentBucket, int] = {}


class Phase(enum.Enum):
    """The life of a holding, in this order. It may skip steps, and may go back from SETTLING."""

    SERVING = "SERVING"
    SETTLING = "SETTLING"
    RELEASED = "RELEASED"
    LOST = "LOST"


class Loss(enum.Enum):
    """The reason why a bucket is given up or lost, with the remedy if its messages are delivered
    again.
    """

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

    Its methods take events of the bucket. `ConsumerCore` knows if the session lasts.

    `delivered` is the end of the application's messages. `acknowledged` is the end of those that it
    has done with, and `committed` of those that are never delivered again. All three are None until
    the position is known. Below `reached` Kafka has no undelivered message.

    `commits_again` is True while the committed end is to be committed once more. `loss` is the
    reason of giving it up or losing it. It calls `listeners` in the step that releases or loses it,
    before anybody hears of that. `held_back` is the start of the first open transaction that stops
    the reading, and the time since which it does.
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
        """True while the controller must count on this consumer for the bucket."""
        return self.phase in (Phase.SERVING, Phase.SETTLING)

    @property
    def in_flight(self) -> bool:
        """True if a delivered message is not acknowledged."""
        if self.delivered is None or self.acknowledged is None:
            return False
        return self.acknowledged < self.delivered

    def is_committed(self, end: int) -> bool:
        """Returns True if nothing below `end` will be delivered again."""
        return self.committed is not None and end <= self.committed

    @property
    def uncommitted(self) -> bool:
        """True if an acknowledged message is not committed."""
        if self.acknowledged is None or self.committed is None:
            return False
        return self.committed < self.acknowledged

    @property
    def to_commit(self) -> bool:
        """True if a commit is due.
        A commit after the release would undo those of other consumers.
        """
        return self.uncommitted or (self.commits_again and self.acknowledged is not None)

    @property
    def drained(self) -> bool:
        """True if the segment is sealed and nothing of the bucket will be delivered again."""
        if self.end_offset is None or self.committed is None or self.in_flight:
            return False  # an end may be before what is worked on, where Kafka lost the segment
        return self.committed >= self.end_offset

    @property
    def at_end(self) -> bool:
        """True if the segment is sealed and the application has done with all of the bucket."""
        if self.end_offset is None or self.acknowledged is None:
            return False
        return self.acknowledged >= self.end_offset

    @property
    def drain_untold(self) -> bool:
        """True if the controller does not know yet that the bucket is drained."""
        return self.is_held and self.drained and not self.drain_told

    def settled(self, now: float) -> bool:
        """Returns True if it is to be given up and waits only for a commit."""
        return self.phase is Phase.SETTLING and (not self.in_flight or now >= self.settle_by)

    def commit_urgent(self, now: float) -> bool:
        """Returns True if somebody waits for a commit."""
        return self.is_held and self.to_commit and (self.settled(now) or self.at_end)

    @property
    def limit(self) -> float:
        """The end of deliveries: messages from here on are not the segment's."""
        return math.inf if self.end_offset is None else self.end_offset

    def begin(self, offset: int) -> None:
        """Notes that reading starts there for the first time. Everything below is committed."""
        if self.delivered is None:
            self.delivered = self.acknowledged = self.committed = offset
            self._skip_removed()

    def deliver(self, end: int) -> None:
        """Notes that the application was given everything below `end`."""
        if self.delivered is not None and end > self.delivered:
            self.delivered = end

    def reach(self, offset: int) -> None:
        """Notes that Kafka has no undelivered message below `offset`."""
        if self.end_offset is not None:
            offset = min(offset, self.end_offset)
        self.reached = max(self.reached, offset)
        self._skip_removed()

    def held_back_s(self, stable_end: int, now: float) -> float:
        """Returns the seconds for which only an open transaction has kept the sealed end from being
        read.

        Kafka returns nothing from `stable_end` on. The first open transaction begins there.
        """
        end, read = self.end_offset, self.delivered
        if end is None or read is None or not stable_end <= read < end:
            self.held_back = None
            return 0.0
        if self.held_back is None or self.held_back[0] != stable_end:
            self.held_back = stable_end, now
        return now - self.held_back[1]

    def acknowledge(self, end: int) -> bool:
        """Notes that the application has done with everything below `end`.
        Returns False if the bucket is lost.
        """
        if not self.is_held or self.acknowledged is None or self.delivered is None:
            return self.is_committed(end)
        self.acknowledged = max(self.acknowledged, min(end, self.delivered))
        if self.end_offset == 0:
            self.committed = self.acknowledged
        self._skip_removed()
        return True

    def commit(self, end: int) -> bool:
        """Notes that everything below `end` is committed.
        Returns False if the bucket is not held.
        """
        if not self.is_held or self.acknowledged is None or self.committed is None:
            return False
        self.committed = max(self.committed, min(end, self.acknowledged))
        self.commits_again = False
        return True

    def serve(self, fetch: Fetch | None) -> None:
        """Has it read again, or for the first time. None means that there is nothing to read."""
        self.phase, self.settle_by, self.fetch = Phase.SERVING, math.inf, fetch

    def settle(self, by: float, loss: Loss) -> None:
        """Begins to give it up: once all deliveries are acknowledged, or at the time `by`."""
        self.phase, self.settle_by, self.loss = Phase.SETTLING, min(self.settle_by, by), loss

    def release_if_settled(self, now: float) -> None:
        if self.settled(now) and not self.to_commit:
            self._end(Phase.RELEASED)

    def end_where_it_began(self) -> None:
        """Ends deliveries at once: the bucket is empty, or was lost with its Kafka topic, which
        takes no commit.

        The application may still work on delivered messages.
        """
        self.serve(None)
        self.begin(0)
        self.committed = self.acknowledged
        self.commits_again = False

    @property
    def is_cut_short(self) -> bool:
        """Returns True if more was delivered than it holds now, because its Kafka topic
        was lost.
        """
        return self.end_offset == 0 and bool(self.delivered)

    def lose(self, loss: Loss) -> None:
        """Notes that another consumer has it, or may soon."""
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
    """Returns the committed end of each holding that has one."""
    return {each.place: each.committed for each in holdings if each.committed is not None}


def assignment_of(proto: ScalableConsumerAssignment) -> Assignment:
    """Decodes a controller's assignment."""
    return Assignment(
        sequence=proto.sequence,
        incarnation=proto.incarnation,
        layout_epoch=proto.layout_epoch,
        group_id=proto.group_id,
        session_timeout_s=proto.session_timeout_ms / 1_000,
        segments=tuple(
            AssignedSegment(
                each.segment_id,
                each.kafka_topic,
                tuple(each.buckets),
                tuple(each.end_offsets),
                tuple(each.start_offsets),
            )
            for each in proto.segments
        ),
        bootstrap_servers=proto.bootstrap_servers,
        dead_letter=DeadLetterPolicy(
            deliveries_max=proto.dead_letter.deliveries_max, topic=proto.dead_letter.topic
        )
        if proto.HasField("dead_letter")
        else None,
        pruned={each.segment_id: tuple(each.end_offsets) for each in proto.pruned},
        begun_at=proto.begun_at,
        commits_again=proto.commits_again,
    )


def policy_form(policy: DeadLetterPolicy | None) -> PolicyForm | None:
    """Encodes a dead-letter policy, None for none."""
    if policy is None:
        return None
    return PolicyForm(topic=policy.topic or None, deliveries_max=policy.deliveries_max)


def by_segment(
    places: Iterable[SegmentBucket], committed: Mapping[SegmentBucket, int] = _NOTHING
) -> list[SegmentBuckets]:
    """Encodes buckets, with the committed offset of each that has one."""
    found: dict[int, SegmentBuckets] = {}
    for place in places:
        form = found.setdefault(place.segment_id, SegmentBuckets(segment_id=place.segment_id))
        form.buckets.append(place.bucket)
        if committed:
            form.committed.append(committed.get(place, -1))
    return list(found.values())
