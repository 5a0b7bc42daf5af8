"""The target of buckets for each consumer: one pure function, `target` (PIP-468 and PIP-486).

While all consumers are there, the target depends on the layout and the folded subscription alone.
So every controller of a topic reaches the same one. An absent consumer keeps the rest of its share
(`target_assignment`) and is dealt nothing new. `handover` decides the time at which a bucket may be
given out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Set
from itertools import pairwise

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription
from anabranch.core.subscriptions.draining import assignable

Buckets = tuple[int, ...]
Shares = Mapping[int, Buckets]  # segment id to buckets
Kept = Set[tuple[int, int]] | None  # segment ids and buckets; None: all that it is dealt


def target(
    layout: SegmentLayout,
    subscription: Subscription,
    draining: frozenset[int] = frozenset(),
    absent: Mapping[str, Kept] | None = None,
) -> dict[str, Shares]:
    """Returns the share that each registered consumer shall have; every name of the subscription is
    a key.

    Each of the `absent` gets of its share only the part that it keeps. The rest goes to the present
    ones, bucket by bucket to the one with the fewest. An absent consumer that keeps nothing is not
    counted at all.

    The buckets of `draining` segments, which are among the `drainable`, are dealt out to as many
    consumers as can have one (PIP-486, use case 1). Their other buckets do not count.

    Segments go round-robin, by range, to consumers by name. If there are more consumers than
    segments, the others are dealt out one by one over the segments that have more buckets than
    owners. The owners of a segment share its buckets in runs; a consumer that is still without a
    bucket stays idle.
    """
    keeps = dict(absent or {})
    parts = assignable(layout, subscription.drained)
    while True:
        names = sorted(n for n in subscription.consumers if n not in keeps or keeps[n] != set())
        shares = _dealt(parts, names, draining)
        left: list[tuple[int, int]] = []
        for name, kept in keeps.items():
            if kept and name in shares:
                keeps[name], rest = _cut(shares, name, kept)
                left += rest
        if all(keeps.get(name) != set() for name in names):
            break
    there = [name for name in names if name not in keeps]
    if there and left:
        _hand_out(sorted(left), there, shares)
    return {name: shares.get(name, {}) for name in sorted(subscription.consumers)}


def taken_over(
    shares: Mapping[str, Shares], name: str, buckets: Set[tuple[int, int]]
) -> dict[str, Shares]:
    """Returns the shares with these buckets given to that consumer, instead of their
    earlier one.
    """
    found: dict[str, Shares] = {}
    for each, share in shares.items():
        mine = {(segment_id, b) for segment_id, bs in share.items() for b in bs}
        found[each] = _by_segment(mine | buckets if each == name else mine - buckets)
    return found


def _dealt(
    parts: list[SegmentInfo], names: list[str], draining: frozenset[int]
) -> dict[str, dict[int, Buckets]]:
    shares: dict[str, dict[int, Buckets]] = {name: {} for name in names}
    if not names or not parts:
        return shares
    if len(names) <= len(parts):
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
    return shares


def _cut(
    shares: dict[str, dict[int, Buckets]], name: str, kept: Set[tuple[int, int]]
) -> tuple[Set[tuple[int, int]], list[tuple[int, int]]]:
    """Leaves in a share only the kept part; returns that, and the removed part."""
    due = [(segment_id, b) for segment_id, buckets in shares[name].items() for b in buckets]
    still = kept & set(due)
    shares[name] = _by_segment(still)
    return still, [bucket for bucket in due if bucket not in still]


def _hand_out(
    left: list[tuple[int, int]], names: list[str], shares: dict[str, dict[int, Buckets]]
) -> None:
    fewest = [(sum(map(len, shares[name].values())), name) for name in names]
    heapq.heapify(fewest)
    for segment_id, bucket in left:
        count, name = fewest[0]
        shares[name][segment_id] = tuple(sorted((*shares[name].get(segment_id, ()), bucket)))
        heapq.heapreplace(fewest, (count + 1, name))


def _by_segment(buckets: Iterable[tuple[int, int]]) -> dict[int, Buckets]:
    found: dict[int, Buckets] = {}
    for segment_id, bucket in sorted(buckets):
        found[segment_id] = (*found.get(segment_id, ()), bucket)
    return found


def _fan_out(part: SegmentInfo, names: list[str], shares: dict[str, dict[int, Buckets]]) -> None:
    """Deals a segment out to as many as can share it, from its present consumer on."""
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
