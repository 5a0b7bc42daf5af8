"""Reports of clients on what they write and read: nothing of it counts twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.load import traffic
from anabranch.broker.load.traffic import (
    ReportedTraffic,
    TrafficGrowth,
    TrafficReport,
    TrafficReports,
)

WINDOW_S = 60.0
TOPIC = "public/default/orders"


class Inbox:
    """Reports and what they came to, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.grown: list[TrafficGrowth] = []
        self.reports = TrafficReports(WINDOW_S, 10.0, lambda: self.now)
        self.reports.listener = self.grown.append

    def say(
        self, messages: int, told: int = 0, client: int = 1, since_s: float = 10.0, segment: int = 0
    ) -> None:
        said = ReportedTraffic(segment, "", messages, 10 * messages, told, 10 * told)
        self.reports.take(TrafficReport(TOPIC, 7, client, since_s, (said,)))

    @property
    def total(self) -> tuple[int, int]:
        return sum(g.messages for g in self.grown), sum(g.size_bytes for g in self.grown)


def test_what_another_controller_counted_meanwhile_is_not_new_when_the_topic_comes_back() -> None:
    inbox = Inbox()
    inbox.say(100)
    inbox.say(5_010, told=5_000)
    assert inbox.total == (110, 1_100)


def test_more_places_than_are_taken_do_not_silence_those_that_are_known() -> None:
    inbox = Inbox()
    inbox.say(1, segment=-1)
    said = tuple(ReportedTraffic(n, "", 1, 1, 0, 0) for n in range(200_000))
    inbox.reports.take(TrafficReport(TOPIC, 7, 2, 10.0, said))
    assert inbox.total[0] == 100_000
    inbox.say(3, segment=-1)
    assert inbox.total[0] == 100_002
    inbox.now = 10 * WINDOW_S
    inbox.reports.tidy()
    inbox.say(3, told=3, client=3, segment=-1)
    inbox.say(7, told=3, client=3, segment=-1)
    assert inbox.total[0] == 100_006


def test_what_may_have_come_long_ago_is_not_taken_for_new() -> None:
    inbox = Inbox()
    inbox.say(100_000, since_s=WINDOW_S + 1)
    assert inbox.total == (0, 0)
    inbox.say(100_010, since_s=10.0)
    assert inbox.total == (10, 100)


def test_a_client_that_was_silent_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_CLIENTS_MAX", 1)
    inbox = Inbox()
    inbox.say(100)
    inbox.now = 10 * WINDOW_S
    inbox.say(7, client=2)
    assert inbox.total[0] == 100, "there is no room"
    inbox.reports.tidy()
    inbox.say(7, client=2)
    assert inbox.total[0] == 107


def test_what_a_client_says_no_more_of_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_ENTRIES_MAX", 10)
    inbox = Inbox()
    for segment in range(10):
        inbox.say(100, segment=segment)
    for _ in range(24):
        inbox.now += WINDOW_S / 6
        inbox.say(100, told=100, segment=0)
    inbox.reports.tidy()
    assert inbox.total[0] == 1_000
    for segment in range(9):
        inbox.say(107, told=100, segment=segment)
    assert inbox.total[0] == 1_063
    for segment in (10, 11):
        inbox.say(1, segment=segment)
    assert inbox.total[0] == 1_064, "nine others, and one more"


def test_clients_and_segments_are_counted_apart() -> None:
    inbox = Inbox()
    inbox.say(100, client=1)
    inbox.say(100, client=2)
    inbox.say(100, client=1, segment=3)
    assert inbox.total == (300, 3_000)


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans(), st.booleans()), max_size=30))
def test_whatever_answers_get_lost_and_however_controllers_change_little_counts_twice(
    steps: list[tuple[int, bool, bool]],
) -> None:
    inbox = Inbox()
    total = told = lost = 0
    for grew, answered, moved in steps:
        if moved:
            lost += total - told  # the former one may have counted what it did not answer
            other = Inbox()
            other.grown = inbox.grown
            other.reports.listener = other.grown.append
            inbox = other
        total += grew
        inbox.say(total, told)
        if answered:
            told = total
    assert total <= inbox.total[0] <= total + lost


def test_no_message_counts_as_larger_than_kafka_takes_them() -> None:
    grown: list[TrafficGrowth] = []
    reports = TrafficReports(WINDOW_S, 10.0, lambda: 0.0, message_bytes_max=1_000)
    reports.listener = grown.append
    reports.take(TrafficReport(TOPIC, 7, 1, 10.0, (ReportedTraffic(0, "", 5, 1 << 60, 0, 0),)))
    assert [each.size_bytes for each in grown] == [5_000]
