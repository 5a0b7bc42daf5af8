"""The page of metrics is made in parts, and never as a whole."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Message

from anabranch.broker.metrics import page
from anabranch.broker.metrics.page import MetricsPage, parts_of
from anabranch.broker.topics.controllers.decisions import ScaleDecisions
from anabranch.broker.topics.metrics import TopicMetrics
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.fold.replica import MemoryReplica
from support.open_topic import topic_of

NAMES = [f"public/default/topic-{number:06}" for number in range(5_000)]
TOPIC = topic_of(1, initial_segments(1, 1))


class Given(Collector):
    """Families of that many samples."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.sizes = list(sizes)
        self.collected = 0

    def collect(self) -> Iterator[Metric]:
        for number, size in enumerate(self.sizes):
            family = GaugeMetricFamily(f"given_{number}", "One\nof \\ two.", None, ["topic"])
            for at in range(size):
                family.add_metric([f'a "{at}"'], at)
            self.collected += 1
            yield family


@given(st.lists(st.integers(0, 12), max_size=5), st.integers(0, 9), st.integers(1, 5))
def test_the_parts_are_the_page(sizes: list[int], counted: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_SAMPLES_MAX", most)
        registry = CollectorRegistry()
        Counter("counted", "With a time of its own each.", ["of"], registry=registry)
        counter = Counter("many", "The same.", ["of"], registry=registry)
        for number in range(counted):
            counter.labels(str(number)).inc(number)
        Histogram("took", "Samples of three kinds.", registry=registry).observe(1.0)
        Gauge("one", "A value.", registry=registry).set(7)
        registry.register(Given(sizes))
        assert b"".join(parts_of(registry)) == generate_latest(registry)


def test_no_family_is_collected_before_its_turn_and_no_part_is_long() -> None:
    registry = CollectorRegistry(support_collectors_without_names=True)
    wanted = Given([2_500, 2_500])
    registry.register(wanted)
    wanted.collected = 0
    parts = parts_of(registry)
    first = [next(parts) for _ in range(3)]
    assert wanted.collected == 1
    assert [part.count(b"\ngiven_0{") + part.startswith(b"given_0{") for part in first] == [
        1_000,
        1_000,
        500,
    ]
    assert len(list(parts)) == 3


async def test_others_have_their_turn_between_two_parts() -> None:
    registry = CollectorRegistry()
    registry.register(Given([10] * 5))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    seen: list[int] = []
    sent: list[Message] = []

    async def send(message: Message) -> None:
        seen.append(turns)
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    task = asyncio.create_task(others())
    await MetricsPage(registry)({"type": "http"}, receive, send)
    task.cancel()
    assert b"".join(each.get("body", b"") for each in sent) == generate_latest(registry)
    assert [each.get("more_body", False) for each in sent[1:]] == [True] * 5 + [False]
    assert sorted(set(seen)) == sorted(seen[1:])  # another one each time, but at the start


class AllTheSame(MemoryReplica):
    """Every topic is there."""

    def topic(self, name: str) -> ScalableTopic | None:
        return TOPIC


def _of_topics() -> CollectorRegistry:
    registry = CollectorRegistry()
    service: Any = SimpleNamespace(
        runtime=SimpleNamespace(view=AllTheSame()),
        scaling=ScaleDecisions("b1:8080"),
        load=lambda *_: {},
        controllers=list,
    )
    owned: Any = SimpleNamespace(names=lambda: NAMES)
    surveys: Any = SimpleNamespace(seen={}, expiry=SimpleNamespace(soon={}))
    consumers: Any = SimpleNamespace(dead_letters_waiting=dict)
    registry.register(TopicMetrics(service, owned, surveys, consumers))
    return registry


def _peak(render: Callable[[], Iterable[int]]) -> int:
    """Bytes, at the most, while it is done."""
    tracemalloc.start()
    try:
        assert sum(render()) > len(NAMES) * 500
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_lines_of_many_topics_are_never_there_all_at_once() -> None:
    registry = _of_topics()
    list(parts_of(registry))  # what is kept from the first time on is there
    whole = _peak(lambda: [len(generate_latest(registry))])
    in_parts = _peak(lambda: (len(part) for part in parts_of(registry)))
    assert in_parts * 4 < whole, (in_parts, whole)
