"""The work in Kafka between two records of a topic, and the record that follows it.

The last logged step alone chooses the next one. A late or repeated step harms nothing, even by a
controller that is none any more. Kafka's names belong to one incarnation. A segment is sealed only
after SEALING was logged, which is always completed. A segment is deleted only after the log has
taken it out of the layout for good (docs/topics.md).
"""

from __future__ import annotations

import math

import msgspec

from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import TopicChange
from anabranch.core.log.state import StateReader
from anabranch.core.topics.propose import topic_change


class MakeSegments(msgspec.Struct, frozen=True):
    """Make the Kafka topics of these segments. Existing ones stay as they are.

    Nothing is committed for the subscriptions' groups. A group without an offset begins at 0, and a
    late first commit would take a consumer's own back. `off`: brokers of Kafka that they shall not
    lie on, if enough others are there.
    """

    topic: str
    incarnation: int
    segments: tuple[SegmentInfo, ...]
    off: tuple[int, ...] = ()


class SealSegments(msgspec.Struct, frozen=True):
    """Make Kafka refuse every append to these segments. The answer is their end offsets, by segment
    and partition, in order. `children`: the segments whose topic ids the answer shall also tell.
    """

    topic: str
    incarnation: int
    segments: tuple[SegmentInfo, ...]
    children: tuple[SegmentInfo, ...] = ()


class DeleteSegments(msgspec.Struct, frozen=True):
    """Delete the Kafka topics of these segments; one that is gone already counts as deleted."""

    topic: str
    incarnation: int
    segments: tuple[SegmentInfo, ...]
    subscriptions: tuple[tuple[str, int], ...] = ()  # their groups go too: names, created offsets


Task = MakeSegments | SealSegments | DeleteSegments


class TaskDone(msgspec.Struct, frozen=True):
    """A task was carried out; `end_offsets` is SealSegments' answer. `topic_ids`: Kafka's ids of
    the topics of new segments, if it tells them.
    """

    end_offsets: tuple[int, ...] = ()
    topic_ids: tuple[str, ...] = ()


class TaskFailed(msgspec.Struct, frozen=True):
    """A task was not, or not certainly, carried out. `for_good`: trying again would be in vain."""

    reason: str
    for_good: bool = False


def next_task(state: StateReader, name: str, topic: ScalableTopic) -> Task | None:
    """Returns what must be done in Kafka before the topic's next record; None: nothing."""
    incarnation = topic.incarnation
    match topic.state:
        case TopicState.CREATING:
            return MakeSegments(name, incarnation, topic.segments)
        case TopicState.PREPARING:
            return MakeSegments(name, incarnation, topic.children, topic.off)
        case TopicState.SEALING:
            parts = (topic.segment(each) for each in topic.parents)
            parents = tuple(part for part in parts if part is not None)
            return SealSegments(name, incarnation, parents, topic.children)
        case TopicState.DELETING:
            everything = (*topic.segments, *topic.children, *topic.garbage)
            every = ((each, known.group_offset) for each, known in state.subscriptions(name))
            return DeleteSegments(name, incarnation, everything, tuple(every))
        case _ if topic.garbage:
            return DeleteSegments(name, incarnation, topic.garbage)
        case _:
            return None


_AFTER = {
    TopicState.CREATING: TopicMove.OPEN,
    TopicState.PREPARING: TopicMove.SEALING,
    TopicState.SEALING: TopicMove.COMMIT,
    TopicState.DELETING: TopicMove.REMOVE,
}


def after_task(
    actor: Actor, topic: ScalableTopic, task: Task, done: TaskDone, proposal_id: str
) -> TopicChange:
    """The record that says that the task is carried out."""
    if isinstance(task, DeleteSegments) and topic.state is not TopicState.DELETING:
        gone = tuple(part.segment_id for part in task.segments)
        return topic_change(
            actor, task.topic, topic, TopicMove.CLEAR, proposal_id, segment_ids=gone
        )
    move = _AFTER[topic.state]
    ids = done.topic_ids if move in (TopicMove.OPEN, TopicMove.COMMIT) else ()
    return topic_change(
        actor,
        task.topic,
        topic,
        move,
        proposal_id,
        end_offsets=done.end_offsets,
        topic_ids=ids,
    )


def prunable(
    state: StateReader, name: str, topic: ScalableTopic, log_ms: int, kept_s: float
) -> tuple[int, ...]:
    """Sealed segments that nobody needs any more: drained by all, kept for their time, no parents.

    That time is at least the time in which producers settle doubtful messages (`kept_s`).
    """
    if topic.state is not TopicState.STABLE:
        return ()
    kept_since = log_ms - kept_s * 1000
    old = {
        part.segment_id
        for part in topic.segments
        if not part.is_active and part.sealed_at_ms <= kept_since
    }
    for _, subscription in state.subscriptions(name) if old else ():
        old &= set(subscription.drained)
    found: list[int] = []
    for part in sorted(topic.segments, key=lambda part: part.segment_id):
        if part.segment_id in old and all(up in found for up in part.parent_ids):
            found.append(part.segment_id)
    return tuple(found)


def prunable_at_ms(
    state: StateReader, name: str, topic: ScalableTopic, kept_s: float
) -> float | None:
    """The log's time at which something is prunable, if nothing is logged meanwhile; None: never.

    A segment goes with or after its parents, which were sealed before it.
    """
    roots = {
        part.segment_id for part in topic.segments if not part.is_active and not part.parent_ids
    }
    for _, subscription in state.subscriptions(name) if roots else ():
        roots &= set(subscription.drained)
    sealed_ms = (part.sealed_at_ms for part in topic.segments if part.segment_id in roots)
    first_ms = min(sealed_ms, default=math.inf) + kept_s * 1000
    return None if math.isinf(first_ms) else first_ms
