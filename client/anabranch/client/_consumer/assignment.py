"""`Assignment`, the grants to a consumer, and the orders that follow: values and their forms on the
wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    in the group. It is empty if all are 0. `fences` has one number per granted bucket, greater than
    those of its former consumers; none of a queue.
    """

    segment_id: int
    kafka_topic: str
    buckets: tuple[int, ...]
    end_offsets: tuple[int, ...] = ()
    start_offsets: tuple[int, ...] = ()
    fences: tuple[int, ...] = ()

    def start_of(self, bucket: int) -> int:
        """Returns the offset to begin at in a granted bucket without a position in the group."""
        return self.start_offsets[self.buckets.index(bucket)] if self.start_offsets else 0

    def fence_of(self, bucket: int) -> int:
        """Returns the number of the grant of a bucket, 0 if there is none."""
        return self.fences[self.buckets.index(bucket)] if self.fences else 0


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
                tuple(each.fences),
            )
            for each in proto.segments
        ),
        bootstrap_servers=proto.bootstrap_servers,
        dead_letter=DeadLetterPolicy(
            deliveries_max=proto.dead_letter.deliveries_max or None, topic=proto.dead_letter.topic
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
    return PolicyForm(topic=policy.topic or None, deliveries_max=policy.deliveries_max or 0)


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
