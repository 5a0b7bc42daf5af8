"""`GroupWatch`: which of Kafka's consumer groups read segments though no client of ours says so.

The SDK's consumers are no members of their groups (they are assigned what they read), so a group
that has members is read by a plain Kafka consumer: by the group id of a subscription, which the
stats show, or by one of its own. How far such a group has got is what it has committed. A plain
consumer may be assigned what it reads, too: so the groups of subscriptions that no client of ours
consumes are asked as well, a few in each round, those that move first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from anabranch.channel.load_probe import CLIENTS_MAX, Reader
from anabranch.channel.sealing import SegmentTopic

_QUIET_MAX: Final = 8  # groups of a round that have no members
_ASKED_MAX: Final = CLIENTS_MAX - _QUIET_MAX  # that have; so the next round finds their clients
_DESCRIBED_MAX: Final = 200
_KNOWN_MAX: Final = 10_000
_ASK_S: Final = 1.0  # for one group
_ROUND_S: Final = 5.0


class GroupProbe(Protocol):
    """What is asked of Kafka: `channel.load_probe.LoadProbe`, or its double."""

    def groups(self, timeout_s: float) -> list[str]: ...
    def readers(self, groups: list[str], timeout_s: float) -> list[Reader]: ...
    def committed(
        self, group: str, topics: list[SegmentTopic], timeout_s: float
    ) -> dict[str, int]: ...


class Wanted(msgspec.Struct, frozen=True):
    """What a round is about: segments by Kafka topic, those that each subscription's group would
    read, the groups whose consumers report by themselves, and those that have no such consumers.
    """

    segments: Mapping[str, SegmentTopic]
    groups: Mapping[str, tuple[str, ...]]  # Kafka topics by group
    reporting: frozenset[str]
    unserved: frozenset[str]


class _Known(msgspec.Struct):
    """A group that may read: the topics, when it was described last, its last positions."""

    topics: tuple[str, ...]
    described_at: float
    asked_at: float = 0.0
    moves: bool = False  # had moved when it was asked last
    totals: dict[str, int] = {}


class GroupWatch:
    """Called from one thread. Rounds begin with what the last one knew."""

    def __init__(self, window_s: float, now: Callable[[], float]) -> None:
        self._window_s = window_s
        self._now = now
        self._known: dict[str, _Known] = {}

    def look(self, probe: GroupProbe, wanted: Wanted) -> dict[str, int]:
        """How many messages were committed since the last round, by Kafka topic."""
        if not wanted.segments:
            return {}
        live = set(probe.groups(_ASK_S)) - wanted.reporting
        quiet = wanted.unserved - live - wanted.reporting
        for group in self._known.keys() - live - quiet:
            del self._known[group]
        self._describe(probe, live, wanted)
        grown: dict[str, int] = {}
        began = self._now()
        for group in self._turn(live, _ASKED_MAX) + self._turn(quiet, _QUIET_MAX):
            if self._now() - began > _ROUND_S:
                break
            for topic, count in self._ask(probe, group, wanted).items():
                grown[topic] = grown.get(topic, 0) + count
        return grown

    def _turn(self, groups: Iterable[str], count: int) -> list[str]:
        """Those whose turn it is: most are such as move, the others take turns to be noticed."""
        known = sorted(
            (each for each in groups if each in self._known and self._known[each].topics),
            key=lambda group: (self._known[group].asked_at, group),
        )
        first = [group for group in known if self._known[group].moves][: count - count // 4]
        return [*first, *(group for group in known if group not in first)][:count]

    def _describe(self, probe: GroupProbe, live: Iterable[str], wanted: Wanted) -> None:
        """Finds out what groups read that are new, or that were not asked for a while."""
        now = self._now()
        waiting: list[tuple[float, str]] = []  # since when
        for group in sorted(wanted.unserved.union(live) - wanted.reporting):
            ours = wanted.groups.get(group)
            known = self._known.get(group)
            if ours is not None:
                if known is not None:
                    known.topics = ours
                elif len(self._known) < _KNOWN_MAX:
                    self._known[group] = _Known(ours, now)
            elif known is None:
                if len(self._known) < _KNOWN_MAX:
                    waiting.append((-math.inf, group))
            elif now - known.described_at >= self._window_s:
                waiting.append((known.described_at, group))
        strangers = [group for _, group in sorted(waiting)[:_DESCRIBED_MAX]]
        found = {each.group: each.topics for each in probe.readers(strangers, _ASK_S)}
        for group in strangers:
            topics = tuple(sorted(found.get(group, frozenset()) & wanted.segments.keys()))
            known = self._known.get(group)
            if known is not None:
                known.topics, known.described_at = topics, now
            elif len(self._known) < _KNOWN_MAX:
                self._known[group] = _Known(topics, now)

    def _ask(self, probe: GroupProbe, group: str, wanted: Wanted) -> dict[str, int]:
        known, now = self._known[group], self._now()
        recent = now - known.asked_at <= self._window_s
        known.asked_at = now
        topics = [wanted.segments[name] for name in known.topics if name in wanted.segments]
        if not topics:
            return {}
        totals = probe.committed(group, topics, _ASK_S)
        grown = {
            topic: total - known.totals[topic]
            for topic, total in totals.items()
            if total > known.totals.get(topic, total)
        }
        known.totals = {**known.totals, **totals}
        known.moves = bool(grown)
        return grown if recent else {}  # what came long ago is no traffic of now
