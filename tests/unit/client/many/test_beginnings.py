"""Where the topics of a consumer over many begin that were there at first, came, and came again;
and how many there may be.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from anabranch.client import QueueSettings, TopicSelection
from anabranch.client._consumer.consumer import Membership
from anabranch.client._many import consumer as consumer_module
from anabranch.client._many import queue as queue_module
from anabranch.client._many.beginnings import Beginnings
from anabranch.client._many.consumer import TopicsSubscription
from anabranch.client._topics.nodes import Nodes
from support.waiting import until


def test_a_topic_of_the_first_list_is_not_late_however_often_it_is_opened() -> None:
    beginnings = Beginnings(("a/b/c", "a/b/d"))
    assert [beginnings.is_late("a/b/c", 7) for _ in range(3)] == [False] * 3
    assert not beginnings.is_late("a/b/d", 9)


def test_a_topic_that_comes_or_comes_again_is_late() -> None:
    beginnings = Beginnings(("a/b/c",))
    assert beginnings.is_late("a/b/new", 7)
    assert not beginnings.is_late("a/b/c", 7)
    beginnings.gone("a/b/c")
    assert beginnings.is_late("a/b/c", 12)


def test_a_topic_that_was_made_again_between_two_lists_that_have_it_is_late_for_good() -> None:
    beginnings = Beginnings(("a/b/c",))
    assert not beginnings.is_late("a/b/c", 7)
    assert [beginnings.is_late("a/b/c", 12) for _ in range(2)] == [True] * 2


async def test_topics_being_opened_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    may_open = asyncio.Event()

    class Watch:
        def __init__(self, _nodes: Nodes, topic: str) -> None:
            self.topic = topic

        async def start(self, _timeout_s: float) -> SimpleNamespace:
            return SimpleNamespace(incarnation=1)

        async def close(self) -> None:
            """Nothing is open."""

    class Queue:
        def __init__(self, membership: Membership, _settings: QueueSettings) -> None:
            made.append(membership.watch.topic)

        async def start(self) -> None:
            await may_open.wait()

    monkeypatch.setattr(consumer_module, "LayoutWatch", Watch)
    monkeypatch.setattr(queue_module, "QueueConsumer", Queue)
    monkeypatch.setattr(queue_module, "TOPICS_MAX", 3)

    who = TopicsSubscription(
        Nodes("pulsar://127.0.0.1:1"),
        {},
        TopicSelection("public/default"),
        "jobs",
        "",
        AsyncMock(),
        Mock(),
    )
    consumer = queue_module.QueueTopicsConsumer(who, QueueSettings())
    topics = [f"public/default/t{number}" for number in range(5)]
    opening = [asyncio.create_task(consumer._open(each)) for each in topics]
    await until(lambda: len(made) == 3 and len(consumer.failing) == 2)
    assert all("at most" in why for why in consumer.failing.values())
    may_open.set()
    await asyncio.gather(*opening)
    assert len(made) == 3
    await consumer._tasks.cancel()
