"""The segment that an adopted Kafka topic becomes when it is given back after its cut-over."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo, new_segment
from anabranch.core.errors import InvalidInputError


def give_back_children(layout: SegmentLayout) -> tuple[SegmentInfo, ...]:
    """The one segment that the Kafka topic that was cut over becomes, in place of all.

    Nothing if that is so. Raises InvalidInputError if the layout has no such Kafka topic.
    """
    if any(part.is_legacy for part in layout.active):
        return ()
    sealed = next((part for part in layout.segments.values() if part.is_legacy), None)
    if sealed is None:
        raise InvalidInputError("It has no adopted Kafka topic, or not any more")
    parents = tuple(sorted(part.segment_id for part in layout.active))
    return (continuation(sealed, layout.next_segment_id, parents),)


def continuation(sealed: SegmentInfo, segment_id: int, parents: tuple[int, ...]) -> SegmentInfo:
    """The segment that the Kafka topic of a sealed legacy one becomes, from its ends on."""
    child = new_segment(segment_id, sealed.start, sealed.end, sealed.buckets, parents)
    return replace(
        child,
        topic_id=sealed.topic_id,
        legacy_topic=sealed.legacy_topic,
        partitioner=sealed.partitioner,
        bytes_max=sealed.bytes_max,
        start_offsets=sealed.end_offsets,
    )
