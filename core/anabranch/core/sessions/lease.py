"""Leases and the observation of silence: a broker's right to act, and the others' right to give it
up.

A broker's lease lasts until the *send* time of its last acknowledged heartbeat plus the lease time,
on its own clock. Others call it silent after the liveness time-out without a heartbeat of its
session, on their clocks. Three rules make the two sides agree without a common clock:

* A lease that has lapsed stays lapsed. The broker must open another session in the log, and read
  that back, before it acts again. An acknowledgement that comes late revives nothing.
* Silence is counted only up to the send time of the newest own heartbeat that the observer has
  read back. Heartbeats have one order in one partition, so by then it has seen every earlier one.
  An observer that was itself cut off, paused or behind has thus observed nothing.
* A heartbeat that says that its own lease has lapsed is no sign of life of its session.

Acknowledged heartbeats show that a broker reaches their partition, not that it reaches the log's.
So a broker that loses its contact with the log (`log_contact`) ends its lease itself, as if it had
lapsed. The log must carry its next session. A broker that can only send heartbeats says so in them,
is called silent, and loses its units like one that can send nothing. An early end of a lease takes
nothing from the argument below, which bounds from above how long a lease can last.

Suppose that an observer calls session S silent, with its own heartbeat sent at L. The last
heartbeat of S that it saw came at or before L minus the time-out. The next one of S was then
appended after L. So it was acknowledged after the lease that its predecessor gave had lapsed: S is
over on both sides. The gap between lease and time-out absorbs clocks that run at different rates.
"""

from __future__ import annotations

import math

import msgspec


class Lease:
    """One broker's permission to act, in seconds of its own monotonic clock."""

    __slots__ = ("_duration_s", "_until")

    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s
        self._until = -math.inf

    def begin(self, sent_at: float) -> None:
        """A session was opened by a record sent at `sent_at` and read back."""
        self._until = sent_at + self._duration_s

    def renew(self, sent_at: float, now: float) -> None:
        """The heartbeat sent at `sent_at` was acknowledged; too late if the lease has lapsed."""
        if now < self._until:
            self._until = max(self._until, sent_at + self._duration_s)
        else:
            self._until = -math.inf

    def end(self) -> None:
        """The session is over."""
        self._until = -math.inf

    def holds(self, now: float) -> bool:
        """Tells whether the broker may act as an owner at `now`."""
        return now < self._until

    def remaining_s(self, now: float) -> float:
        """Seconds left; 0 when lapsed."""
        return max(0.0, self._until - now)


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """A broker's report on itself, in the `brokers` topic: lookup data and a sign of life.

    `sent_at` is meaningful on the sender's clock only. `next_offset` is the first WAL offset that
    the sender has not folded, `digest` its state's there, in hex. A URL is "" if the broker does
    not offer it.
    """

    broker: str
    session: int
    sequence: int
    sent_at: float
    state: str  # BrokerState's name
    next_offset: int
    digest: str
    horizon: int  # the snapshot horizon that the sender knows, -1 for none
    web_url: str
    service_url: str
    version: str
    web_url_tls: str = ""
    service_url_tls: str = ""


class _Seen(msgspec.Struct):
    session: int
    at: float
    log_ms: int
    beat: Heartbeat | None


class Liveness:
    """One broker's observations of all brokers, itself included."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._seen: dict[str, _Seen] = {}
        self._fresh_until = -math.inf

    def session_opened(self, broker: str, session: int, now: float, log_ms: int) -> None:
        """The fold shows a session: it counts as a sign of life when it is first seen."""
        seen = self._seen.get(broker)
        if seen is None or seen.session < session:
            beat = seen.beat if seen else None
            self._seen[broker] = _Seen(session, now, log_ms, beat)

    def heard(self, beat: Heartbeat, now: float, log_ms: int, *, lapsed: bool = False) -> None:
        """A heartbeat was read at `now`; the log stamped it `log_ms`."""
        seen = self._seen.get(beat.broker)
        if seen is None or beat.session > seen.session:
            self._seen[beat.broker] = _Seen(beat.session, now, log_ms, beat)
        elif beat.session == seen.session:
            seen.beat = beat
            if not lapsed:
                seen.at, seen.log_ms = now, log_ms

    def caught_up(self, sent_at: float, now: float) -> None:
        """A heartbeat that this very process sent at `sent_at` was read back.

        An earlier process of the same broker must not count: its clock was another one.
        """
        if sent_at - self._fresh_until > self._timeout_s / 2:
            # We could not see for a while ourselves: start to count everybody's silence afresh.
            for seen in self._seen.values():
                seen.at = max(seen.at, now)
        self._fresh_until = max(self._fresh_until, sent_at)

    def silence_s(self, broker: str, session: int) -> float:
        """Returns for how many seconds that session of the broker has provably been silent."""
        seen = self._seen.get(broker)
        if seen is None or seen.session != session:
            return 0.0
        return max(0.0, self._fresh_until - seen.at)

    def is_silent(self, broker: str, session: int) -> bool:
        """Tells whether the liveness time-out is over."""
        return self.silence_s(broker, session) >= self._timeout_s

    def last_heard_ms(self, broker: str) -> int:
        """The log's timestamp of the last sign of life; 0 if there was none."""
        seen = self._seen.get(broker)
        return seen.log_ms if seen else 0

    def beat_of(self, broker: str) -> Heartbeat | None:
        """The newest heartbeat read, of any session."""
        seen = self._seen.get(broker)
        return seen.beat if seen else None
