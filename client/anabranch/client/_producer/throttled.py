"""The times for which Kafka has throttled a producer by a quota, and the messages that are late all
the same.

Kafka answers at once and tells for how long it reads nothing more of that connection. Waiting for
it is no fault. So that time does not count against a message's own time, up to four times as much.
Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SHARE_MAX: Final = 4.0  # times a message's own time
_GAP_S: Final = 1.0  # between the end of one throttling and Kafka's next word
_SPANS_MAX: Final = 100


class Throttled:
    """The throttling of one producer, since a quota covers all its clients of Kafka.
    Times are of one clock.
    """

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=_SPANS_MAX)

    def note(self, now: float, throttled_s: float) -> None:
        """Notes that Kafka told so, just now."""
        if throttled_s <= 0:
            return
        start, end = now, now + throttled_s
        if self._spans and start <= self._spans[-1][1] + _GAP_S:
            last = self._spans.pop()
            start, end = last[0], max(last[1], end)
        self._spans.append((start, end))

    def sent_by(self, now: float, patience_s: float) -> float:
        """Returns the time of sending before which messages are late now."""
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
        """Returns the end of a sentence about a late message, "" if nothing was throttled."""
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
    """Returns the seconds that a message may take if Kafka throttles all the time."""
    return (1 + SHARE_MAX) * patience_s
