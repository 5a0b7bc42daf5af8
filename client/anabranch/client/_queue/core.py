"""`QueueCore`: the segments that a queue's consumer polls, and their ends: no I/O.

Its session with the controller is a `ConsumerCore`, as for every consumer.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._topics.layout import TopicLayout


class QueueCore:
    """The decisions of one consumer of a queue."""

    def __init__(self, session: ConsumerCore) -> None:
        self.group_id = ""  # the group that it reads in, from its first assignment on
        self._session = session

    @property
    def is_replaced(self) -> bool:
        """True if the subscription has another group by now, which is not read here."""
        assignment = self._session.assignment
        if not self.group_id or assignment is None:
            return False
        return assignment.group_id != self.group_id

    def segments(self, layout: TopicLayout) -> Iterator[tuple[str, int]]:
        """Yields the segments to poll: all that are not drained for all, and those that are about
        to come.
        """
        assignment = self._session.assignment
        for each in () if assignment is None else assignment.segments:
            yield each.kafka_topic, each.segment_id
        coming = layout.children if layout.sealing else ()
        for part in (*layout.active, *coming):
            yield part.kafka_topic, part.segment_id

    def ends(self) -> dict[str, tuple[int, ...]]:
        """Returns the ends of the buckets of sealed segments, by Kafka topic."""
        assignment = self._session.assignment
        segments = () if assignment is None else assignment.segments
        return {each.kafka_topic: each.end_offsets for each in segments if each.end_offsets}
