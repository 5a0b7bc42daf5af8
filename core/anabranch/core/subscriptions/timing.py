"""A controller's time limits for the consumers of a subscription."""

from __future__ import annotations

from typing import Final

import msgspec

# A controller's clock for a session runs so much longer than the consumer's own, which begins to
# count earlier as well: far more than two clocks differ, and time to cancel what works on a bucket.
LAPSE_MARGIN: Final = 1.2


class Timing(msgspec.Struct, frozen=True):
    """Durations in seconds. A consumer must report at least every sixth of `session_timeout_s`.

    `drain_after_s`: a segment that is not drained so long after its seal was seen has a backlog,
    which several consumers read at once from then on; None: never. A consumer that is heard has no
    time in which it must give a bucket up: it alone knows what works on that.
    """

    grace_s: float = 60.0  # a registration survives its consumer's absence for this long
    session_timeout_s: float = 10.0  # a consumer serves on without an answer for this long
    drain_after_s: float | None = 2.0

    @property
    def lapse_s(self) -> float:
        """Silence after which a consumer has stopped for certain."""
        return self.session_timeout_s * LAPSE_MARGIN

    @property
    def unserved_s(self) -> float:
        """Bounds the time without a server for a bucket while a consumer of the subscription lives.

        The bucket's holder is missed after a lapse, and keeps it for the grace. The next one may
        have lapsed, too, unnoticed so far. The one after that is served for certain only once it is
        heard again. A consumer that lives and works on its buckets has no bound: that is told.
        """
        return self.urgent_s + 2 * self.lapse_s

    @property
    def urgent_s(self) -> float:
        """Returns how long the grace and a lapse keep a bucket from being served."""
        return self.grace_s + self.lapse_s

    @property
    def queue_gone_s(self) -> float:
        """Silence after which the messages of a queue's consumer were certainly given to another
        one.

        The consumer has stopped by then, and its lock from Kafka (30 s by default) ended long ago.
        Since then the present consumers have been given the messages, or have said that none came.
        """
        return max(self.grace_s, self.lapse_s)
