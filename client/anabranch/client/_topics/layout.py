"""`TopicLayout`: a topic's DAG at one epoch, as a node pushed it. It is immutable.

Layouts of one topic are ordered by (incarnation, version). The epoch counts only changes of the
DAG, but the plan of an operation under way is news too. A node that is behind pushes older layouts.
A keeper of layouts ignores those (`is_newer_than`), so that it never goes back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from typing import Final, Self

import msgspec

from anabranch.core.entities.layout import lineage_of, uncovered
from anabranch.core.entities.segment import SegmentInfo, SegmentState
from anabranch.core.errors import UncoveredHashError, UnknownSegmentError
from anabranch.core.hashing import hash32, segment_hash
from anabranch.wire import anabranch_pb2 as pb

_MESSAGE_BYTES_MAX: Final = 1_000_000  # where no node has told it


class Segment(msgspec.Struct, frozen=True):
    """A segment and the Kafka topic that holds it; its buckets are that topic's partitions."""

    info: SegmentInfo
    kafka_topic: str

    @property
    def segment_id(self) -> int:
        return self.info.segment_id

    def bucket(self, key: str | bytes, position: int) -> int:
        """Returns the bucket of a key, whose place on the ring is `position`.

        Raises UncoveredHashError where it is not known how an adopted topic's writers find it.
        """
        info = self.info
        found = info.bucket(key, position)
        if found < 0:
            raise UncoveredHashError(
                f"Kafka topic {info.legacy_topic} was adopted, and how its writers find a key's "
                f"partition is {info.partitioner or 'not known'} here: adopt it with --partitioner "
                "and one that this client knows, or cut it over (anabranch topics prepare)"
            )
        return found

    @classmethod
    def from_proto(cls, proto: pb.SegmentInfoProto) -> Self:
        return cls(
            SegmentInfo(
                segment_id=proto.segment_id,
                start=proto.hash_start,
                end=proto.hash_end,
                state=SegmentState(int(proto.state)),
                parent_ids=tuple(proto.parent_ids),
                child_ids=tuple(proto.child_ids),
                created_at_epoch=proto.created_at_epoch,
                sealed_at_epoch=proto.sealed_at_epoch,
                created_at_ms=proto.created_at_ms,
                sealed_at_ms=proto.sealed_at_ms,
                buckets=len(proto.entry_bucket_splits) + 1,
                end_offsets=tuple(proto.end_offsets),
                legacy_topic=proto.legacy_topic_name,
                partitioner=proto.partitioner,
                start_offsets=tuple(proto.start_offsets),
            ),
            proto.kafka_topic,
        )


