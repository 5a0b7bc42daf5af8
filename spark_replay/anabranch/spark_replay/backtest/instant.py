"""`Instant`: a now that notes until when a decision made with it holds.

A replay need not decide again while only the time has changed. Only the rules know the cooldowns
and windows that they look at, so nobody writes them down here a second time. The rules get an
instant in place of a number, and it sees each comparison that they make. Any other operation with
the time raises a TypeError, and gives no wrong answer.
"""

from __future__ import annotations

import math


class Instant:
    """A time in milliseconds, from which others may be subtracted.

    Every comparison made so far would have the same result before `holds_until_ms`.
    """

    __slots__ = ("holds_until_ms", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.holds_until_ms = math.inf

    def __sub__(self, since_ms: int) -> Age:
        return Age(self, self.now_ms - since_ms)


class Age:
    """The milliseconds since a past time. It supports only the comparison "less than"."""

    __slots__ = ("_instant", "_ms")

    def __init__(self, instant: Instant, ms: int) -> None:
        self._instant = instant
        self._ms = ms

    def __lt__(self, limit_ms: float) -> bool:
        if self._ms >= limit_ms:
            return False  # and stays so: time goes on
        ends_ms = self._instant.now_ms + (limit_ms - self._ms)
        if ends_ms < self._instant.holds_until_ms:
            self._instant.holds_until_ms = ends_ms
        return True
