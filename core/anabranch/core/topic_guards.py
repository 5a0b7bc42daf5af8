"""One predicate for each `TopicGuard`; the arrows' rows say which apply and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from anabranch.core.names import full_name, namespace_of
from anabranch.core.records import TopicChange
from anabranch.core.ring import topic_hash
from anabranch.core.segments import BUCKETS_MAX, SEGMENTS_MAX, SegmentInfo, SegmentState, tile
from anabranch.core.state import StateReader
from anabranch.core.topics import Operation, ScalableTopic, TopicGuard
from anabranch.core.verdicts import Verdict

Predicate = Callable[[StateReader, ScalableTopic, TopicChange], bool]


def controller_of(state: StateReader, topic: str) -> tuple[str, str]:
    """The bundle that a topic's name falls into, and the broker that may act for it ("": nobody).

    ("", "") when the namespace does not exist.
    """
    found = state.bundle_at(namespace_of(topic), topic_hash(full_name(topic)))
    return (found[0], found[1].holder) if found is not None else ("", "")


def _sound(parts: Iterable[SegmentInfo], first_id: int) -> bool:
    """Whether these are new segments with the ids from `first_id` on, in order."""
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
    match record.operation:
        case Operation.SPLIT:
            return len(active) == 1 and len(children) >= 2
        case Operation.MERGE:
            return len(active) >= 2 and len(children) == 1
        case Operation.REBUCKET:
            alone = len(active) == len(children) == 1
            return alone and active[0].buckets != children[0].buckets
        case _:
            return False


def _ends(state: StateReader, topic: ScalableTopic, record: TopicChange) -> bool:
    parents = (topic.segment(each) for each in topic.parents)
    wanted = sum(part.buckets for part in parents if part is not None)
    return len(record.end_offsets) == wanted and min(record.end_offsets, default=0) >= 0


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


TOPIC_GUARDS: Final[dict[TopicGuard, tuple[Predicate, Verdict]]] = {
    TopicGuard.CONTROLLER: (
        lambda s, t, r: controller_of(s, r.topic)[1] == r.actor,
        Verdict.NOT_CONTROLLER,
    ),
    TopicGuard.SEGMENTS_TILE: (_tile, Verdict.SEGMENTS_INVALID),
    TopicGuard.CHILDREN_FIT: (_fit, Verdict.SEGMENTS_INVALID),
    TopicGuard.ENDS_COMPLETE: (_ends, Verdict.ENDS_INCOMPLETE),
    TopicGuard.PRUNABLE: (_prunable, Verdict.NOT_DRAINED),
    TopicGuard.GARBAGE_NAMED: (
        lambda s, t, r: (
            bool(r.segment_ids) and set(r.segment_ids) <= {part.segment_id for part in t.garbage}
        ),
        Verdict.SEGMENTS_INVALID,
    ),
}
