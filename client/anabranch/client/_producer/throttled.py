"""For how long Kafka has throttled a producer by a quota, and which messages are late all the same.

Kafka answers at once and says for how long it reads nothing more of that connection. Waiting for it
is no fault, so that time does not count against a message's, up to four times that as well. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SHARE_MAX: Final = 4.0  # of a message's own time
_GAP_S: Final = 1.0  # between the end of one throttling and Kafka's next word
_SPANS_MAX: Final = 100


class Throttled:
    """Of one producer, since a quota is of all its clients of Kafka; times of one clock."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=_SPANS_MAX)

    def note(self, now: float, throttled_s: float) -> None:
        """Kafka said so, just now."""
        if throttled_s <= 0:
            return
        start, end = now, now + throttled_s
        if self._spans and start <= self._spans[-1][1] + _GAP_S:
            last = self._spans.pop()
            start, end = last[0], max(last[1], end)
        self._spans.append((start, end))

    def sent_by(self, now: float, patience_s: float) -> float:
        """What was sent before that is late."""
        at, left, allowed = now, patience_s, SHARE_MAX * patience_s
        for start, end in reversed(self._spans):
            if end < at:
                if at - end >= left:
                    break
                left -= at - end
                at = end
            spent = min(at - start, allowed)
            at -= max(0.0, spent)
            allowed -= max(0.0, spent)
            if not allowed:
                break
        return at - left

    def why(self, now: float, patience_s: float) -> str:
        """For the end of a sentence about a message that is late; "" where there was nothing."""
        since = now - longest_s(patience_s)
        spent = (min(now, end) - max(since, start) for start, end in self._spans)
        throttled_s = sum(each for each in spent if each > 0)
        if throttled_s < _GAP_S:
            return ""
        return (
            f", and Kafka throttled this client for {throttled_s:.0f} s by a quota: raise its "
            "producer_byte_rate, send less, or give messages a longer delivery_timeout_s"
        )


def longest_s(patience_s: float) -> float:
    """How long a message may take where Kafka throttles all the time."""
    return (1 + SHARE_MAX) * patience_s
