"""Rules of retention and its times: sealed segments, positions, messages, subscriptions.

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
from anabranch.core.entities.topic import ScalableTopic, TopicState
from anabranch.core.log.state import StateReader
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


def prunable(
    state: StateReader, name: str, topic: ScalableTopic, log_ms: int, kept_s: float
) -> tuple[int, ...]:
    """Sealed segments that nobody needs any more: drained by all, kept for their time, no parents.

    That time is at least the time in which producers settle doubtful messages (`kept_s`). An
    adopted Kafka topic may have to stay, and all that descends from it with it.
    """
    if topic.state is not TopicState.STABLE:
        return ()
    kept_since = log_ms - kept_s * 1000
    old = {
        part.segment_id
        for part in topic.segments
        if _may_go(topic, part) and part.sealed_at_ms <= kept_since
    }
    for _, subscription in state.subscriptions(name) if old else ():
        old &= set(subscription.drained)
    found: list[int] = []
    for part in sorted(topic.segments, key=lambda part: part.segment_id):
        if part.segment_id in old and all(up in found for up in part.parent_ids):
            found.append(part.segment_id)
    return tuple(found)


def _may_go(topic: ScalableTopic, part: SegmentInfo) -> bool:
    return not part.is_active and not (part.is_legacy and topic.keeps_adopted)


def unsettled_s(part: SegmentInfo, log_ms: int, settled_s: float) -> float:
    """The seconds for which some client may yet take a sealed segment for an open one.

    Of an adopted Kafka topic that was given back: for which a late request of a former controller
    may open it once more.
    """
    if part.is_active and not part.begins_late:
        return 0.0
    since_ms = part.created_at_ms if part.is_active else part.sealed_at_ms
    return max(0.0, settled_s - (log_ms - since_ms) / 1000)


def prunable_at_ms(
    state: StateReader, name: str, topic: ScalableTopic, kept_s: float
) -> float | None:
    """The log's time at which something is prunable, if nothing is logged meanwhile; None: never.

    A segment goes with or after its parents, which were sealed before it.
    """
    roots = {
        part.segment_id for part in topic.segments if _may_go(topic, part) and not part.parent_ids
    }
    for _, subscription in state.subscriptions(name) if roots else ():
        roots &= set(subscription.drained)
    sealed_ms = (part.sealed_at_ms for part in topic.segments if part.segment_id in roots)
    first_ms = min(sealed_ms, default=math.inf) + kept_s * 1000
    return None if math.isinf(first_ms) else first_ms


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
