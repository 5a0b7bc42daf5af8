"""Converts between a consumer's values and the wire's forms for talks with its controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.client._consumer.assignment import AssignedSegment, Assignment, SegmentBucket
from anabranch.client._settings import DeadLetterPolicy
from anabranch.wire.anabranch_pb2 import DeadLetterPolicy as PolicyForm
from anabranch.wire.anabranch_pb2 import ScalableConsumerAssignment, SegmentBuckets

_NOTHING: Final[Mapping[SegmentBucket, int]] = {}


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
