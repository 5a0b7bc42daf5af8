"""`GroupWatch`: finds Kafka's consumer groups that read segments without a report of our client.

The SDK's consumers are no members of their groups, because they are assigned their partitions. So a
group with members is read by a plain Kafka consumer. Its group id is that of a subscription, which
the stats show, or one of its own. The group's progress is its commits.

Commits for a subscription without members and consumers tell of no reading: a controller commits
there after a seek. Between two looks a group is taken to commit evenly, and after that to go on so.
With many groups a turn takes long, and the commits of all that time did not come in one round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from anabranch.channel.load.probe import CLIENTS_MAX, ActiveGroup
from anabranch.channel.segments.sealing import SegmentTopic

_DESCRIBED_MAX: Final = 200
_KNOWN_MAX: Final = 10_000
_ASK_S: Final = 1.0  # for one group
_ROUND_S: Final = 5.0


class GroupProbe(Protocol):
    """The questions to Kafka: `channel.load.probe.LoadProbe`, or its double."""

    def groups(self, timeout_s: float) -> list[str]: ...
    def readers(self, groups: list[str], timeout_s: float) -> list[ActiveGroup]: ...
    def committed(
        self, group: str, topics: list[SegmentTopic], timeout_s: float
    ) -> dict[str, int]: ...


class SamplingPlan(msgspec.Struct, frozen=True):
    """The subject of a round.

    It has the segments by Kafka topic, those that each subscription's group would read, and the
    groups whose consumers report by themselves.
    """

    segments: Mapping[str, SegmentTopic]
    groups: Mapping[str, tuple[str, ...]]  # Kafka topics by group
    reporting: frozenset[str]


class _Known(msgspec.Struct):
    """A group that may read.

    It has the group's topics, the time of its last description, and its last positions with their
    time. `rates`: the messages that it commits in a second since then, by Kafka topic.
    """

    topics: tuple[str, ...]
    described_at: float
    asked_at: float = 0.0
    moves: bool = True  # had moved when it was asked last, or was never asked twice
    totals: dict[str, tuple[int, float]] = {}
    rates: dict[str, float] = {}


class GroupWatch:
    """Rounds of one thread; each begins with the knowledge of the last."""

    def __init__(self, window_s: float, now: Callable[[], float]) -> None:
        self._window_s = window_s
        self._now = now
        self._known: dict[str, _Known] = {}
        self._looked_at = now()

    def look(self, probe: GroupProbe, wanted: SamplingPlan) -> dict[str, float]:
        """Returns the number of messages committed since the last round, by Kafka topic."""
        began = self._now()
        since_s = min(began - self._looked_at, self._window_s)
        self._looked_at = began
        if not wanted.segments:
            return {}
        live = set(probe.groups(_ASK_S)) - wanted.reporting
        for group in self._known.keys() - live:
            del self._known[group]
        self._describe(probe, live, wanted)
        began = self._now()
        for group in self._turn(live):
            if self._now() - began > _ROUND_S:
                break
            self._ask(probe, group, wanted)
        grown: dict[str, float] = {}
        for known in self._known.values():
            for topic, rate in known.rates.items():
                if topic in wanted.segments:
                    grown[topic] = grown.get(topic, 0.0) + rate * since_s
        return grown

    def _turn(self, groups: Iterable[str]) -> list[str]:
        """Those whose turn it is: most are such as move, the others take turns to be noticed."""
        known = sorted(
            (each for each in groups if each in self._known and self._known[each].topics),
            key=lambda group: (self._known[group].asked_at, group),
        )
        first = [group for group in known if self._known[group].moves]
        first = first[: CLIENTS_MAX - CLIENTS_MAX // 4]
        # No more than the probe keeps clients for, so that the next round finds them.
        return [*first, *(group for group in known if group not in first)][:CLIENTS_MAX]

    def _describe(self, probe: GroupProbe, live: Iterable[str], wanted: SamplingPlan) -> None:
        """Finds out what groups read that are new, or that were not asked for a while."""
        now = self._now()
        waiting: list[tuple[float, str]] = []  # since when
        for group in sorted(live):
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

    def _ask(self, probe: GroupProbe, group: str, wanted: SamplingPlan) -> None:
        known, now = self._known[group], self._now()
        known.asked_at = now
        topics = [wanted.segments[name] for name in known.topics if name in wanted.segments]
        totals = probe.committed(group, topics, _ASK_S) if topics else {}
        before = known.totals
        known.rates = {
            topic: (total - before[topic][0]) / (now - before[topic][1])
            for topic, total in totals.items()
            if topic in before and total > before[topic][0] and now > before[topic][1]
        }
        known.totals = {**before, **{topic: (total, now) for topic, total in totals.items()}}
        known.moves = bool(known.rates) or not before
