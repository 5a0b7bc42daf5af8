"""When a queue subscription has drained a sealed segment: by what its consumers do not receive.

Where a controller can ask Kafka how far the share group is, it looks now and then, and needs none
of this. Where it cannot (SASL by Kerberos, or a Kafka before 4.1), it is concluded here.
Kafka gives every record of a share group to one member, locked for the lock duration; one that is
not settled by then, or that is released, is given out again as long as somebody polls, until its
delivery count is used up. So if a record is left of a sealed segment, which takes no new ones, then
within one lock duration it is either settled for good or free, and given to a member that polls
soon after. A consumer that has polled for two lock durations in all, and received nothing of the
segment meanwhile, has seen none given out to itself; the controller takes the segment for drained
once *every* connected consumer has. Each lock that was held when the last of them began to count
has ended by then, and what it had locked was settled, or given out again, to nobody that counts.

A consumer that dies may have been given a record a moment before, in which case nobody else sees it
until its lock is over. So the controller goes on counting one that vanished for the grace (60 s),
twice the lock, and a new controller, which does not know who was there, begins with such a wait.

A poll that brings nothing proves nothing by itself: it may have reached nobody. It counts once
librdkafka's statistics show that the brokers answered it, and not when a connection broke before.
A consumer polls on, and takes its word back when something comes after all, until the controller
has made the segment's end known to all.

What this leans on, and cannot know: that no consumer that is not connected to the controller keeps
taking and releasing the same record; and that Kafka gives free records out within a lock duration.
Only time spent polling counts, so that an application that does not take its messages, or a machine
that sleeps, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

_GAP_S_MAX: Final = 1.0
LOCKS: Final = 2


class QuietClock:
    """Counts, per Kafka topic of a sealed segment, how long polls have brought nothing of it.

    What `polled` adds counts as soon as `contact` says that the brokers answered.
    """

    def __init__(self, lock_s: float) -> None:
        self._needed_s = LOCKS * lock_s
        self._quiet_s: dict[str, float] = {}
        self._unproven_s: dict[str, float] = {}  # the same, since the brokers answered last
        self._last_end = 0.0

    def follow(self, sealed: Iterable[str]) -> None:
        """These are sealed and subscribed to; those that are new start at zero."""
        self._quiet_s = {topic: self._quiet_s.get(topic, 0.0) for topic in sealed}
        self._unproven_s = {topic: self._unproven_s.get(topic, 0.0) for topic in self._quiet_s}

    def polled(self, began: float, ended: float, received: Iterable[str]) -> None:
        """A poll brought messages of these topics. Times in seconds of one clock."""
        # The time between two polls counts too while it is short: a fetch is under way meanwhile.
        since = self._last_end if began - self._last_end <= _GAP_S_MAX else began
        self._last_end = ended
        spent_s = min(ended - since, 2 * _GAP_S_MAX)
        for topic in self._unproven_s:
            self._unproven_s[topic] += spent_s
        for topic in received:
            if topic in self._quiet_s:
                self._quiet_s[topic] = self._unproven_s[topic] = 0.0

    def contact(self, answered: bool) -> None:
        """The brokers have answered what was polled so far, or they may not have."""
        for topic, spent_s in self._unproven_s.items():
            self._quiet_s[topic] += spent_s if answered else 0.0
            self._unproven_s[topic] = 0.0

    def drained(self) -> list[str]:
        """The topics that were quiet for long enough."""
        return [topic for topic, quiet_s in self._quiet_s.items() if quiet_s >= self._needed_s]


class _Broker(msgspec.Struct, frozen=True):
    nodeid: int
    state: str
    rx: int = 0  # answers
    req: dict[str, int] = {}


class _Statistics(msgspec.Struct, frozen=True):
    brokers: dict[str, _Broker] = {}


class Contact:
    """Whether the brokers answer, by what librdkafka's statistics say from time to time."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # answers, by broker

    def answered(self, statistics: str) -> bool:
        """Whether all brokers that are asked for messages have answered since the last time."""
        found = msgspec.json.decode(statistics, type=_Statistics).brokers.values()
        asked = [each for each in found if each.nodeid >= 0 and each.req.get("ShareFetch")]
        before, self._before = self._before, {each.nodeid: each.rx for each in asked}
        return bool(asked) and all(
            each.state == "UP" and each.nodeid in before and each.rx > before[each.nodeid]
            for each in asked
        )
