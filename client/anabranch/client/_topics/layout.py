"""`TopicLayout`: a topic's DAG at one epoch, as a node pushed it, immutable.

Layouts of one topic are ordered by (incarnation, version): the epoch counts changes of the DAG
only, and what an operation under way is about to make of it is news too. A node that is behind
pushes older ones; whoever keeps layouts ignores those (`is_newer_than`), so that nothing it knew is
taken back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from typing import Self

import msgspec

from anabranch.core.errors import UnknownSegmentError
from anabranch.core.hashing import bucket_of, hash32, segment_hash
from anabranch.core.topics.layout import lineage_of, uncovered
from anabranch.core.topics.segment import SegmentInfo, SegmentState
from anabranch.wire import anabranch_pb2 as pb


class Segment(msgspec.Struct, frozen=True):
    """A segment and the Kafka topic that holds it; its buckets are that topic's partitions."""

    info: SegmentInfo
    kafka_topic: str

    @property
    def segment_id(self) -> int:
        return self.info.segment_id

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
            ),
            proto.kafka_topic,
        )


class TopicLayout(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One version of the DAG, with what the operation under way is about to make of it.

    `segments`: all of them, by id. `children`: those that an operation under way will add; their
    Kafka topics may not be there yet. `parents_under_way`: the active segments that it will seal;
    once `sealing` is true nothing can keep that from happening, but a bucket of theirs may still
    take appends. `version`: higher with whatever a node has to tell of the topic; a node before
    that rule tells its epoch only, which was then.
    """

    topic: str  # tenant/namespace/name
    incarnation: int
    epoch: int
    segments: Mapping[int, Segment]
    children: tuple[Segment, ...] = ()
    parents_under_way: frozenset[int] = frozenset()
    sealing: bool = False
    bootstrap_servers: str = ""
    max_message_bytes: int = 0  # not known
    controller_url: str = ""
    deleted: bool = False
    version: int = 0

    @classmethod
    def from_proto(
        cls, topic: str, dag: pb.ScalableTopicDAG, controller_url: str | None = None
    ) -> Self:
        """What a CommandScalableTopicUpdate carries; `topic` is `tenant/namespace/name`.

        `controller_url`: of those in it the one to connect to, if not that without TLS.
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
            max_message_bytes=dag.max_message_bytes,
            controller_url=(
                dag.controller_broker_url if controller_url is None else controller_url
            ),
            deleted=dag.deleted,
            version=dag.version if dag.HasField("version") else dag.epoch,
        )

    def __repr__(self) -> str:
        return f"TopicLayout({self.topic!r}, incarnation {self.incarnation}, epoch {self.epoch})"

    @property
    def age(self) -> tuple[int, int]:
        """What orders the layouts of one topic: the higher is the newer."""
        return self.incarnation, self.version

    def is_newer_than(self, other: TopicLayout | None) -> bool:
        """Whether it says more than the other one. One of the same version may: of a deletion."""
        if other is None:
            return True
        later = self.deleted and not other.deleted
        return self.age > other.age or (self.age == other.age and later)

    def as_deleted(self) -> TopicLayout:
        """The same, once the topic is gone."""
        return msgspec.structs.replace(self, deleted=True)

    @cached_property
    def active(self) -> tuple[Segment, ...]:
        """The segments that take messages, in ring order: they tile the ring."""
        found = (part for part in self.segments.values() if part.info.is_active)
        return tuple(sorted(found, key=lambda part: part.info.start))

    @cached_property
    def _starts(self) -> list[int]:
        return [part.info.start for part in self.active]

    def active_at(self, hash16: int) -> Segment:
        """The active segment at a position of the 16-bit ring. Raises UncoveredHashError."""
        place = bisect_right(self._starts, hash16) - 1
        if place < 0 or hash16 > self.active[place].info.end:
            raise uncovered(hash16, (part.info for part in self.active))
        return self.active[place]

    def child_at(self, hash16: int) -> Segment | None:
        """The child under way at that position, if there is one."""
        return next((part for part in self.children if hash16 in part.info), None)

    def lineage(self, segment_id: int) -> tuple[Segment, ...]:
        """The segment with all that it descends from and all that descend from it, by id.

        Raises UnknownSegmentError for one that the layout has not, or no more.
        """
        if segment_id not in self.segments:
            raise UnknownSegmentError(f"Segment not found: {segment_id}")
        infos = {each: part.info for each, part in self.segments.items()}
        return tuple(self.segments[each] for each in lineage_of(infos, segment_id))

    def is_sealed(self, segment_id: int) -> bool:
        """Whether it is a fact of the log that every bucket of the segment refuses appends."""
        if self.deleted:
            return True
        part = self.segments.get(segment_id)
        if part is None:  # a child under way is yet to come, anything else is gone
            return all(child.segment_id != segment_id for child in self.children)
        return not part.info.is_active

    def is_leaving(self, segment_id: int) -> bool:
        """Whether the segment is sealed, or certain to be: buckets of it may still take appends."""
        return self.is_sealed(segment_id) or (self.sealing and segment_id in self.parents_under_way)

    def place(self, key: str | bytes) -> tuple[Segment, int]:
        """The active segment and the bucket in it that a key belongs to."""
        position = hash32(key)
        part = self.active_at(segment_hash(position))
        return part, bucket_of(position, part.info.buckets)
