"""A topic goes on without a segment whose Kafka topic somebody has deleted.

A segment that took messages is sealed while Kafka has nothing of it, so it ends where it began, and
a successor of the same range and buckets takes messages. A segment that was sealed before is logged
to end where it began (LOST). Either way every subscription has drained it at once.
"""

from __future__ import annotations

from anabranch.broker.errors import NotFoundError, PreconditionError, UnavailableError
from anabranch.broker.logging import get_logger
from anabranch.broker.requester import principal
from anabranch.broker.topics.controllers.access import active_segments
from anabranch.broker.topics.kafka_threads import told
from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.log.records import TopicChange
from anabranch.core.names import full_name
from anabranch.core.topics.kafka_names import kafka_topic


async def restore(topics: TopicOperations, name: str, segment_id: int) -> None:
    """Goes on without that segment; nothing is to be done where that was done before.

    Raises as `TopicOperations.split`, PreconditionError also while Kafka has the segment's topic.
    """
    topic = await topics.controlled(name)
    part = topic.segment(segment_id)
    if part is None:
        raise NotFoundError(f"Segment not found: {segment_id}; {active_segments(topic)}")
    if not part.is_active and not any(part.end_offsets):
        return
    if part.is_active and part.is_legacy:
        raise PreconditionError(
            f"{full_name(name)} is the adopted Kafka topic {part.legacy_topic}, whose place no "
            "segment can take without a cut-over: release it (anabranch topics release)"
        )
    await _must_be_lost(topics, name, topic, part)
    ends = part.end_offsets or topics.looks.last_ends(name, topic.incarnation, segment_id)

    def lost(topic: ScalableTopic) -> TopicChange | None:
        now = topic.segment(segment_id)
        if now is None or not any(now.end_offsets):
            return None
        return topics.access.proposal(
            name, topic, TopicMove.LOST, segment_ids=(segment_id,), end_offsets=now.end_offsets
        )

    if part.is_active:
        await topics.operate(
            name,
            Operation.RESTORE,
            f"of {segment_id}",
            lambda layout: layout.restore_children(segment_id),
            end_offsets=ends,
        )
    else:
        await topics.access.change(name, lost)
    get_logger(broker=topics.access.runtime.core.me).warning(
        "segment.restored",
        topic=name,
        segment=segment_id,
        range=part.descriptor,
        lost_before=",".join(map(str, ends)) or "unknown",
        principal=principal(),
    )


async def _must_be_lost(
    topics: TopicOperations, name: str, topic: ScalableTopic, part: SegmentInfo
) -> None:
    workers = topics.access.service.workers
    where = kafka_topic(topics.access.service.prefix, name, topic.incarnation, part)
    found = await told(workers.look([where]))
    if where not in found:
        raise UnavailableError(f"Kafka does not say whether it has topic {where}; try again")
    is_there = found[where] is not None
    if not is_there and not part.is_active and not part.is_legacy:
        # The broker asked may have been behind; Kafka's controller, which seals, never is.
        is_there = any((await told(workers.seal_again(SegmentTopic(where, part.buckets))))[where])
    if is_there:
        raise PreconditionError(
            f"segment {part.descriptor} of {full_name(name)} is not lost: Kafka has its topic, "
            f"{where}. If that is another one, made anew under its name, delete it first"
        )
