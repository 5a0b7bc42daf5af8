"""`Turns`: the next step of a member of a share group, from what came before: no I/O, no clock.

`ShareReader` has the reasons, and carries the steps out.
"""

from __future__ import annotations

import collections
from typing import Final

_FIRST: Final = 1
_QUICK: Final = 100  # an application that settles eight in a second settles these in 12 s
_DELIVERIES: Final = 8
_WITHIN_S: Final = 1.0

_SEND_AFTER_S: Final = 0.01  # for answers that no poll takes along
_REST_S: Final = 0.1
# The times after a change of topics at which the coordinator is asked for the assignment again.
_NUDGES_S: Final = (0.005, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)


def hold_s(lock_s: float) -> float:
    """Returns the seconds for which a delivery may be kept: Kafka must have the answers before its
    lock ends.
    """
    return lock_s * 0.8


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
        self._asking_s = 0.0  # so far
        self._ends: collections.deque[tuple[float, int]] = collections.deque(maxlen=_DELIVERIES)

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


class Turns:
    """The steps of one member. A turn is a poll with its delivery, or a rest.

    The caller tells each step that it has done, and keeps `unsent` and `untaken`.
    """

    def __init__(self, hold_s: float, pace: Pace, now: float) -> None:
        self.pace = pace
        self.unsent = False  # answers were given since the last poll
        self.untaken = False  # True: the last delivery was not taken
        self._hold_s = hold_s
        self._idle_since = now
        self._records = pace.records  # the number that it has joined for
        self._topics: tuple[str, ...] = ()
        self._nudges: list[float] = []
        self._nudged = False

    def is_to_poll(self, wanted: tuple[str, ...], asked: bool, is_awaited: bool) -> bool:
        """Returns True for a poll, False for a rest."""
        return bool(wanted and asked and (is_awaited or not self.untaken))

    def polled(self, now: float) -> None:
        """Notes that a poll and its delivery are over."""
        self._idle_since = now

    def sends(self, now: float) -> bool:
        """Returns True if a rest sends the answers."""
        return self.unsent and now - self._idle_since >= _SEND_AFTER_S

    def leaves(self, now: float) -> bool:
        """Returns True if a rest ends the membership, because nobody has asked for as long as a
        delivery lasts.
        """
        return now - self._idle_since >= self._hold_s

    @property
    def rest_s(self) -> float:
        """The seconds for which a member rests, unless something happens."""
        return _SEND_AFTER_S if self.unsent or self._nudges else _REST_S

    @property
    def is_outpaced(self) -> bool:
        """True if it has joined for another number of records than is good by now."""
        return self._records != self.pace.records

    def joined(self) -> None:
        """Notes that it is a new member, subscribed to nothing."""
        self._records = self.pace.records
        self._topics = ()

    def parked(self) -> None:
        """Notes that it has unsubscribed, and that nothing is asked for."""
        self._topics, self._nudges = (), []

    def is_to_subscribe(self, wanted: tuple[str, ...], now: float) -> bool:
        """Returns True if `subscription` has something new."""
        return wanted != self._topics or bool(self._nudges and now >= self._nudges[0])

    def subscription(self, wanted: tuple[str, ...], now: float) -> list[str]:
        """Returns the topics to subscribe to, after `is_to_subscribe` returned True."""
        if wanted != self._topics:
            self._topics = wanted
            self._nudges = [now + after for after in _NUDGES_S] if wanted else []
            self._nudged = False
            return list(wanted)
        self._nudges = [at for at in self._nudges if at > now]
        self._nudged = not self._nudged
        return [*wanted, *([f"{wanted[0][:240]}.nobody"] if self._nudged else [])]
