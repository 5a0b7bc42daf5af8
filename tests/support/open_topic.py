"""An open topic, as the log has it."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState


def topic_of(incarnation: int, segments: Collection[SegmentInfo]) -> ScalableTopic:
    """An open topic."""
    return ScalableTopic(
        state=TopicState.STABLE,
        version=2,
        opened=2,
        incarnation=incarnation,
        next_segment_id=len(segments),
        segments=tuple(segments),
        operation=Operation.NONE,
        parents=(),
        children=(),
        garbage=(),
        properties=(),
        move=TopicMove.OPEN,
        since_ms=0,
        since_offset=0,
        created_ms=0,
        proposal_id="p",
    )
