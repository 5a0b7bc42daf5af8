"""`QueueCore`: which segments a queue's consumer polls, and which it calls drained: no I/O.

Its session with the controller is a `ConsumerCore`, as every consumer's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._queue.drain import QuietClock
from anabranch.client._topics.layout import TopicLayout


class QueueCore:
    """What one consumer of a queue decides; `begin` once it knows how long Kafka locks."""

    def __init__(self, session: ConsumerCore) -> None:
        self.group_id = ""  # that it reads in, from its first assignment on
        self.quiet = QuietClock(math.inf)
        self._session = session

    def begin(self, lock_s: float) -> None:
        """Kafka locks a message for so long."""
        self.quiet = QuietClock(lock_s)

    @property
    def is_replaced(self) -> bool:
        """Whether the subscription has another group by now.

        The silence of one group says nothing of another: in that nothing is read here.
        """
        assignment = self._session.assignment
        if not self.group_id or assignment is None:
            return False
        return assignment.group_id != self.group_id

    def segments(self, layout: TopicLayout) -> Iterator[tuple[str, int]]:
        """What to poll: all that is not drained for all, and what is about to come."""
        assignment = self._session.assignment
        for each in () if assignment is None else assignment.segments:
            yield each.kafka_topic, each.segment_id
        coming = layout.children if layout.sealing else ()
        for part in (*layout.active, *coming):
            yield part.kafka_topic, part.segment_id

    def ends(self) -> dict[str, tuple[int, ...]]:
        """Where the buckets of sealed segments end, by Kafka topic."""
        assignment = self._session.assignment
        segments = () if assignment is None else assignment.segments
        return {each.kafka_topic: each.end_offsets for each in segments if each.end_offsets}

    def follow_drained(self) -> None:
        """Tells the session what is drained, again after each new one, and what is no more."""
        ends = {n: (h, h.end_offset) for n, h in self._session.fetches.items()}
        self.quiet.follow({h.kafka_topic for h, end in ends.values() if end is not None})
        drained = set(self.quiet.drained())
        for number, (holding, end) in ends.items():
            if end is None:
                continue
            if holding.kafka_topic in drained:
                self._session.on_position(number, end)
            elif holding.drained:
                self._session.on_undrained(holding)
