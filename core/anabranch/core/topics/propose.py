"""Proposals on scalable topics, for the next version of each."""

from __future__ import annotations

from typing import Any

from anabranch.core.autoscale.decisions import Merge, Rebucket, Split
from anabranch.core.bundles.propose import Actor
from anabranch.core.entities.segment import parents_of
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.log.records import TopicCause, TopicChange


def topic_change(
    actor: Actor,
    name: str,
    topic: ScalableTopic | None,
    move: TopicMove,
    proposal_id: str,
    cause: TopicCause = TopicCause.PROTOCOL,
    **fields: Any,
) -> TopicChange:
    """A proposal for the topic's next version."""
    return TopicChange(
        proposal_id=proposal_id,
        topic=name,
        move=move,
        version=(topic.version if topic is not None else 0) + 1,
        cause=cause,
        **actor.signature(),
        **fields,
    )


def action_change(
    actor: Actor,
    name: str,
    topic: ScalableTopic,
    action: Split | Merge | Rebucket,
    proposal_id: str,
    buckets_max: int,
) -> TopicChange:
    """The BEGIN of a decision; for a Rebucket, that of its first segment.

    Raises InvalidInputError if the layout does not allow it.
    """
    layout = topic.layout
    match action:
        case Split(segment_id):
            operation, children = Operation.SPLIT, layout.split_children(segment_id)
        case Merge(first_id, second_id):
            operation = Operation.MERGE
            children = layout.merge_children(first_id, second_id, buckets_max)
        case Rebucket(segment_ids, buckets):
            operation = Operation.REBUCKET
            children = layout.rebucket_children(segment_ids[0], buckets)
    return topic_change(
        actor,
        name,
        topic,
        TopicMove.BEGIN,
        proposal_id,
        TopicCause[action.reason.name],
        operation=operation,
        parents=parents_of(children),
        segments=children,
    )
