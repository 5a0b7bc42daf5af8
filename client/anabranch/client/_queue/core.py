"""`QueueCore`: the segments that a queue's consumer polls, and those that it reports drained: no
I/O.

Its session with the controller is a `ConsumerCore`, as for every consumer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._queue.drain import QuietClock
from anabranch.client._topics.layout import TopicLayout


class QueueCore:
    """The decisions of one consumer of a queue.
    Call `begin` once the duration of Kafka's lock is known.
    """

    def __init__(self, session: ConsumerCore) -> None:
        self.group_id = ""  # the group that it reads in, from its first assignment on
        self.quiet = QuietClock(math.inf)
        self._session = session

    def begin(self, lock_s: float) -> None:
        """Notes that Kafka locks a message for `lock_s` seconds."""
        self.quiet = QuietClock(lock_s)

    @property
    def is_replaced(self) -> bool:
        """True if the subscription has another group by now.

        The silence of one group proves nothing for another group, which is not read here.
        """
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

    def follow_drained(self) -> None:
        """Tells the session the drained segments, again after each new one, and those that are not
        any more.
        """
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
