"""`TrafficReports`: finds the new part of clients' reports of their writes and reads.

A client's counters never fall. Each report also has their values of the last report that was
answered. A controller may hear of a client for the first time, after a fail-over or because the
client is new. It knows the new part all the same, and counts a report whose answer got lost once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from anabranch.wire import clock

_CLIENTS_MAX: Final = 10_000  # of one topic
_ENTRIES_MAX: Final = 100_000  # of one topic, of all clients together
_MESSAGE_BYTES_MAX: Final = 1 << 30  # as large as the setting can make it
_SILENT_WINDOWS: Final = 3.0  # after which a client is forgotten, and what one says no more of


class ReportedTraffic(msgspec.Struct, frozen=True):
    """One segment's traffic: written (subscription ""), or read for a subscription."""

    segment_id: int
    subscription: str
    messages: int
    size_bytes: int
    told_messages: int
    told_bytes: int


class TrafficReport(msgspec.Struct, frozen=True):
    """One report of one client; `since_s`: since its last one that was answered."""

    topic: str
    incarnation: int
    client_id: int
    since_s: float
    said: tuple[ReportedTraffic, ...]


class TrafficGrowth(msgspec.Struct, frozen=True):
    """So much more was written (subscription "") or read than was known."""

    topic: str
    incarnation: int
    segment_id: int
    subscription: str
    messages: int
    size_bytes: int


class _Counter(msgspec.Struct, gc=False):
    messages: int
    size_bytes: int
    heard_at: float


class _Client(msgspec.Struct):
    heard_at: float
    counters: dict[tuple[int, str], _Counter]


class _Clients(msgspec.Struct):
    """Those of one topic; `entries`: counters of all together."""

    by_id: dict[int, _Client] = {}
    entries: int = 0


class TrafficReports:
    """The clients of the topics that this node controls, for use in its event loop."""

    def __init__(
        self,
        window_s: float,
        interval_s: float,
        now: Callable[[], float] = clock.now,
        message_bytes_max: int = _MESSAGE_BYTES_MAX,
    ) -> None:
        self.interval_s = interval_s  # at which clients are asked to report
        self.listener: Callable[[TrafficGrowth], None] | None = (
            None  # until there is one, nothing counts
        )
        self._message_bytes_max = message_bytes_max  # no message on Kafka is larger
        self._window_s = window_s
        self._now = now
        self._topics: dict[tuple[str, int], _Clients] = {}

    def take(self, report: TrafficReport) -> None:
        """A report for a topic that this node controls."""
        if self.listener is None:
            return
        key = (report.topic, report.incarnation)
        clients = self._topics.get(key)
        if clients is None:
            clients = self._topics[key] = _Clients()
        client = clients.by_id.get(report.client_id)
        if client is None:
            if len(clients.by_id) >= _CLIENTS_MAX:
                return
            client = clients.by_id[report.client_id] = _Client(self._now(), {})
        now = client.heard_at = self._now()
        for said in report.said:
            place = (said.segment_id, said.subscription)
            known = client.counters.get(place)
            if known is None:
                if clients.entries >= _ENTRIES_MAX:
                    continue
                clients.entries += 1
                before = self._before(report, said)
            else:  # another controller may have been told of some since
                before = (
                    max(known.messages, said.told_messages),
                    max(known.size_bytes, said.told_bytes),
                )
            client.counters[place] = _Counter(said.messages, said.size_bytes, now)
            messages, size_bytes = said.messages - before[0], said.size_bytes - before[1]
            if messages > 0:
                self.listener(
                    TrafficGrowth(
                        report.topic,
                        report.incarnation,
                        *place,
                        messages,
                        min(max(0, size_bytes), messages * self._message_bytes_max),
                    )
                )

    def producers(self, topic: str, incarnation: int) -> int:
        """Returns the number of clients that have reported writes to the topic."""
        clients = self._topics.get((topic, incarnation))
        if clients is None:
            return 0
        return sum(
            any(not subscription for _, subscription in each.counters)
            for each in clients.by_id.values()
        )

    def forget(self, topic: str, incarnation: int) -> None:
        """This node does not control it any more."""
        self._topics.pop((topic, incarnation), None)

    def tidy(self) -> None:
        """Forgets clients and counters that have been silent for long."""
        silent = self._now() - _SILENT_WINDOWS * self._window_s
        for topic, clients in list(self._topics.items()):
            for number, client in list(clients.by_id.items()):
                counters = client.counters
                if client.heard_at < silent:
                    del clients.by_id[number]
                left = {p: each for p, each in counters.items() if each.heard_at >= silent}
                clients.entries -= len(counters) - len(left)
                client.counters = left
            if not clients.by_id:
                del self._topics[topic]

    def _before(self, report: TrafficReport, said: ReportedTraffic) -> tuple[int, int]:
        """Returns the old part of a client's first report."""
        if report.since_s > self._window_s:
            return said.messages, said.size_bytes  # its time is not known
        return said.told_messages, said.told_bytes
