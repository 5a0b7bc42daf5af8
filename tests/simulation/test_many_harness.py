"""The simulation of a consumer over all topics finds planted bugs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from anabranch.client._many.membership import MemberState, TopicMembership
from anabranch.client._topics.topic_list import ListChange, ToldTopics
from simulation import run
from simulation.planted import violation_found
from simulation.topic_load import LoadShape
from simulation.topic_plan import draw_topics

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def coming_and_going(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed has such a consumer, and topics that come and go all the time."""
    wanted = {
        "many": True,
        "topics": 2,
        "passing_topics": 2,
        "queue_consumers": 0,
        "seeks": 0.0,
        "operators": False,
        "checkpoints": False,
        "operation_interval_s": 0.5,
        "load": LoadShape("constant", 1.0),
    }
    monkeypatch.setattr(
        run, "draw_topics", lambda rng: msgspec.structs.replace(draw_topics(rng), **wanted)
    )


def test_a_topic_that_went_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicMembership, "unlisted", lambda *_: None)
    violation_found("which the list has no more", "not at rest")


def test_a_topic_that_came_and_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = TopicMembership.listed

    def only_at_first(self: TopicMembership, topics: Iterable[str], now: float) -> None:
        if self.is_empty:
            listed(self, topics, now)

    monkeypatch.setattr(TopicMembership, "listed", only_at_first)
    violation_found("not at rest")


def test_a_topic_that_gives_messages_while_it_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    state = TopicMembership.state

    def as_open(self: TopicMembership, topic: str) -> MemberState | None:
        found = state(self, topic)
        return MemberState.OPEN if found is MemberState.DRAINING else found

    monkeypatch.setattr(TopicMembership, "state", as_open)
    violation_found("which the list has no more")


def test_a_topic_that_failed_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicMembership, "_back_off_s", lambda *_: 1e9)
    violation_found("not at rest")


def test_a_list_that_is_only_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    replace = ToldTopics.replace

    def add(self: ToldTopics, told: Iterable[str]) -> ListChange:
        return msgspec.structs.replace(replace(self, told), removed=())

    monkeypatch.setattr(ToldTopics, "replace", add)
    violation_found("which the list has no more", "not at rest")
