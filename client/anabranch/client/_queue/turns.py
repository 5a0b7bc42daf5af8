"""`Turns`: what a member of a share group does next, by what came before: no I/O, no clock.

`ShareReader` says why each of these is so, and carries it out.
"""

from __future__ import annotations

import collections
from typing import Final

_FIRST: Final = 1
_QUICK: Final = 100  # which are settled in 12 s by whoever settles eight in one
_DELIVERIES: Final = 8
_WITHIN_S: Final = 1.0

_SEND_AFTER_S: Final = 0.01  # when no poll takes the answers along
_REST_S: Final = 0.1
# When, after a change of topics, the coordinator is asked for the assignment once more.
_NUDGES_S: Final = (0.005, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0)


def hold_s(lock_s: float) -> float:
    """For how long a delivery may be kept: Kafka must have the answers before its lock ends."""
    return lock_s * 0.8


class Pace:
    """Few at first, and after a delivery that was not settled in time; more for quick ones.

    When eight in a row were full, and settled within a second, it is as many as they had together,
    or 100 if they had less. Whoever takes a message or two and goes, or takes long for each, keeps
    few from the others. Kafka counts what it gives out in vain, and discards what was given out too
    often.

    The second does not run while Kafka is asked: where that takes long, few at a time would make it
    take long for ever. All members of one consumer have one pace, since one reads at a time.
    """

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self.records = _FIRST
        self._asking_s = 0.0  # so far
        self._ends: collections.deque[tuple[float, int]] = collections.deque(maxlen=_DELIVERIES)

    def asked(self, took_s: float) -> None:
        """Kafka was asked for messages, whatever came of it."""
        self._asking_s += took_s

    def ended(self, in_time: bool, messages: int, now: float) -> bool:
        """A delivery is over. Whether `records` must be taken up now: by joining the group anew.

        Also true of each that was not settled in time, so that others get what was not.
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
    """One member's. A turn is a poll with the delivery that it brings, or a rest.

    Whoever carries them out says what it has done, and keeps `unsent` and `untaken`.
    """

    def __init__(self, hold_s: float, pace: Pace, now: float) -> None:
        self.pace = pace
        self.unsent = False  # answers were given since the last poll
        self.untaken = False  # nobody came for the last delivery
        self._hold_s = hold_s
        self._idle_since = now
        self._records = pace.records  # that it has joined for
        self._topics: tuple[str, ...] = ()
        self._nudges: list[float] = []
        self._nudged = False

    def is_to_poll(self, wanted: tuple[str, ...], asked: bool, is_awaited: bool) -> bool:
        """Whether to poll, and not to rest: by what is wanted, and who has come for messages."""
        return bool(wanted and asked and (is_awaited or not self.untaken))

    def polled(self, now: float) -> None:
        """A poll, and what it brought, is over."""
        self._idle_since = now

    def sends(self, now: float) -> bool:
        """Whether a rest sends what was answered."""
        return self.unsent and now - self._idle_since >= _SEND_AFTER_S

    def leaves(self, now: float) -> bool:
        """Whether a rest ends the membership: nobody has asked for as long as a delivery lasts."""
        return now - self._idle_since >= self._hold_s

    @property
    def rest_s(self) -> float:
        """How long a rest of a member lasts, unless something happens."""
        return _SEND_AFTER_S if self.unsent or self._nudges else _REST_S

    @property
    def is_outpaced(self) -> bool:
        """Whether it has joined for another number of records than is good by now."""
        return self._records != self.pace.records

    def joined(self) -> None:
        """It is a new member, subscribed to nothing."""
        self._records = self.pace.records
        self._topics = ()

    def parked(self) -> None:
        """It has unsubscribed, and nothing is asked for."""
        self._topics, self._nudges = (), []

    def is_to_subscribe(self, wanted: tuple[str, ...], now: float) -> bool:
        """Whether `subscription` has something new."""
        return wanted != self._topics or bool(self._nudges and now >= self._nudges[0])

    def subscription(self, wanted: tuple[str, ...], now: float) -> list[str]:
        """What to subscribe to, where `is_to_subscribe`."""
        if wanted != self._topics:
            self._topics = wanted
            self._nudges = [now + after for after in _NUDGES_S] if wanted else []
            self._nudged = False
            return list(wanted)
        self._nudges = [at for at in self._nudges if at > now]
        self._nudged = not self._nudged
        return [*wanted, *([f"{wanted[0][:240]}.nobody"] if self._nudged else [])]
