"""Which consumer groups count as reading, and how much: Kafka is a double."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from anabranch.broker.load.groups import GroupWatch, SamplingPlan
from anabranch.channel.load.probe import CLIENTS_MAX, ActiveGroup
from anabranch.channel.segments.sealing import SegmentTopic

WINDOW_S = 60.0
STEP_S = 10.0
SEGMENT = SegmentTopic("segment", 4)


class Kafka:
    """Groups with what they have committed, and those that have members."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.committed_by: dict[str, int] = {}
        self.live: dict[str, set[str]] = {}
        self.asked: list[str] = []
        self.is_down = False
        self.watch = GroupWatch(WINDOW_S, lambda: self.now)

    def groups(self, timeout_s: float) -> list[str]:
        return list(self.live)

    def readers(self, groups: Collection[str], timeout_s: float) -> list[ActiveGroup]:
        return [ActiveGroup(group, frozenset(self.live[group])) for group in groups]

    def committed(
        self, group: str, topics: Sequence[SegmentTopic], timeout_s: float
    ) -> dict[str, int]:
        self.asked.append(group)
        if self.is_down:
            return {}
        return {topic.name: self.committed_by.get(group, 0) for topic in topics}

    def look(self, ours: Collection[str] = (), reporting: Collection[str] = ()) -> float:
        """How much was read in the next ten seconds, as far as it is known."""
        self.now += STEP_S
        self.asked = []
        wanted = SamplingPlan(
            {SEGMENT.name: SEGMENT},
            dict.fromkeys(ours, (SEGMENT.name,)),
            frozenset(reporting),
        )
        return self.watch.look(self, wanted).get(SEGMENT.name, 0)


def test_what_a_group_had_committed_before_is_no_traffic() -> None:
    kafka = Kafka()
    kafka.live["stranger"] = {SEGMENT.name}
    kafka.committed_by["stranger"] = 1_000_000
    assert kafka.look() == 0
    kafka.committed_by["stranger"] += 50
    assert kafka.look() == 50
    assert kafka.look() == 0


def test_a_group_that_reads_something_else_or_whose_consumers_report_is_not_asked() -> None:
    kafka = Kafka()
    kafka.live = {"elsewhere": {"another-topic"}, "ours": {SEGMENT.name}}
    for _ in range(2):
        kafka.look(["ours"], reporting=["ours"])
        assert kafka.asked == []


def test_what_a_controller_commits_where_nobody_consumes_is_no_traffic() -> None:
    """A seek that passes a million messages over must not split anything."""
    kafka = Kafka()
    kafka.look(["ours"])
    kafka.committed_by["ours"] = 1_000_000
    assert (kafka.look(["ours"]), kafka.asked) == (0, [])


def test_positions_that_go_back_are_no_traffic() -> None:
    kafka = Kafka()
    kafka.live["stranger"] = {SEGMENT.name}
    kafka.committed_by["stranger"] = 1_000
    kafka.look()
    kafka.committed_by["stranger"] = 10
    assert kafka.look() == 0
    kafka.committed_by["stranger"] = 25
    assert kafka.look() == 15


def test_of_many_groups_all_take_turns_and_what_came_in_all_that_time_is_not_of_now() -> None:
    kafka = Kafka()
    many = [f"group-{number:03d}" for number in range(200)]
    kafka.live = {group: {SEGMENT.name} for group in many}
    asked: set[str] = set()
    for _ in range(60):
        assert kafka.look() == 0
        assert len(kafka.asked) <= CLIENTS_MAX
        asked.update(kafka.asked)
    assert asked == set(many)
    counted = []
    for number in range(60):
        kafka.committed_by[many[100]] = 1_000_000 + 100 * number
        counted.append(kafka.look())
    first = next(number for number, each in enumerate(counted) if each)
    assert counted[first] < 1_000_000
    assert counted[first + 1 :] == [100] * (59 - first)


@pytest.mark.parametrize("count", [10, 200])
def test_however_many_groups_read_all_of_their_traffic_is_seen(count: int) -> None:
    kafka = Kafka()
    kafka.live = {f"group-{number:04}": {SEGMENT.name} for number in range(count)}
    seen = []
    for step in range(180):
        kafka.committed_by = dict.fromkeys(kafka.live, 1_000 * step)
        seen.append(kafka.look())
    assert seen[120:] == pytest.approx([1_000 * count] * 60)


def test_a_group_that_commits_no_more_counts_no_more_once_it_is_asked_again() -> None:
    kafka = Kafka()
    kafka.live = {f"group-{number:03}": {SEGMENT.name} for number in range(200)}
    for step in range(40):
        kafka.committed_by = dict.fromkeys(kafka.live, 1_000 * step)
        kafka.look()
    for _ in range(len(kafka.live) // 6):
        kafka.look()
    assert kafka.look() == 0


def test_what_kafka_does_not_tell_is_no_traffic() -> None:
    kafka = Kafka()
    kafka.live["stranger"] = {SEGMENT.name}
    for committed in (0, 20):
        kafka.committed_by["stranger"] = committed
        seen = kafka.look()
    assert seen == 20
    kafka.is_down = True
    assert [kafka.look(), kafka.look()] == [0, 0]
    kafka.is_down = False
    kafka.committed_by["stranger"] = 50
    assert kafka.look() == pytest.approx(10)


def test_however_many_groups_there_are_each_is_described_in_its_turn() -> None:
    kafka = Kafka()
    kafka.live = {f"group-{number:04}": {"another-topic"} for number in range(2_000)}
    for _ in range(10):
        kafka.look()
    kafka.live["group-1999"] = {SEGMENT.name}
    for _ in range(12):
        kafka.look()
    assert kafka.asked == ["group-1999"]
