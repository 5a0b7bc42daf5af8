"""Offsets of segments and groups without Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.offsets import EARLIEST, LATEST, Place
from anabranch.core.subscriptions.known_positions import CommittedPosition, mark_of
from support.memory_segments import HeldCalls, MemorySegments


class MemoryPositions(HeldCalls):
    """A `KafkaPositions` that all nodes of a test share: a record's offset is its time, too."""

    def __init__(self, segments: MemorySegments) -> None:
        super().__init__()
        # What groups have committed; bare offsets are consumers' of a subscription as it was made.
        self.groups: dict[str, dict[Place, int | CommittedPosition]] = {}
        self.begins: dict[Place, int] = {}  # where retention has taken records away
        # Share groups that are told of: where each goes on, and how many are left, or -1.
        self.queues: dict[str, dict[Place, tuple[int, int]]] = {}
        self.begun_failure: Exception | None = None  # what `begin_queue` ends in
        self.told = True  # whether Kafka can be told where a share group begins
        self.silent: set[str] = set()  # groups that it gets no answer for
        self.members: set[str] = set()  # groups that plain consumers are members of
        self.transactions: dict[Place, int] = {}  # from where on one is open
        self._segments = segments

    def offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        found = {place: self._at(place, timestamp_ms) for place in places}
        self._begin("offsets")
        return found

    def told_offsets(
        self, places: Iterable[Place], timestamp_ms: int, deadline_s: float
    ) -> dict[Place, int]:
        return {place: self._at(place, timestamp_ms) for place in places}  # nothing holds it

    def committed(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, CommittedPosition]:
        found = self._committed(group, places)
        self._begin("committed")
        if group in self.silent:
            raise KafkaUnreachableError(f"Kafka did not tell of {group}")
        return found

    def committed_by(
        self, groups: Mapping[str, Sequence[Place]], deadline_s: float
    ) -> dict[str, dict[Place, CommittedPosition]]:
        told = groups.keys() - self.silent
        return {each: self._committed(each, groups[each]) for each in told}  # nothing holds it

    def commit(
        self, group: str, offsets: Mapping[Place, int], mark: str, deadline_s: float
    ) -> None:
        known = self.groups.setdefault(group, {})
        known.update((place, CommittedPosition(at, mark)) for place, at in offsets.items())

    def _committed(self, group: str, places: Iterable[Place]) -> dict[Place, CommittedPosition]:
        known, mark = self.groups.get(group, {}), mark_of(int(group.rpartition(".")[2]))
        return {
            place: at
            if isinstance(at := known[place], CommittedPosition)
            else CommittedPosition(at, mark)
            for place in places
            if place in known
        }

    def queue(
        self, group: str, places: Iterable[Place], deadline_s: float
    ) -> dict[Place, tuple[int, int]]:
        self._begin("queue")
        return {place: self.queues[group][place] for place in places if group in self.queues}

    def places_queues(self) -> bool:
        return self.told

    def begin_queue(self, group: str, starts: Mapping[Place, int], deadline_s: float) -> None:
        self._begin("begin_queue")
        if self.begun_failure is not None:
            raise self.begun_failure
        known = self.queues.setdefault(group, {})
        for place, offset in starts.items():
            known.setdefault(place, (offset, self._segments.ends[place[0]][place[1]] - offset))

    def trim(self, up_to: Mapping[Place, int], deadline_s: float) -> None:
        self._begin("trim")
        for place, offset in up_to.items():
            if not self.begins.get(place, 0) <= offset <= self._segments.ends[place[0]][place[1]]:
                raise AssertionError(f"{place} cannot be trimmed up to {offset}")
            self.begins[place] = offset

    def unused_groups(self, head: str, deadline_s: float) -> list[str]:
        self._begin("unused_groups")
        return [each for each in self.groups if each.startswith(head) and each not in self.members]

    def has_members(self, group: str, deadline_s: float) -> bool:
        self._begin("has_members")
        return group in self.members

    def held(self, ends: Mapping[Place, int], deadline_s: float) -> dict[Place, int]:
        self._begin("held")
        return {place: at for place, at in self.transactions.items() if place in ends}

    def _at(self, place: Place, timestamp_ms: int) -> int:
        begin, end = self.begins.get(place, 0), self._segments.ends[place[0]][place[1]]
        if timestamp_ms == EARLIEST:
            return begin
        if timestamp_ms == LATEST:
            return end
        return max(begin, timestamp_ms) if timestamp_ms < end else -1