class TopicLayout(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One version of the DAG, with the planned changes of the operation under way.

    `segments` has all segments, by id. `children` are those that an operation under way will add.
    Their Kafka topics may not exist yet. `parents_under_way` are the active segments that it will
    seal. Once `sealing` is True the sealing is certain, but their buckets may still take appends.

    `version` rises with all news of the topic. For a node that does not tell one it is the epoch.
    `adopted_from`: the Kafka topic that the topic was made of, "" for none.
    """

    topic: str  # tenant/namespace/name
    incarnation: int
    epoch: int
    segments: Mapping[int, Segment]
    children: tuple[Segment, ...] = ()
    parents_under_way: frozenset[int] = frozenset()
    sealing: bool = False
    bootstrap_servers: str = ""
    max_message_bytes: int = _MESSAGE_BYTES_MAX
    controller_url: str = ""
    deleted: bool = False
    version: int = 0
    adopted_from: str = ""

    @classmethod
    def from_proto(
        cls, topic: str, dag: pb.ScalableTopicDAG, controller_url: str | None = None
    ) -> Self:
        """Decodes the DAG of a CommandScalableTopicUpdate. `topic` is `tenant/namespace/name`.

        `controller_url` replaces the DAG's URL without TLS, for a client that connects to another
        of its URLs.
        """
        return cls(
            topic,
            incarnation=dag.incarnation,
            epoch=dag.epoch,
            segments={part.segment_id: Segment.from_proto(part) for part in dag.segments},
            children=tuple(Segment.from_proto(part) for part in dag.children),
            parents_under_way=frozenset(dag.parents_under_way),
            sealing=dag.sealing,
            bootstrap_servers=dag.bootstrap_servers,
            max_message_bytes=dag.max_message_bytes or _MESSAGE_BYTES_MAX,
            controller_url=(
                dag.controller_broker_url if controller_url is None else controller_url
            ),
            deleted=dag.deleted,
            version=dag.version if dag.HasField("version") else dag.epoch,
            adopted_from=dag.adopted_from,
        )

    def __repr__(self) -> str:
        return f"TopicLayout({self.topic!r}, incarnation {self.incarnation}, epoch {self.epoch})"

    @property
    def age(self) -> tuple[int, int]:
        """The order of the layouts of one topic. The higher one is newer."""
        return self.incarnation, self.version

    def is_newer_than(self, other: TopicLayout | None) -> bool:
        """Returns True if it says more than `other`.
        With an equal version only a deletion is more.
        """
        if other is None:
            return True
        later = self.deleted and not other.deleted
        return self.age > other.age or (self.age == other.age and later)

    def as_deleted(self) -> TopicLayout:
        """Returns the same layout for the deleted topic."""
        return msgspec.structs.replace(self, deleted=True)

    @cached_property
    def active(self) -> tuple[Segment, ...]:
        """The segments that take messages, in ring order: they tile the ring."""
        found = (part for part in self.segments.values() if part.info.is_active)
        return tuple(sorted(found, key=lambda part: part.info.start))

    @cached_property
    def is_adopted(self) -> bool:
        """Whether an adopted Kafka topic takes its messages, which then is its active segment."""
        return any(part.info.is_legacy for part in self.active)

    @cached_property
    def is_being_given_back(self) -> bool:
        """Whether an operation under way lets the adopted Kafka topic take messages again."""
        return any(child.info.is_legacy for child in self.children)

    @cached_property
    def _starts(self) -> list[int]:
        return [part.info.start for part in self.active]

    @cached_property
    def _children_by_start(self) -> tuple[list[Segment], list[int]]:
        ring = sorted(self.children, key=lambda part: part.info.start)
        return ring, [part.info.start for part in ring]

    def active_at(self, hash16: int) -> Segment:
        """Returns the active segment at a position of the 16-bit ring.
        Raises UncoveredHashError.
        """
        place = bisect_right(self._starts, hash16) - 1
        if place < 0 or hash16 > self.active[place].info.end:
            raise uncovered(hash16, (part.info for part in self.active))
        return self.active[place]

    def child_at(self, hash16: int) -> Segment | None:
        """Returns the child under way at that position, None if there is none."""
        ring, starts = self._children_by_start
        place = bisect_right(starts, hash16) - 1
        return ring[place] if place >= 0 and hash16 in ring[place].info else None

    def lineage(self, segment_id: int) -> tuple[Segment, ...]:
        """Returns the segment with all that it descends from and all that descend from it, by id.

        Raises UnknownSegmentError for a segment that is not in the layout, or no longer.
        """
        if segment_id not in self.segments:
            raise UnknownSegmentError(f"Segment not found: {segment_id}")
        infos = {each: part.info for each, part in self.segments.items()}
        return tuple(self.segments[each] for each in lineage_of(infos, segment_id))

    def is_sealed(self, segment_id: int) -> bool:
        """Returns True if by the log every bucket of the segment refuses appends."""
        if self.deleted:
            return True
        part = self.segments.get(segment_id)
        if part is None:  # a child under way is yet to come, anything else is gone
            return all(child.segment_id != segment_id for child in self.children)
        return not part.info.is_active

    def is_leaving(self, segment_id: int) -> bool:
        """Returns True if the segment is sealed or certain to be.
        Its buckets may still take appends.
        """
        return self.is_sealed(segment_id) or (self.sealing and segment_id in self.parents_under_way)

    def place(self, key: str | bytes) -> tuple[Segment, int]:
        """Returns the active segment of a key, and the key's bucket in it."""
        position = hash32(key)
        part = self.active_at(segment_hash(position))
        return part, part.bucket(key, position)
