"""`Pace`: for how many messages a share consumer asks at a time, by how its deliveries end."""

from __future__ import annotations

import collections
from typing import Final

_FIRST: Final = 1
_DELIVERIES: Final = 8
_WITHIN_S: Final = 1.0


class Pace:
    """Few at first, and after a delivery that was not settled in time; the most for a quick one.

    Whoever takes a message or two and goes, or takes long for each, keeps few from the others.
    Kafka counts what it gives out in vain, and discards what was given out too often.
    """

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self.records = min(_FIRST, records_max)
        self._ends: collections.deque[float] = collections.deque(maxlen=_DELIVERIES)

    def ended(self, in_time: bool, now: float) -> bool:
        """A delivery is over. Whether `records` must be taken up now: by joining the group anew.

        Also true of each that was not settled in time, so that others get what was not.
        """
        if not in_time:
            self._ends.clear()
            self.records = min(_FIRST, self._records_max)
            return True
        self._ends.append(now)
        quick = len(self._ends) == _DELIVERIES and now - self._ends[0] <= _WITHIN_S
        if not quick or self.records == self._records_max:
            return False
        self.records = self._records_max
        return True
