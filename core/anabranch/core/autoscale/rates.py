"""`RollingRates`: rates per second over the last minute, from samples of counters.

A counter is taken to grow evenly between two samples. So the times of samples do not matter much,
and a resting counter needs few. PIP-483, "Source on the owning broker".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

Totals = tuple[float, ...]

_PIECES: Final = 64  # per window: samples that are closer together count as one


class RollingRates:
    """Several counters, sampled together. Times in seconds of one clock that never goes back.

    `began`: the time at which all counters stood at 0, if that is known and within the window. The
    rates are then over the whole window. `then`: the counters of a window ago, if known. Without
    either, rates are over the time since the first sample until that is the window.
    """

    __slots__ = ("_rates", "_raw", "_samples", "window_s")

    def __init__(
        self,
        window_s: float,
        now: float,
        totals: Sequence[float],
        *,
        began: float | None = None,
        then: Sequence[float] | None = None,
    ) -> None:
        self.window_s = window_s
        self._raw = tuple(totals)
        self._rates: Totals | None = None  # from these samples, once asked for
        self._samples: deque[tuple[float, Totals]] = deque()
        if began is not None:
            nothing = (0.0,) * len(self._raw)
            self._samples.append((now - window_s, nothing))
            self._samples.append((min(max(began, now - window_s), now), nothing))
        elif then is not None:
            self._samples.append((now - window_s, tuple(then)))
        self._samples.append((now, self._raw))

    @property
    def is_known(self) -> bool:
        """Tells whether there are rates: one sample alone has none."""
        return self._samples[-1][0] > self._samples[0][0]

    @property
    def sampled_at(self) -> float:
        """Returns when the newest sample was taken."""
        return self._samples[-1][0]

    def sample(self, now: float, totals: Sequence[float]) -> None:
        """Takes the next sample. A counter that went back begins anew: nothing is counted."""
        samples = self._samples
        at, last = samples[-1]
        if now <= at:
            return
        self._rates = None
        raw = tuple(totals)
        grown = zip(last, self._raw, raw, strict=True)
        current = tuple(sum_ + max(0.0, new - old) for sum_, old, new in grown)
        self._raw = raw
        if len(samples) > 1 and (
            at - samples[-2][0] < self.window_s / _PIECES or samples[-2][1] == last == current
        ):
            samples.pop()
        samples.append((now, current))
        while samples[1][0] <= now - self.window_s:
            samples.popleft()

    def rates(self) -> Totals:
        """The rate of each counter over the window that ends with the newest sample; else all 0."""
        if self._rates is None:
            self._rates = self._calculated()
        return self._rates

    def grown(self, span_s: float) -> Totals:
        """Returns how much each counter grew in the last `span_s` seconds, as far as is known."""
        samples = self._samples
        start, (end, last) = samples[-1][0] - span_s, samples[-1]
        later = (end, last)
        for time, totals in reversed(samples):
            if time <= start:
                return _differences(_between((time, totals), later, start), last)
            later = (time, totals)
        return _differences(samples[0][1], last)

    def _calculated(self) -> Totals:
        end, last = self._samples[-1]
        start = max(self._samples[0][0], end - self.window_s)
        if end <= start:
            return (0.0,) * len(last)
        then = self._at(start)
        return tuple((b - a) / (end - start) for a, b in zip(then, last, strict=True))

    def _at(self, time: float) -> Totals:
        """The counters at a time between the first two samples; the first may be older than the
        window.
        """
        return _between(self._samples[0], self._samples[1], time)


def _between(before: tuple[float, Totals], after: tuple[float, Totals], time: float) -> Totals:
    """The counters at a time between two samples."""
    (t0, first), (t1, second) = before, after
    share = (time - t0) / (t1 - t0) if t1 > t0 else 0.0
    # Exact where nothing moved: a counter at rest has a rate of 0, not of nearly 0.
    return tuple(a + (b - a) * share for a, b in zip(first, second, strict=True))


def _differences(before: Totals, after: Totals) -> Totals:
    return tuple(b - a for a, b in zip(before, after, strict=True))
