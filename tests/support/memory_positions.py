"""Offsets of segments and groups without Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from anabranch.channel.positions import EARLIEST, LATEST, Place
from support.memory_segments import MemorySegments
from support.waiting import WAIT_S


class MemoryPositions:
    """A `PositionKeeper` that all nodes of a test share: a record's offset is its time, too."""

    def __init__(self, segments: MemorySegments) -> None:
        self.groups: dict[str, dict[Place, int]] = {}
        self.begins: dict[Place, int] = {}  # where retention has taken records away
        self.failure: Exception | None = None  # what every call ends in
        self.commit_failure: Exception | None = None
        self.calls: list[str] = []
        self.hold_commits = threading.Event()  # clear it to make them wait
        self.hold_commits.set()
        self._segments = segments

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        self._begin("offsets")
        return {place: self._at(place, timestamp_ms) for place in places}

    def committed(self, group: str, places: Iterable[Place], deadline_s: float) -> dict[Place, int]:
        self._begin("committed")
        known = self.groups.get(group, {})
        return {place: known[place] for place in places if place in known}

    def commit(self, group: str, offsets: Mapping[Place, int], deadline_s: float) -> None:
        self._begin("commit")
        if not self.hold_commits.wait(WAIT_S):
            raise AssertionError("a test held a commit and never let it go")
        if self.commit_failure is not None:
            raise self.commit_failure
        self.groups.setdefault(group, {}).update(offsets)

    def close(self) -> None:
        """Nothing is open."""

    def _begin(self, what: str) -> None:
        self.calls.append(what)
        if self.failure is not None:
            raise self.failure

    def _at(self, place: Place, timestamp_ms: int) -> int:
        begin, end = self.begins.get(place, 0), self._segments.ends[place[0]][place[1]]
        if timestamp_ms == EARLIEST:
            return begin
        if timestamp_ms == LATEST:
            return end
        return max(begin, timestamp_ms) if timestamp_ms < end else -1
