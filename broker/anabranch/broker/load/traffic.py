"""`TrafficReports`: what clients say that they write and read, made into what is new of it.

A client's counters never fall, and each report says besides what they were in the last one that
was answered. So a controller that hears of a client for the first time, after a fail-over or
because the client is new, knows what is new all the same, and a report whose answer got lost counts
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from anabranch.wire import clock

_CLIENTS_MAX: Final = 10_000  # of one topic
_ENTRIES_MAX: Final = 100_000  # of one topic, of all clients together
_SILENT_WINDOWS: Final = 3.0  # after which a client is forgotten


class Said(msgspec.Struct, frozen=True):
    """Of one segment: what was written (subscription ""), or read for a subscription."""

    segment_id: int
    subscription: str
    messages: int
    size_bytes: int
    told_messages: int
    told_bytes: int


class Report(msgspec.Struct, frozen=True):
    """One report of one client; `since_s`: since its last one that was answered."""

    topic: str
    incarnation: int
    client_id: int
    since_s: float
    said: tuple[Said, ...]


class Grown(msgspec.Struct, frozen=True):
    """So much more was written (subscription "") or read than was known."""

    topic: str
    incarnation: int
    segment_id: int
    subscription: str
    messages: int
    size_bytes: int


class _Client(msgspec.Struct):
    heard_at: float
    counters: dict[tuple[int, str], tuple[int, int]]


class TrafficReports:
    """The clients of the topics that this node controls. To be used in its event loop."""

    def __init__(
        self, window_s: float, interval_s: float, now: Callable[[], float] = clock.now
    ) -> None:
        self.interval_s = interval_s  # at which clients are asked to report
        self.received = 0
        self.listener: Callable[[Grown], None] = _nobody
        self._window_s = window_s
        self._now = now
        self._topics: dict[tuple[str, int], dict[int, _Client]] = {}

    def take(self, report: Report) -> None:
        """A report for a topic that this node controls."""
        self.received += 1
        clients = self._topics.setdefault((report.topic, report.incarnation), {})
        client = clients.get(report.client_id)
        if client is None:
            if len(clients) >= _CLIENTS_MAX:
                return
            client = clients[report.client_id] = _Client(self._now(), {})
        client.heard_at = self._now()
        entries = sum(len(each.counters) for each in clients.values())
        for said in report.said:
            place = (said.segment_id, said.subscription)
            known = client.counters.get(place)
            if known is None:
                if entries >= _ENTRIES_MAX:
                    continue
                entries += 1
                known = self._before(report, said)
            client.counters[place] = (said.messages, said.size_bytes)
            messages, size_bytes = said.messages - known[0], said.size_bytes - known[1]
            if messages > 0:
                self.listener(
                    Grown(
                        report.topic,
                        report.incarnation,
                        *place,
                        messages,
                        max(0, size_bytes),
                    )
                )

    def forget(self, topic: str, incarnation: int) -> None:
        """This node does not control it any more."""
        self._topics.pop((topic, incarnation), None)

    def tidy(self) -> None:
        """Forgets the clients that have been silent for long."""
        silent = self._now() - _SILENT_WINDOWS * self._window_s
        for topic, clients in list(self._topics.items()):
            for number in [n for n, each in clients.items() if each.heard_at < silent]:
                del clients[number]
            if not clients:
                del self._topics[topic]

    def _before(self, report: Report, said: Said) -> tuple[int, int]:
        """What is not new of what a client says for the first time."""
        if report.since_s > self._window_s:
            return said.messages, said.size_bytes  # when it came is not known
        return said.told_messages, said.told_bytes


def _nobody(_: Grown) -> None:
    """Nothing is measured here."""
