"""`Pace`: the number of records that a member of a share group asks for. Pure, no clock."""

from __future__ import annotations

import collections
from typing import Final

_FIRST: Final = 1
_QUICK: Final = 100  # an application that settles eight in a second settles these in 12 s
_DELIVERIES: Final = 8
_WITHIN_S: Final = 1.0


class Pace:
    """The number of records to ask for: few at first and after a delivery that expired, more for
    quick ones.

    If eight deliveries in a row were full, and settled within a second, it becomes their sum, but
    at least 100. A slow application, or one that takes a message or two and goes, keeps few from
    the others. Kafka counts deliveries in vain, and discards messages with too many.

    Time in which Kafka is asked does not count. Else a slow Kafka would keep the number small, and
    small numbers keep it slow. All members of one consumer have one pace, since one reads at a
    time.
    """

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self.records = _FIRST
        self._least = _FIRST
        self._asking_s = 0.0  # so far
        self._ends: collections.deque[tuple[float, int]] = collections.deque(maxlen=_DELIVERIES)

    def needs(self, records: int) -> None:
        """Notes that the application works on so many at once, so that few keep it waiting."""
        self._least = min(records, self._records_max)

    def asked(self, took_s: float) -> None:
        """Notes that Kafka was asked for messages for so many seconds, with any result."""
        self._asking_s += took_s

    def ended(self, in_time: bool, messages: int, now: float) -> bool:
        """Notes the end of a delivery. Returns True if the member must join again for the new
        `records`.

        It is also True after each delivery that was not settled in time, so that others get the
        rest.
        """
        now -= self._asking_s
        if not in_time:
            self._ends.clear()
            self.records = _FIRST
            return True
        if self.records < self._least:
            self.records = self._least
            return True
        self._ends.append((now, messages))
        counts = [count for _, count in self._ends]
        records = min(self._records_max, max(_QUICK, sum(counts)))
        quick = len(counts) == _DELIVERIES and now - self._ends[0][0] <= _WITHIN_S
        # To join anew takes as long as some deliveries: not for a little more.
        if not quick or min(counts) < self.records or records < 2 * self.records:
            return False
        self._ends.clear()
        self.records = records
        return True
