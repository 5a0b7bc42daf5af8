"""Which consumer shall have which buckets: one pure function (seeds 001 and 002).

The target depends on the layout and the folded subscription alone, so every controller of a topic
comes to the same one. When a bucket may actually be given out is another matter: `coordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

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


def drainable(layout: SegmentLayout, subscription: Subscription) -> frozenset[int]:
    """Sealed segments whose backlog several consumers could read at once, each its buckets."""
    if subscription.kind is not SubscriptionKind.STREAM:
        return frozenset()
    parts = assignable(layout, subscription.drained)
    return frozenset(p.segment_id for p in parts if not p.is_active and p.buckets > 1)


def target(
    layout: SegmentLayout, subscription: Subscription, draining: frozenset[int] = frozenset()
) -> dict[str, Shares]:
    """What each registered consumer shall have; every name of the subscription is a key.

    The buckets of `draining` segments, which are among the `drainable`, are dealt out to as many
    consumers as can have one (seed 002, use case 1), whatever else those have.

    Segments go round-robin, by range, to consumers by name. When there are more consumers than
    segments, those left over are dealt out one by one over the segments that have more buckets than
    owners, and the owners of a segment share its buckets in runs; whoever is left over then, and
    in a checkpoint group everybody left over, stays idle.
    """
    names = sorted(subscription.consumers)
    parts = assignable(layout, subscription.drained)
    whole = subscription.kind is SubscriptionKind.CHECKPOINT
    shares: dict[str, dict[int, Buckets]] = {name: {} for name in names}
    if not names or not parts:
        return dict(shares)
    if len(names) <= len(parts) or whole:
        for place, part in enumerate(parts):
            shares[names[place % len(names)]][part.segment_id] = tuple(range(part.buckets))
    else:
        taken = 0
        for part, owners in zip(parts, _owner_counts(parts, len(names)), strict=True):
            for place, run in enumerate(_runs(part.buckets, owners)):
                shares[names[taken + place]][part.segment_id] = run
            taken += owners
    for part in parts:
        if part.segment_id in draining:
            _fan_out(part, names, shares)
    return dict(shares)


def _fan_out(part: SegmentInfo, names: list[str], shares: dict[str, dict[int, Buckets]]) -> None:
    """Deals a segment out to as many as can share it, from the consumer on who has it anyway."""
    having = [name for name in names if shares[name].pop(part.segment_id, None) is not None]
    first = names.index(having[0])
    for place, run in enumerate(_runs(part.buckets, min(len(names), part.buckets))):
        shares[names[(first + place) % len(names)]][part.segment_id] = run


def _runs(buckets: int, owners: int) -> list[Buckets]:
    """Consumer j of k has buckets floor(j * N / k) up to but without floor((j + 1) * N / k)."""
    edges = [place * buckets // owners for place in range(owners + 1)]
    return [tuple(range(low, high)) for low, high in pairwise(edges)]


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
