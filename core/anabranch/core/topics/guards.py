"""The guards of topics' moves; the rows of `machine` say which apply and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.core.entities.segment import (
    BUCKETS_MAX,
    SEGMENTS_MAX,
    SegmentInfo,
    SegmentState,
    tile,
)
from anabranch.core.entities.topic import Operation, ScalableTopic
from anabranch.core.log.records import TopicChange
from anabranch.core.log.state import StateReader
from anabranch.core.log.state_machine import Guard
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import namespace_of
from anabranch.core.tenants.limits import TenantLimit, has_room, limit_in_force

TopicGuard = Guard[ScalableTopic, TopicChange]


def _sound(parts: Iterable[SegmentInfo], first_id: int) -> bool:
    """Tells whether these are new segments with the ids from `first_id` on, in order."""
    return all(
        part.segment_id == first_id + place
        and 1 <= part.buckets <= BUCKETS_MAX
        and part.state is SegmentState.ACTIVE
        and not part.child_ids
        and not part.end_offsets
        for place, part in enumerate(parts)
    )


def _tile(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parts = record.segments
    return (
        1 <= len(parts) <= SEGMENTS_MAX
        and _sound(parts, 0)
        and not any(part.parent_ids for part in parts)
        and tile(parts)
    )


def _fit(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = [topic.segment(each) for each in record.parents]
    active = [part for part in parents if part is not None and part.is_active]
    children = record.segments
    if not children or not active or len(active) != len(parents):
        return False
    if not _sound(children, topic.next_segment_id):
        return False
    if any(child.parent_ids != record.parents for child in children):
        return False
    if len(set(record.parents)) != len(parents):
        return False
    start = min(part.start for part in active)
    end = max(part.end for part in active)
    # The parents must be neighbours, and the children must cover exactly what they covered.
    if not tile(active, start, end) or not tile(children, start, end):
        return False
    if len(record.end_offsets) not in (0, active[0].buckets):
        return False
    match record.operation:
        case Operation.SPLIT:
            return len(active) == 1 and len(children) >= 2
        case Operation.MERGE:
            return len(active) >= 2 and len(children) == 1
        case Operation.REBUCKET:
            alone = len(active) == len(children) == 1
            return alone and active[0].buckets != children[0].buckets
        case Operation.RELOCATE | Operation.RESTORE:
            alone = len(active) == len(children) == 1
            return alone and active[0].buckets == children[0].buckets
        case _:
            return False


def _ends(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = (topic.segment(each) for each in topic.parents)
    wanted = sum(part.buckets for part in parents if part is not None)
    return len(record.end_offsets) == wanted and all(end >= 0 for end in record.end_offsets)


def _prunable(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    ids = record.segment_ids
    if not ids or len(set(ids)) != len(ids):
        return False
    for each in ids:
        part = topic.segment(each)
        if part is None or part.is_active or any(up not in ids for up in part.parent_ids):
            return False
    subscriptions = state.subscriptions(record.topic)
    return all(set(ids) <= set(subscription.drained) for _, subscription in subscriptions)


def _has_room(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    home, what = namespace_of(record.topic), TenantLimit.MAX_TOPICS_PER_NAMESPACE
    return has_room(limit_in_force(state, home, what, record.limit), state.topics(home))


def _as_it_was(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parts = [topic.segment(each) for each in record.segment_ids]
    ends = [part.end_offsets for part in parts if part is not None and not part.is_active]
    return len(parts) == 1 and ends == [record.end_offsets] and any(record.end_offsets)


SEGMENTS_TILE: Final = TopicGuard(
    "the record's segments are a first layout", _tile, Verdict.SEGMENTS_INVALID
)
TOPIC_ROOM: Final = TopicGuard(
    "the namespace has fewer topics than its limit, or else the record's",
    _has_room,
    Verdict.LIMIT_REACHED,
)
CHILDREN_FIT: Final = TopicGuard(
    "the record's children can take the place of its parents", _fit, Verdict.SEGMENTS_INVALID
)
ENDS_COMPLETE: Final = TopicGuard(
    "there is one end offset for each partition of each parent", _ends, Verdict.ENDS_INCOMPLETE
)
PRUNABLE: Final = TopicGuard(
    "the segments are sealed roots that every subscription has drained",
    _prunable,
    Verdict.NOT_DRAINED,
)
LOST_AS_IT_WAS: Final = TopicGuard(
    "the record names one sealed segment, and where it ended, which was not where it began",
    _as_it_was,
    Verdict.SEGMENTS_INVALID,
)
GARBAGE_NAMED: Final = TopicGuard(
    "the segments are what waits to be deleted",
    lambda s, t, r: (
        bool(r.segment_ids) and set(r.segment_ids) <= {part.segment_id for part in t.garbage}
    ),
    Verdict.SEGMENTS_INVALID,
)
