"""The guards of a scalable topic's records: what must hold before each, by the state before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.core.adoption.adoptable import allows
from anabranch.core.entities.giving_back import continuation
from anabranch.core.entities.segment import (
    BUCKETS_MAX,
    SEGMENTS_MAX,
    SegmentInfo,
    SegmentState,
    descent,
    stretches,
    tile,
)
from anabranch.core.entities.subscription import SubscriptionKind
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
        and (part.is_legacy or not (part.partitioner or part.start_offsets))
        for place, part in enumerate(parts)
    )


def _tile(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parts = record.segments
    adopts = any(part.is_legacy for part in parts)
    return (
        1 <= len(parts) <= (1 if adopts else SEGMENTS_MAX)
        and _sound(parts, 0)
        and not any(part.parent_ids or part.start_offsets for part in parts)
        and tile(parts)
    )


def _fit(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    known = {part.segment_id: part for part in topic.segments if part.is_active}
    active = [known[each] for each in record.parents if each in known]
    children = record.segments
    if not active or len(active) != len(record.parents):
        return False
    if not _sound(children, topic.next_segment_id):
        return False
    # The children cover exactly what the parents covered, each hash once.
    covered = stretches(active)
    if covered is None or covered != stretches(children):
        return False
    # Each waits for the parents whose hashes it takes, and for no other.
    above = descent(active, (child.range for child in children))
    if any(
        tuple(sorted(child.parent_ids)) != ids for child, ids in zip(children, above, strict=True)
    ):
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
        case Operation.RESTORE:
            alone = len(active) == len(children) == 1
            return alone and active[0].buckets == children[0].buckets
        case Operation.PREPARE | Operation.GIVE_BACK:
            return True
        case _:
            return False


def _cuts_over(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = (topic.segment(each) for each in record.parents)
    adopted = any(part is not None and part.is_legacy for part in parents)
    cuts = record.operation is Operation.PREPARE or not adopted
    gives_back = record.operation is Operation.GIVE_BACK
    return cuts and (gives_back or not any(child.is_legacy for child in record.segments))


def _gives_back(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    if record.operation is not Operation.GIVE_BACK:
        return True
    sealed = topic.cut_over
    if sealed is None or len(record.segments) != 1:
        return False
    child = record.segments[0]
    return child == continuation(sealed, child.segment_id, child.parent_ids)


def _read_before(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    sealed = topic.cut_over if record.operation is Operation.GIVE_BACK else None
    if sealed is None:
        return True
    # A queue's group in Kafka could not be told to begin there, because it has members.
    return not sealed.parent_ids and all(
        known.kind is not SubscriptionKind.QUEUE and sealed.segment_id in known.drained
        for _, known in state.subscriptions(record.topic)
    )


def _ends(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = set(topic.parents)
    wanted = sum(part.buckets for part in topic.segments if part.segment_id in parents)
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


def _adoptable(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    home = namespace_of(record.topic)
    adopted = [part.legacy_topic for part in record.segments if part.is_legacy]
    return all(allows(record.adoptable, home, each) for each in adopted)


def _adopted_once(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    wanted = {part.legacy_topic for part in record.segments if part.is_legacy}
    if not wanted:
        return True
    others = state.topic_states(namespace_of(record.topic))
    return not any(part.legacy_topic in wanted for _, other in others for part in other.segments)


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
ADOPTABLE: Final = TopicGuard(
    "an adopted Kafka topic is one that the record's setting names for the namespace",
    _adoptable,
    Verdict.NOT_ADOPTABLE,
)
ADOPTED_ONCE: Final = TopicGuard(
    "no other topic of the namespace has the adopted Kafka topic",
    _adopted_once,
    Verdict.ALREADY_ADOPTED,
)
CHILDREN_FIT: Final = TopicGuard(
    "the record's children can take the place of its parents", _fit, Verdict.SEGMENTS_INVALID
)
CUTS_OVER: Final = TopicGuard(
    "only a preparation replaces an adopted Kafka topic, and by segments of our making",
    _cuts_over,
    Verdict.SEGMENTS_INVALID,
)
GIVES_BACK: Final = TopicGuard(
    "what is given back is the Kafka topic that was cut over, from its ends on",
    _gives_back,
    Verdict.SEGMENTS_INVALID,
)
READ_BEFORE: Final = TopicGuard(
    "no subscription is a queue, all have drained what is given back, and nothing is above it",
    _read_before,
    Verdict.NOT_DRAINED,
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
