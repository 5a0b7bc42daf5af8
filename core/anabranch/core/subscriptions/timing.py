"""How patient a controller is with the consumers of a subscription."""

from __future__ import annotations

from typing import Final

import msgspec

LAPSE_MARGIN: Final = 1.2  # far more than two clocks differ over a session time


class Timing(msgspec.Struct, frozen=True):
    """Durations in seconds. A consumer must report at least every sixth of `session_timeout_s`.

    `drain_after_s`: a segment that is not drained so long after its seal was seen has a backlog,
    which several consumers read at once from then on; None: never. `settle_s`: how long consumers
    take to settle what they have, unless told otherwise.
    """

    grace_s: float = 60.0  # a registration survives its consumer's absence for this long
    session_timeout_s: float = 10.0  # a consumer serves on without an answer for this long
    drain_after_s: float | None = 2.0
    settle_s: float = 30.0

    @property
    def lapse_s(self) -> float:
        """Silence after which a consumer has stopped for certain."""
        return self.session_timeout_s * LAPSE_MARGIN

    @property
    def unserved_s(self) -> float:
        """Bounds how long nobody serves a bucket while a consumer of the subscription lives.

        Whoever had it is missed after a lapse, and keeps it for the grace; or settles what it has,
        and is missed meanwhile. The next one may have lapsed, too, unnoticed so far, and the one
        after that is served for certain only when it is heard again.
        """
        return self.urgent_s + 2 * self.lapse_s

    @property
    def urgent_s(self) -> float:
        """Returns how long the grace, or settling, and a lapse keep a bucket from being served."""
        return max(self.grace_s, self.settle_s) + self.lapse_s

    @property
    def queue_gone_s(self) -> float:
        """Silence after which what a queue's consumer had was certainly given to another one.

        It has stopped by then, and the lock that Kafka gave it (30 s by default) has ended so long
        ago that whoever is there has been given the messages, or has said that none came.
        """
        return max(self.grace_s, self.lapse_s)
