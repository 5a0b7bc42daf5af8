"""`run` over many topics: one that fails, or is left, ends alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from anabranch import client as sdk
from anabranch.client._consumer.resources import ConsumerResources
from anabranch.client._many.consumer import StreamTopicsConsumer
from anabranch.client._topics.nodes import Nodes
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.core.errors import InvalidInputError
from support.lone_consumers import Filled, consuming
from support.still_watch import no_producer
from support.there import there
from support.waiting import until

Opened = tuple[sdk.StreamConsumer, Filled]


class Handling:
    """A handler whose calls last until the test lets them end, by topic."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.cancelled: list[tuple[str, int]] = []
        self.ends = asyncio.Event()

    async def __call__(self, message: sdk.Message, work: sdk.Work) -> None:
        self.begun.append((message.topic, message.offset))
        try:
            await self.ends.wait()
        except asyncio.CancelledError:
            self.cancelled.append((message.topic, message.offset))
            raise


class SharedNumbers(ConsumerResources):
    """Fetches of all topics have numbers of one count, as those of the product."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def numbers(self) -> Iterator[int]:
        return self._numbers


@asynccontextmanager
async def over(*topics: str) -> AsyncIterator[tuple[StreamTopicsConsumer, dict[str, Opened]]]:
    """Each topic has one bucket, which is read from its beginning."""
    nodes, selection = Nodes("pulsar://127.0.0.1:1"), sdk.TopicSelection("public/default")
    settings = sdk.ConsumerSettings(settle_timeout_s=60.0)
    many = sdk.StreamTopicsConsumer(
        nodes, {}, TrafficReporter(), selection, "billing", "", settings, no_producer
    )
    opened: dict[str, Opened] = {}
    async with AsyncExitStack() as stack:
        shared = SharedNumbers()
        for topic in topics:
            consumer, plane = await stack.enter_async_context(
                consuming(100, topic=topic, resources=shared, settle_timeout_s=60.0)
            )
            consumer._readable.listener = lambda name=topic: many._followed.readable(name)
            opened[topic] = consumer, plane
        many._followed._open_topic = AsyncMock(side_effect=lambda name: opened[name][0])
        many._followed.listed(topics)
        await until(lambda: len(many.topics) == len(topics))
        try:
            yield many, opened
        finally:
            await many._followed._tasks.cancel()


def read(opened: Opened, keys: str, first: int = 0) -> None:
    consumer, plane = opened
    plane.read(range(first, first + len(keys)), [key.encode() for key in keys])
    consumer._changed()


@asynccontextmanager
async def running(many: StreamTopicsConsumer, handler: Any, **options: Any) -> AsyncIterator[Any]:
    run = asyncio.create_task(many.run(handler, **options))
    await until(lambda: many.stats() is not None)
    try:
        yield run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_a_topic_that_fails_has_its_handlers_cancelled_and_the_others_go_on() -> None:
    handling = Handling()
    async with over("t/n/a", "t/n/b") as (many, opened), running(many, handling):
        for each in opened.values():
            read(each, "kkl")
        await until(lambda: len(handling.begun) == 4)
        failed, _ = opened["t/n/a"]
        failed._task_failed(sdk.ClientError("it is gone"))
        await until(lambda: sorted(handling.cancelled) == [("t/n/a", 0), ("t/n/a", 2)])
        handling.ends.set()
        await until(lambda: there(many.stats()).done == 3)
        assert "it is gone" in many.failing["t/n/a"]
        assert [each for each in handling.begun if each == ("t/n/a", 1)] == []
        assert {bucket.topic for bucket in there(many.stats()).buckets} == {"t/n/b"}


async def test_what_runs_of_a_topic_that_is_left_may_end_and_nothing_more_of_it_begins() -> None:
    handling = Handling()
    async with over("t/n/a", "t/n/b") as (many, opened), running(many, handling):
        for each in opened.values():
            read(each, "kk")
        await until(lambda: len(handling.begun) == 2)
        many._list_changed(sdk.ListChange(removed=("t/n/a",)))
        topic = many._followed.topics["t/n/a"]
        await until(lambda: topic in many._followed.draining)
        handling.ends.set()
        await until(lambda: topic not in many._followed.draining)
        await until(lambda: ("t/n/b", 1) in handling.begun)
        assert ("t/n/a", 1) not in handling.begun
        assert handling.cancelled == []


async def test_keys_of_topics_are_apart_and_the_width_is_that_of_all() -> None:
    handling = Handling()
    topics = ["t/n/a", "t/n/b", "t/n/c"]
    async with over(*topics) as (many, opened), running(many, handling, concurrency=4):
        for each in opened.values():
            read(each, "kl")
        await until(lambda: len(handling.begun) == 4)
        assert {topic for topic, _ in handling.begun} == set(topics)
        now = there(many.stats())
        assert (now.running, now.queued, now.keys) == (4, 2, 6)


async def test_the_maps_of_all_topics_have_one_budget() -> None:
    handling = Handling()
    async with over("t/n/a", "t/n/b") as (many, opened), running(many, handling):
        parts = [there(consumer.part) for consumer, _ in opened.values()]
        first, second = (part.spend(10 * 1024 * 1024) for part in parts)
        assert second - first == pytest.approx(40.0)


async def test_one_either_receives_or_runs() -> None:
    handling = Handling()
    async with over("t/n/a") as (many, opened):
        with pytest.raises(InvalidInputError, match="dead_letter=DeadLetterPolicy"):
            await many.run(handling, retry=sdk.Retry(then="dead_letter"))
        read(opened["t/n/a"], "k")
        async with running(many, handling):
            with pytest.raises(InvalidInputError, match="handler of run"):
                await many.receive(0.0)
            with pytest.raises(InvalidInputError, match="handler of run"):
                many.acknowledge_all()
    async with over("t/n/a") as (many, opened):
        read(opened["t/n/a"], "k")
        assert (await many.receive()).offset == 0
        with pytest.raises(InvalidInputError, match="one either receives or runs"):
            await many.run(handling)


async def test_its_own_dead_letters_are_none_of_its_topics() -> None:
    """They would be put aside once more, without end."""
    nodes, selection = Nodes("pulsar://127.0.0.1:1"), sdk.TopicSelection("public/default")
    named = "public/default/orders-aside"
    policy = sdk.DeadLetterPolicy(topic=f"topic://{named}")
    settings = sdk.ConsumerSettings(dead_letter=policy)
    many = sdk.StreamTopicsConsumer(
        nodes, {}, TrafficReporter(), selection, "billing", "", settings, no_producer
    )
    others = ["public/default/orders", "public/default/orders-audit-DLQ"]
    assert many._wanted([*others, "public/default/orders-billing-DLQ", named]) == others
