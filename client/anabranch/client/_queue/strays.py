"""Messages behind a segment's logged end, which are none of the topic's."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.client._consumer.assignment import Assignment, Partition
from anabranch.client._consumer.reads import partition_of
from anabranch.client._queue.messages import REJECT, Delivery
from anabranch.wire.logging import EventLog


def without_strays(
    delivery: Delivery, assignment: Assignment | None, logger: EventLog
) -> Sequence[int]:
    """Returns the indices of messages to give out. It rejects those behind a logged end."""
    every = range(len(delivery.messages))
    sealed = () if assignment is None else assignment.segments
    ends = {each.kafka_topic: each.end_offsets for each in sealed if each.end_offsets}
    if delivery.counts.keys().isdisjoint(ends):
        return every
    strays: dict[Partition, list[int]] = {}
    for index, message in enumerate(delivery.messages):
        topic, bucket = place = partition_of(message)
        if topic in ends and (message.offset() or 0) >= ends[topic][bucket]:
            strays.setdefault(place, []).append(index)
    for (topic, bucket), found in strays.items():
        end = ends[topic][bucket]
        read_to = max(delivery.messages[index].offset() or 0 for index in found) + 1
        logger.warning(
            "consumer.strays", kafka_topic=topic, bucket=bucket, end=end, read_to=read_to
        )
        for index in found:
            delivery.acknowledge(index, REJECT)
    left_out = {index for found in strays.values() for index in found}
    return [index for index in every if index not in left_out] if left_out else every
