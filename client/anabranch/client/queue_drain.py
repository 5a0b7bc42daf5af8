"""When a queue subscription has drained a sealed segment: by what its consumers do not receive.

Kafka tells no client of ours how far a share group is (the calls for it are in the Java client
only), so it is concluded. Kafka gives every record of a share group to one member, locked for the
lock duration; one that is not settled by then, or that is released, is given out again as long as
somebody polls, until its delivery count is used up. So if a record is left of a sealed segment,
which takes no new ones, then within one lock duration it is either settled for good or free, and
given to a member that polls soon after. A consumer that has polled for two lock durations in all,
and received nothing of the segment meanwhile, has seen none given out to itself; the controller
takes the segment for drained once *every* connected consumer has. Each lock that was held when the
last of them began to count has ended by then, and what it had locked was settled, or given out
again, to nobody that counts.

What this leans on, and cannot know: that no consumer that is not connected to the controller keeps
taking and releasing the same record; and that Kafka gives free records out within a lock duration.
Only time spent polling counts, so that an application that does not take its messages, or a machine
that sleeps, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_GAP_S_MAX: Final = 1.0
LOCKS: Final = 2


class QuietClock:
    """Counts, per Kafka topic of a sealed segment, how long polls have brought nothing of it."""

    def __init__(self, lock_s: float) -> None:
        self._needed_s = LOCKS * lock_s
        self._quiet_s: dict[str, float] = {}
        self._last_end = 0.0

    def follow(self, sealed: Iterable[str]) -> None:
        """These are sealed, subscribed to, and not drained; those that are new start at zero."""
        self._quiet_s = {topic: self._quiet_s.get(topic, 0.0) for topic in sealed}

    def polled(self, began: float, ended: float, received: Iterable[str]) -> None:
        """A poll brought messages of these topics. Times in seconds of one clock."""
        # The time between two polls counts too while it is short: a fetch is under way meanwhile.
        since = self._last_end if began - self._last_end <= _GAP_S_MAX else began
        self._last_end = ended
        spent_s = min(ended - since, 2 * _GAP_S_MAX)
        for topic in self._quiet_s:
            self._quiet_s[topic] += spent_s
        for topic in received:
            if topic in self._quiet_s:
                self._quiet_s[topic] = 0.0

    def drained(self) -> list[str]:
        """The topics that were quiet for long enough."""
        return [topic for topic, quiet_s in self._quiet_s.items() if quiet_s >= self._needed_s]
