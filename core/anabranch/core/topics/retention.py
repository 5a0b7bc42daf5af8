"""Rules of retention and its times: positions, messages, subscriptions.

Two words say how long messages are kept. Messages that every subscription has read (all, if there
is none) are kept for the *read* time, counted from their writing. Messages that one has yet to read
are kept for the *unread* time, which is no less, or for ever. Kafka itself sees to the second. The
first is a decision of the topic's controller, which knows each subscription's progress.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionKind,
)
from anabranch.core.subscriptions.draining import Bucket

_Place = TypeVar("_Place", bound=Hashable)

_WARNED: Final = 0.25  # share of its time before its end in which a subscription expires soon
_TOLD: Final = 0.1  # share of its time after which the log is told that a queue is in use


class Retention(msgspec.Struct, frozen=True):
    """An operator's settings. Durations in seconds; infinite: for ever.

    `expiry_s`: the time for which an unused subscription is kept.
    """

    read_s: float = 604_800.0
    unread_s: float = math.inf
    expiry_s: float = math.inf


def written_down(
    known: Subscription, parts: Iterable[SegmentInfo], at: Mapping[Bucket, int]
) -> tuple[SegmentPositions, ...]:
    """The positions that the log should have for a subscription that goes on at `at`.

    A drained segment needs none, nor does a segment that is unread.
    """
    found = []
    for part in parts:
        if part.segment_id in known.drained:
            continue
        offsets = tuple(at.get((part.segment_id, bucket), 0) for bucket in range(part.buckets))
        if part.end_offsets:  # a probe of a sealed segment is no message
            offsets = tuple(map(min, offsets, part.end_offsets))
        if any(offsets):
            found.append(SegmentPositions(part.segment_id, offsets))
    return tuple(found)


def trims(
    begins: Mapping[_Place, int],
    old: Mapping[_Place, int],
    positions: Iterable[Mapping[_Place, int]],
) -> dict[_Place, int]:
    """The offsets up to which each bucket may be deleted now, exclusive, for buckets with a
    deletion.

    `begins`: the first offsets that still exist; `old`: the first offset that is too young to be
    deleted; `positions`: for every subscription, its next message in each bucket. A bucket stays as
    it is if a subscription has no position in it.

    >>> trims({"a": 2, "b": 0, "c": 0}, {"a": 9, "b": 9, "c": 9}, [{"a": 7, "b": 0}])
    {'a': 7}
    """
    found = {}
    everybody = list(positions)
    for place, begin in begins.items():
        least = min((each.get(place, 0) for each in everybody), default=old[place])
        if (up_to := min(least, old[place])) > begin:
            found[place] = up_to
    return found


class Expiring(msgspec.Struct, frozen=True):
    """`left_s`: the seconds until an unused subscription is deleted. `soon`: True if a warning is
    due.

    `untold`: the log must hear whether it is in use, because no record has a queue's consumers.
    """

    left_s: float
    soon: bool
    untold: bool


def expiring(known: Subscription, log_ms: int, expiry_s: float) -> Expiring | None:
    """Returns the expiry of an unused subscription; None: it does not expire.

    The log has the time of consumers that come or leave, and of positions that move.
    """
    if math.isinf(expiry_s):
        return None
    rest_s = (log_ms - known.since_ms) / 1000
    if known.kind is SubscriptionKind.QUEUE:
        left_s = expiry_s * (1 + _TOLD) - rest_s
        return Expiring(left_s, left_s <= expiry_s * _WARNED, rest_s >= expiry_s * _TOLD)
    left_s = expiry_s - rest_s
    return Expiring(left_s, left_s <= expiry_s * _WARNED, False)
