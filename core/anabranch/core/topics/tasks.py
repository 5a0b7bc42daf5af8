"""The work in Kafka between two records of a topic, and the record that follows it.

The last logged step alone chooses the next one. A late or repeated step harms nothing, even by a
controller that is none any more. Kafka's names belong to one incarnation. A segment is sealed only
after SEALING was logged, which is always completed. A segment is deleted only after the log has
taken it out of the layout for good (docs/topics.md).
"""

from __future__ import annotations

import msgspec

from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import TopicChange
from anabranch.core.log.state import StateReader
from anabranch.core.topics.propose import topic_change


class MakeSegments(msgspec.Struct, frozen=True):
    """Make the Kafka topics of these segments. Existing ones stay as they are. An adopted one must
    be there, and so must `legacy`, which they will replace: with their ids and partitions. Kafka
    must be ready to open `opened` by `own_settings`.

    Nothing is committed for the subscriptions' groups. A group without an offset begins at 0, and a
    late first commit would take a consumer's own back.
    """

    topic: str
    incarnation: int
    segments: tuple[SegmentInfo, ...]
    legacy: tuple[SegmentInfo, ...] = ()
    opened: SegmentInfo | None = None
    own_settings: tuple[str, ...] = ()


class SealSegments(msgspec.Struct, frozen=True):
    """Make Kafka refuse every append to these segments. The answer is their end offsets, by segment
    and partition, in order. `children`: the segments whose topic ids the answer shall also tell.
    `opened`: the sealed segment whose Kafka topic takes messages again once all of these refuse, by
    `own_settings`.
    """

    topic: str
    incarnation: int
    segments: tuple[SegmentInfo, ...]
    children: tuple[SegmentInfo, ...] = ()
    opened: SegmentInfo | None = None
    own_settings: tuple[str, ...] = ()


class DeleteSegments(msgspec.Struct, frozen=True):
    """Delete the Kafka topics of these segments; one that is gone already counts as deleted."""

    topic: str
    incarnation: int
    segments: tuple[SegmentInfo, ...]
    subscriptions: tuple[tuple[str, int], ...] = ()  # their groups go too: names, created offsets


Task = MakeSegments | SealSegments | DeleteSegments


class TaskDone(msgspec.Struct, frozen=True):
    """A task was carried out; `end_offsets` is SealSegments' answer. `topic_ids`: Kafka's ids of
    the topics of new segments, if it tells them. `own_settings`: those of an adopted Kafka topic
    that its seal will replace: name, value, name, value.
    """

    end_offsets: tuple[int, ...] = ()
    topic_ids: tuple[str, ...] = ()
    own_settings: tuple[str, ...] = ()


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
            parts = (topic.segment(each) for each in topic.parents)
            legacy = tuple(part for part in parts if part is not None and part.is_legacy)
            own = topic.own_settings
            return MakeSegments(name, incarnation, topic.children, legacy, topic.continued, own)
        case TopicState.SEALING:
            known = {part.segment_id: part for part in topic.segments}
            parents = tuple(known[each] for each in topic.parents)
            return SealSegments(
                name, incarnation, parents, topic.children, topic.continued, topic.own_settings
            )
        case TopicState.DELETING:
            every_part = (*topic.segments, *topic.children, *topic.garbage)
            everything = tuple(part for part in every_part if not part.is_legacy)
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
        properties=done.own_settings if move is TopicMove.SEALING else (),
    )
