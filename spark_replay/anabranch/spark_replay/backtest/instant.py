"""`Instant`: a now that notes until when a decision made with it holds.

A replay need not decide anew while nothing has changed but the time. Which cooldowns and windows
the rules look at is known to the rules alone, so they are not written down here a second time:
they get this in place of a number, and it sees each comparison that they make. Whoever compares
anything else with the time gets a TypeError, not a wrong answer.
"""

from __future__ import annotations

import math


class Instant:
    """A time in milliseconds, from which others may be subtracted.

    `holds_until_ms`: before that, every comparison made so far would have come out the same.
    """

    __slots__ = ("holds_until_ms", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.holds_until_ms = math.inf

    def __sub__(self, since_ms: int) -> Age:
        return Age(self, self.now_ms - since_ms)


class Age:
    """How long something is past, in milliseconds; it may be asked whether that is less than."""

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
