"""The segments that a subscription has finished.

The server of a bucket says that it is drained, and the coordinator adds that up. The positions say
it as well, in three cases. A subscription without consumers will not read a sealed segment again
that it has committed up to the end. Kafka gives no consumer the messages that a queue has
acknowledged, consumed or not. No subscription can read messages that retention has removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.subscriptions.instances import Bucket


def unread(end: int, *passed: int) -> int:
    """Returns the number of messages left to read in a bucket that ends at `end`, exclusive.

    A subscription need not read before any of `passed`: its group's committed offset, its position
    in a record of the log, and the first offset that Kafka still has.
    """
    return max(0, end - max(passed))


def drained_segments(layout: SegmentLayout, logged: Set[int], done: Set[Bucket]) -> tuple[int, ...]:
    """Returns the segments that are done in every bucket, as all above them; not those `logged`."""
    found: list[int] = []
    for part in sorted(layout.segments.values(), key=lambda part: part.segment_id):
        if part.is_active or part.segment_id in logged:
            continue
        above = layout.ancestors(part.segment_id)
        buckets = ((part.segment_id, bucket) for bucket in range(part.buckets))
        if above <= logged | set(found) and all(bucket in done for bucket in buckets):
            found.append(part.segment_id)
    return tuple(found)


def drained_by_positions(
    layout: SegmentLayout, logged: Set[int], at: Mapping[Bucket, int]
) -> tuple[int, ...]:
    """The same by the next offset of each bucket; one that is not in `at` is at its beginning."""
    done = {
        (part.segment_id, bucket)
        for part in layout.segments.values()
        for bucket, end in enumerate(part.end_offsets)
        if not unread(end, at.get((part.segment_id, bucket), 0))
    }
    return drained_segments(layout, logged, done)
