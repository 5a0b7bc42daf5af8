"""The Kafka topics of segments without Kafka: what a node's tasks there come to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from anabranch.channel.errors import SegmentExistsError
from anabranch.channel.segments.seal_settings import SEAL
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.topics.findings import KafkaTopic
from support.waiting import WAIT_S


class HeldCalls:
    """Calls from nodes' threads, which a test sees, and may hold or have fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failure: Exception | None = None  # what every call ends in
        self.hold = threading.Event()  # clear it to make all calls wait
        self.hold.set()

    def _begin(self, what: str) -> None:
        self.calls.append(what)
        if not self.hold.wait(WAIT_S):
            raise AssertionError("a test held a call and never let it go")
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Nothing is open."""


class MemorySegments(HeldCalls):
    """A `SegmentAdmin` that all nodes of a test share."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: dict[str, int] = {}
        self.ends: dict[str, list[int]] = {}  # records by partition
        self.sealed: set[str] = set()
        self.settings: dict[str, dict[str, str]] = {}  # by topic, that somebody else has set
        self.ids: dict[str, str] = {}  # of topics that were made anew
        self.deleted_groups: set[str] = set()
        self.share_groups: set[str] = set()
        self.retained: set[str] = set()  # whose settings were set anew
        self.denied_seal: Exception | None = None  # what sealing ends in

    def create(self, topics: Sequence[SegmentTopic], deadline_s: float) -> None:
        self._begin("create")
        for topic in topics:
            found = self.partitions.setdefault(topic.name, topic.partitions)
            if found != topic.partitions:
                raise SegmentExistsError(topic.name, found, topic.partitions)
            self.ends.setdefault(topic.name, [0] * topic.partitions)

    def await_leaders(self, topics: Sequence[SegmentTopic], deadline_s: float) -> None:
        self._begin("await_leaders")

    def await_copies(self, topics: Sequence[SegmentTopic], timeout_s: float) -> bool:
        """There is one copy of everything."""
        return True

    def start_share_groups(self, groups: Sequence[str], deadline_s: float) -> None:
        self._begin("start_share_groups")
        self.share_groups.update(groups)

    def seal(
        self,
        topics: Sequence[SegmentTopic],
        deadline_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, tuple[int, ...]]:
        meanwhile()
        self._begin("seal")
        if self.denied_seal is not None:
            raise self.denied_seal
        there = [topic.name for topic in topics if topic.name in self.partitions]
        self.sealed.update(there)
        for name in there:
            self.settings.pop(name, None)
        return {
            topic.name: tuple(self.ends[topic.name] if topic.name in there else ())
            or (0,) * topic.partitions
            for topic in topics
        }

    def look(self, topics: Sequence[str], deadline_s: float) -> dict[str, KafkaTopic | None]:
        """Asked again and again: no call that tests count."""
        return {name: self._told(name) for name in topics}

    def _told(self, name: str) -> KafkaTopic | None:
        if name not in self.partitions:
            return None
        settings = {**({} if name not in self.sealed else SEAL), **self.settings.get(name, {})}
        return KafkaTopic(self.ids.get(name, "first"), self.partitions[name], settings)

    def strays(
        self, topic: str, ends: Sequence[int], deadline_s: float, most: int
    ) -> dict[int, list[int]]:
        found = {n: range(end, self.ends[topic][n])[:most] for n, end in enumerate(ends)}
        return {number: list(offsets) for number, offsets in found.items() if offsets}

    def retain(self, topics: Iterable[str], deadline_s: float) -> None:
        self._begin("retain")
        self.retained.update(topics)

    def delete(self, topics: Iterable[str], deadline_s: float) -> None:
        self._begin("delete")
        for topic in topics:
            self.partitions.pop(topic, None)
            self.ends.pop(topic, None)
            self.sealed.discard(topic)

    def delete_groups(self, groups: Iterable[str], deadline_s: float) -> list[str]:
        self._begin("delete_groups")
        self.deleted_groups.update(groups)
        return []
