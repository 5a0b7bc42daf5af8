"""Which consumer shall have which buckets: one pure function (seeds 001 and 002).

The target depends on the layout and the folded subscription alone, so every controller of a topic
comes to the same one. When a bucket may actually be given out is another matter: `coordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.core.layout import SegmentLayout
from anabranch.core.segments import SegmentInfo
from anabranch.core.subscriptions import Subscription, SubscriptionKind

Buckets = tuple[int, ...]
Shares = Mapping[int, Buckets]  # segment id to buckets


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


def target(layout: SegmentLayout, subscription: Subscription) -> dict[str, Shares]:
    """What each registered consumer shall have; every name of the subscription is a key.

    Segments go round-robin, by range, to consumers by name. When there are more consumers than
    segments, those left over are dealt out one by one over the segments that have more buckets than
    owners, and the owners of a segment share its buckets in runs; whoever is left over then, and
    in a checkpoint group everybody left over, stays idle.
    """
    names = sorted(subscription.consumers)
    parts = assignable(layout, subscription.drained)
    shares: dict[str, dict[int, Buckets]] = {name: {} for name in names}
    if not names or not parts:
        return dict(shares)
    whole = subscription.kind is SubscriptionKind.CHECKPOINT
    if len(names) <= len(parts) or whole:
        for place, part in enumerate(parts):
            shares[names[place % len(names)]][part.segment_id] = tuple(range(part.buckets))
        return dict(shares)
    taken = 0
    for part, owners in zip(parts, _owner_counts(parts, len(names)), strict=True):
        for place in range(owners):
            low = place * part.buckets // owners
            high = (place + 1) * part.buckets // owners
            shares[names[taken + place]][part.segment_id] = tuple(range(low, high))
        taken += owners
    return dict(shares)


def _owner_counts(parts: list[SegmentInfo], consumers: int) -> list[int]:
    counts = [1] * len(parts)
    left = consumers - len(parts)
    while left > 0:
        before = left
        for place, part in enumerate(parts):
            if left > 0 and counts[place] < part.buckets:
                counts[place] += 1
                left -= 1
        if left == before:
            break
    return counts
