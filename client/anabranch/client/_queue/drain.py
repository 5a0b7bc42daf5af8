"""Tells when a queue subscription has drained a sealed segment, by the absence of messages from it.

A controller that can ask Kafka for the progress of the share group looks now and then, and needs
none of this. If it cannot ask (SASL by Kerberos, or a Kafka before 4.1), it concludes from these
reports.

Kafka gives every record of a share group to one member, locked for the lock duration. It delivers a
record again that is released, or not settled by then, as long as somebody polls, until its delivery
count is used up. A sealed segment takes no new records. So a record that is left of it changes
within one lock duration: it is settled for good, or given to a member that polls soon after.

A consumer counts that has polled for two lock durations in all, and received nothing of the segment
meanwhile. The controller takes the segment for drained once *every* connected consumer counts. Each
lock from before the last of them began has ended by then. Its record was settled, or given out
again, but to no consumer that counts.

A consumer that dies may have got a record a moment before, and nobody else sees this record until
its lock is over. So the controller goes on counting a vanished consumer for the grace (60 s), twice
the lock. A new controller, which does not know the former consumers, begins with such a wait.

A poll that brings nothing proves nothing by itself, because it may have reached nobody. It counts
once librdkafka's statistics show that the brokers answered it, and not if a connection broke
before. A consumer polls on until the controller has made the segment's end known to all. It takes
its word back if a message comes after all.

This rests on two things that it cannot know. No consumer without a connection to the controller
keeps taking and releasing the same record. And Kafka gives free records out within a lock duration.
Only time spent polling counts, so an application that does not take its messages, or a sleeping
machine, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

_GAP_S_MAX: Final = 1.0
LOCKS: Final = 2


class QuietClock:
    """Counts the time for which polls have brought nothing of a sealed segment, by Kafka topic.

    The time of `polled` counts as soon as `contact` tells that the brokers answered.
    """

    def __init__(self, lock_s: float) -> None:
        self._needed_s = LOCKS * lock_s
        self._quiet_s: dict[str, float] = {}
        self._unproven_s: dict[str, float] = {}  # the same, since the brokers answered last
        self._last_end = 0.0

    def follow(self, sealed: Iterable[str]) -> None:
        """Follows these sealed and subscribed topics. New ones start at zero."""
        self._quiet_s = {topic: self._quiet_s.get(topic, 0.0) for topic in sealed}
        self._unproven_s = {topic: self._unproven_s.get(topic, 0.0) for topic in self._quiet_s}

    def polled(self, began: float, ended: float, received: Iterable[str]) -> None:
        """Notes a poll and the topics of its messages. Times are in seconds of one clock."""
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
        """Notes that the brokers have answered the polls so far, or that they may not have."""
        for topic, spent_s in self._unproven_s.items():
            self._quiet_s[topic] += spent_s if answered else 0.0
            self._unproven_s[topic] = 0.0

    def drained(self) -> list[str]:
        """Returns the topics that were quiet for long enough."""
        return [topic for topic, quiet_s in self._quiet_s.items() if quiet_s >= self._needed_s]


class _Broker(msgspec.Struct, frozen=True):
    nodeid: int
    state: str
    rx: int = 0  # answers
    req: dict[str, int] = {}


class _Statistics(msgspec.Struct, frozen=True):
    brokers: dict[str, _Broker] = {}


class Contact:
    """Tells if the brokers answer, from librdkafka's statistics over time."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # answers, by broker

    def answered(self, statistics: str) -> bool:
        """Returns True if all brokers that are asked for messages have answered since the last
        call.
        """
        found = msgspec.json.decode(statistics, type=_Statistics).brokers.values()
        asked = [each for each in found if each.nodeid >= 0 and each.req.get("ShareFetch")]
        before, self._before = self._before, {each.nodeid: each.rx for each in asked}
        return bool(asked) and all(
            each.state == "UP" and each.nodeid in before and each.rx > before[each.nodeid]
            for each in asked
        )
