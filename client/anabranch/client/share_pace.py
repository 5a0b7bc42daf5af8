"""`Pace`: for how many messages a share consumer asks at a time, by how its deliveries end."""

from __future__ import annotations

import collections
from typing import Final

_FIRST: Final = 1
_QUICK: Final = 100  # which are settled in 12 s by whoever settles eight in one
_DELIVERIES: Final = 8
_WITHIN_S: Final = 1.0


class Pace:
    """Few at first, and after a delivery that was not settled in time; more for quick ones.

    When eight in a row were full, and settled within a second, it is as many as they had together,
    or 100 if they had less. Whoever takes a message or two and goes, or takes long for each, keeps
    few from the others. Kafka counts what it gives out in vain, and discards what was given out too
    often.
    """

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self.records = _FIRST
        self._ends: collections.deque[tuple[float, int]] = collections.deque(maxlen=_DELIVERIES)

    def ended(self, in_time: bool, messages: int, now: float) -> bool:
        """A delivery is over. Whether `records` must be taken up now: by joining the group anew.

        Also true of each that was not settled in time, so that others get what was not.
        """
        if not in_time:
            self._ends.clear()
            self.records = _FIRST
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
