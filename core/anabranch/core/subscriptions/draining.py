"""The segments that a subscription has finished, and those that it may read because of that.

The server of a bucket says that it is drained, and the coordinator adds that up. The positions say
it as well, in three cases. A subscription without consumers will not read a sealed segment again
that it has committed up to the end. Kafka gives no consumer the messages that a queue has
acknowledged, consumed or not. No subscription can read messages that retention has removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription, SubscriptionKind

Bucket = tuple[int, int]  # segment id, bucket


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


def assignable(layout: SegmentLayout, drained: Iterable[int]) -> list[SegmentInfo]:
    """The segments that may be given out, in ring order, then by id (drain gating).

    A segment, sealed or active, waits until the subscription has drained all its ancestors that
    are still in the DAG; a sealed one that is drained itself is not given out any more.
    """
    done = frozenset(drained)
    found = [
        part
        for part in layout.segments.values()
        if part.segment_id not in done
        and (not part.parent_ids or layout.ancestors(part.segment_id) <= done)
    ]
    return sorted(found, key=lambda part: (part.start, part.end, part.segment_id))


def drainable(layout: SegmentLayout, subscription: Subscription) -> frozenset[int]:
    """Sealed segments whose backlog several consumers could read at once, each its buckets."""
    if subscription.kind is SubscriptionKind.QUEUE:
        return frozenset()
    parts = assignable(layout, subscription.drained)
    return frozenset(p.segment_id for p in parts if not p.is_active and p.buckets > 1)
