"""`SegmentMeter`: one segment's traffic, from the facts that its topic's controller learns.

Kafka's offsets say the number of messages that came in, from any writer. Kafka does not say their
size. The SDK's producers report the size of their messages. Without reports, the meter takes the
size of a few messages that were read from Kafka. The SDK's consumers report the messages that went
out. No subscription can have read more than Kafka has. So its reports count at most the messages
ever written, and later those that have come since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from anabranch.core.autoscale.load import LoadRecord, Rates, changed

_READERS_MAX: Final = 1_000  # subscriptions of which it is known how much they have read


class SegmentMeter:
    """Measures one active segment, since this node controls its topic. Times in seconds.

    `known`: the last written load, by this controller or the one before it. `now`: the meter's
    start, which may be a while before its first sample.
    """

    __slots__ = (
        "_in_bytes",
        "_in_messages",
        "_made_at",
        "_out_bytes",
        "_out_messages",
        "_rates",
        "_reads",
        "_size",
        "_told_before",
        "_told_bytes",
        "_told_messages",
        "_total",
        "_unread",
        "_unsized",
        "known",
        "sized_at",
        "window_s",
    )

    def __init__(self, window_s: float, known: LoadRecord | None, now: float) -> None:
        self.window_s = window_s
        self._made_at = now
        self.known = known
        self.sized_at: float | None = None  # the time of the last size read from Kafka
        self._rates: RollingRates | None = None
        self._total = 0  # Kafka's count at the last sample
        self._in_messages = self._in_bytes = 0.0
        self._out_messages = self._out_bytes = 0.0
        self._told_messages = self._told_bytes = 0.0  # in, by producers
        self._told_before = (0.0, 0.0)  # at the last sample
        self._reads: dict[str, tuple[int, int]] = {}  # reported since the last sample, by reader
        self._unread: dict[str, int] = {}  # the messages that each can still have to read
        self._unsized = 0.0  # came in before a size was known
        self._size: float | None = None
        if known is not None and known.msg_rate_in > 0:
            self._size = known.bytes_rate_in / known.msg_rate_in

    # --- what is learnt -------------------------------------------------------------------

    def written(self, messages: int, size_bytes: int) -> None:
        """Producers have reported so many more."""
        self._told_messages += messages
        self._told_bytes += size_bytes

    def read(self, messages: int, size_bytes: int, reader: str | None = None) -> None:
        """Counts messages that consumers of the subscription `reader` have reported.

        A report without a reader counts as it is. Others count as far as the next sample confirms
        them.
        """
        if reader is None:
            self._out_messages += messages
            self._out_bytes += size_bytes
        else:
            before = self._reads.get(reader, (0, 0))
            self._reads[reader] = (before[0] + messages, before[1] + size_bytes)

    def sized(self, average_bytes: float, now: float) -> None:
        """Messages that were read from Kafka are of this size."""
        self.sized_at = now
        self._size = average_bytes

    def lacks_size(self, total: int, now: float) -> bool:
        """Tells whether messages of unreported size came, and none were looked at lately."""
        if not total or (self._rates is not None and total <= self._total):
            return False
        if self._told_size() is not None:
            return False
        return self.sized_at is None or now - self.sized_at >= self.window_s

    def came(self, total: int) -> int:
        """Returns the number of messages since the last sample, by this count of Kafka's."""
        return max(0, total - self._total) if self._rates is not None else 0

    def sample(self, now: float, total: int, began: float | None) -> None:
        """Takes Kafka's count of all messages ever written. `began`: the time at which there were
        none, if that was within the window.
        """
        new = self.came(total)
        if self._rates is None and began is not None:
            new = total
        self._believe(total)
        self._total = total
        self._in_messages += new
        told = self._told_size()
        self._size = self._size if told is None else told
        self._told_before = (self._told_messages, self._told_bytes)
        self._unsized += new
        if self._size is not None:
            self._in_bytes += self._unsized * self._size
            self._unsized = 0.0
        totals = (
            self._in_messages,
            self._in_bytes,
            self._out_messages,
            self._out_bytes,
            self._told_messages,
            self._told_bytes,
        )
        if self._rates is None:
            self._rates = RollingRates(
                self.window_s, now, totals, began=began, then=self._then(now)
            )
        else:
            self._rates.sample(now, totals)

    def _believe(self, total: int) -> None:
        """Counts the reported reads, as far as there are so many messages."""
        came = self.came(total)
        for reader in self._unread:
            self._unread[reader] += came
        for reader, (messages, size_bytes) in self._reads.items():
            unread = self._unread.pop(reader, total)
            counted = min(messages, unread)
            self._unread[reader] = unread - counted
            if counted > 0:
                self.read(counted, round(size_bytes * counted / messages))
        self._reads.clear()
        while len(self._unread) > _READERS_MAX:  # subscriptions come and go
            del self._unread[next(iter(self._unread))]  # the one silent for longest

    def _told_size(self) -> float | None:
        """Returns what producers have reported lately; None when they have reported nothing."""
        messages = self._told_messages - self._told_before[0]
        size_bytes = self._told_bytes - self._told_before[1]
        if self._rates is not None:
            told = self._rates.rates()[4:6]
            messages += told[0] * self.window_s
            size_bytes += told[1] * self.window_s
        return size_bytes / messages if messages > 0 else None

    def _then(self, now: float) -> tuple[float, ...] | None:
        """Returns the counters of a window ago, as the last written load implies them.

        Reports have been counted since the meter began; Kafka's counts are current.
        """
        known = self.known
        if known is None:
            return None
        whole_s = self.window_s
        part_s = max(0.0, whole_s - (now - self._made_at))
        return (
            -known.msg_rate_in * whole_s,
            -known.bytes_rate_in * whole_s,
            -known.msg_rate_out * part_s,
            -known.bytes_rate_out * part_s,
            0.0,  # whether producers told the former meter anything is not known
            0.0,
        )

    # --- what is to be told ---------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Tells whether nothing has moved for a window."""
        return self._rates is not None and self._rates.is_known and not any(self._rates.rates())

    def load(self) -> LoadRecord | None:
        """The rates by the newest sample; None while there are none."""
        if self._rates is None or not self._rates.is_known:
            return None
        return LoadRecord(*self._rates.rates()[:4])

    def news(self, threshold: float, negligible: Rates) -> LoadRecord | None:
        """The load if it needs a write (`changed`); it is then `known`."""
        load, known = self.load(), self.known
        before = known.rates if known is not None else None
        if load is None or not changed(before, load.rates, threshold, negligible):
            return None
        self.known = load
        return load


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

    def _calculated(self) -> Totals:
        end, last = self._samples[-1]
        start = max(self._samples[0][0], end - self.window_s)
        if end <= start:
            return (0.0,) * len(last)
        # The first sample may be older than the window, the second one is not.
        (t0, first), (t1, second) = self._samples[0], self._samples[1]
        share = (start - t0) / (t1 - t0) if t1 > t0 else 0.0
        # Exact where nothing moved: a counter at rest has a rate of 0, not of nearly 0.
        then = (a + (b - a) * share for a, b in zip(first, second, strict=True))
        return tuple((b - a) / (end - start) for a, b in zip(then, last, strict=True))
