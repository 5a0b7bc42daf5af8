"""The node that controls a topic measures its segments; Kafka and the load topic are doubles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from anabranch.broker.errors import ElsewhereError
from anabranch.broker.load import inventory
from anabranch.broker.load.reporter import LoadSettings, SegmentLoadReporter
from anabranch.broker.load.traffic import ReportedTraffic, TrafficReport
from anabranch.channel.load.loads import LoadTable, SegmentKey
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.autoscale.load import LoadRecord, SegmentLoad
from anabranch.core.entities.subscription import SubscriptionKind
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster, until
from support.there import there

TOPIC = "public/default/orders"
SETTINGS = LoadSettings(interval_s=10.0, window_s=60.0, threshold=0.25)
# Then no rate is negligible.
EXACT: dict[str, object] = {
    "scalableTopicMergeMsgRateInThreshold": 0,
    "scalableTopicMergeBytesRateInThreshold": 0,
    "scalableTopicMergeMsgRateOutThreshold": 0,
    "scalableTopicMergeBytesRateOutThreshold": 0,
}


class World:
    """One Kafka and one load topic for all nodes of a test."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.now = 1_000.0
        self.table = LoadTable()
        self.written: list[tuple[SegmentKey, LoadRecord | None]] = []
        self.asked: list[set[str]] = []  # topics whose ends were asked for, by round
        self.sized: list[str] = []
        self.is_whole = True

    # As the load topic.

    def write(self, loads: Mapping[SegmentKey, LoadRecord | None]) -> None:
        self.written += loads.items()
        now_ms = round(self.now * 1000)
        self.table.take((p, None if each is None else each.at(now_ms)) for p, each in loads.items())

    # As Kafka.

    def ends(
        self, topics: Collection[SegmentTopic], timeout_s: float
    ) -> dict[str, tuple[int, ...]]:
        ends = self.cluster.segments.ends
        self.asked.append({topic.name for topic in topics})
        return {t.name: tuple(ends[t.name]) for t in topics if t.name in ends}

    def sizes(self, ends: Mapping[str, Sequence[int]], timeout_s: float) -> dict[str, float]:
        self.sized += ends
        return dict.fromkeys(ends, 300.0)

    def close(self) -> None:
        """Nothing is open."""

    # What a test does.

    def reporter(self, node: MemoryNode) -> SegmentLoadReporter:
        operations = node.operations
        service, double = operations.topics.access.service, cast("Any", self)
        return SegmentLoadReporter(
            *(service, self.table, double, operations.traffic, SETTINGS, lambda: double),
            now=lambda: self.now,
        )

    async def round(self, reporter: SegmentLoadReporter, came: int = 0) -> None:
        """Ten seconds later, with so many messages more in every open segment."""
        self.now += SETTINGS.interval_s
        for name, ends in self.cluster.segments.ends.items():
            if name not in self.cluster.segments.sealed:
                ends[0] += came
        await reporter.round()

    def of(self, segment_id: int = 0) -> SegmentLoad | None:
        loads = [
            load
            for place in self.table.places(TOPIC)
            if place.segment_id == segment_id
            for load in [self.table.segments(TOPIC, place.incarnation)[segment_id]]
        ]
        return loads[-1] if loads else None


@asynccontextmanager
async def reported(count: int = 1) -> AsyncIterator[tuple[World, MemoryNode, SegmentLoadReporter]]:
    """With a topic of one segment, controlled by the node."""
    async with memory_cluster(count, **EXACT) as cluster:
        world = World(cluster)
        node = cluster.nodes[0]
        try:
            await node.operations.topics.create(TOPIC, 1, {})
        except ElsewhereError:
            node = cluster.nodes[1]
            await node.operations.topics.create(TOPIC, 1, {})
        reporter = world.reporter(node)
        try:
            yield world, node, reporter
        finally:
            await reporter.close()


def report(node: MemoryNode, messages: int, subscription: str = "") -> None:
    topic = node.operations.topics.topic(TOPIC)
    said = ReportedTraffic(0, subscription, messages, 500 * messages, 0, 0)
    node.operations.traffic.take(TrafficReport(TOPIC, topic.incarnation, 1, 1.0, (said,)))


async def test_what_rests_is_asked_about_less_often_and_at_once_when_a_client_reports() -> None:
    async with reported() as (world, node, reporter):
        for _ in range(60):
            await world.round(reporter)
        before = len(world.asked)
        for _ in range(30):
            await world.round(reporter)
        expected = 30 * SETTINGS.interval_s / SETTINGS.window_s
        assert abs(len(world.asked) - before - expected) <= 1
        before = len(world.asked)
        report(node, 10)
        await world.round(reporter, came=10)
        assert len(world.asked) == before + 1


async def test_clients_reports_are_the_sizes_and_what_was_read() -> None:
    async with reported() as (world, node, reporter):
        await subscribed(node, "billing", "audit")
        await world.round(reporter)
        for number in range(1, 40):
            report(node, 1_000 * number)
            for subscription in ("billing", "audit"):
                report(node, 1_000 * number, subscription)
            await world.round(reporter, came=1_000)
        load = there(world.of())
        assert load.bytes_rate_in == pytest.approx(load.msg_rate_in * 500)
        assert load.bytes_rate_out == pytest.approx(load.msg_rate_out * 500)
        assert load.msg_rate_out > 1.5 * load.msg_rate_in
        assert world.sized == []


async def test_forged_reports_of_reading_give_an_empty_topic_no_load() -> None:
    """For a subscription that there is, and for one that there is not."""

    async with reported() as (world, node, reporter):
        await subscribed(node, "billing")
        await world.round(reporter)
        for number in range(1, 20):
            report(node, 10_000_000 * number, "billing")
            report(node, 10_000_000 * number, "nobody")
            await world.round(reporter)
        load = world.of()
        assert load is None or load.rates == (0.0, 0.0, 0.0, 0.0)


async def subscribed(node: MemoryNode, *subscriptions: str) -> None:
    for each in subscriptions:
        await node.operations.topics.subscriptions.create(TOPIC, each, SubscriptionKind.STREAM)


async def test_the_loads_of_what_is_no_more_are_taken_away() -> None:
    """Of a sealed segment, of a deleted topic, and old ones of a namespace that is gone."""

    async with reported() as (world, node, reporter):
        load, log_ms = LoadRecord(1.0, 1.0, 1.0, 1.0), node.runtime.core.log_ms
        old, new = SegmentKey("public/gone/orders", 7, 0), SegmentKey("public/gone/orders", 8, 0)
        world.table.take([(old, load.at(log_ms - 61_000)), (new, load.at(log_ms + 60_000))])
        await world.round(reporter)
        assert list(world.table.places(old.topic)) == [new]
        assert world.of(0) is not None
        await node.operations.topics.split(TOPIC, 0)
        await world.round(reporter)
        assert world.of(0) is None
        assert {each.segment_id for each in world.table.places(TOPIC)} == {1, 2}
        await node.operations.topics.delete(TOPIC)
        await world.round(reporter)
        assert list(world.table.places(TOPIC)) == []


async def test_a_client_that_reports_before_the_loads_are_read_changes_no_rate() -> None:
    async with reported() as (world, node, reporter):
        topic = node.operations.topics.topic(TOPIC)
        report(node, 5)
        written = SegmentLoad(100.0, 30_000.0, 0.0, 0.0, 1)
        world.table.take([(SegmentKey(TOPIC, topic.incarnation, 0), written)])
        for _ in range(20):
            await world.round(reporter, came=1_000)
        assert world.written == []


async def test_without_its_lease_a_node_writes_nothing() -> None:
    async with reported() as (world, node, reporter):
        await world.round(reporter, came=1_000)
        count = len(world.written)
        node.connected = False
        await until(lambda: not node.runtime.has_lease)
        for _ in range(5):
            await world.round(reporter, came=100_000)
        assert len(world.written) == count


async def test_only_the_controller_of_a_topic_measures_it() -> None:
    async with reported(2) as (world, node, reporter):
        others = [world.reporter(each) for each in world.cluster.nodes if each is not node]
        everybody = [reporter, *others]
        try:
            for each in everybody:
                await world.round(each)
            assert sorted(len(each.inventory) for each in everybody) == [0, 1]
        finally:
            for other in others:
                await other.close()


async def test_others_are_served_while_the_segments_of_a_wide_topic_get_their_meters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory, "_NEW_AT_ONCE", 10)
    wide = "public/default/wide"

    async with reported() as (world, node, reporter):
        await node.operations.topics.create(wide, 25, {})
        measured = reporter.inventory.topics
        following = asyncio.create_task(reporter.inventory.follow())
        seen = set()
        while not following.done():
            await asyncio.sleep(0)
            seen.add(len(measured[wide].segments) if wide in measured else 0)
        assert seen >= {10, 20, 25}
        await world.round(reporter)
        assert len(world.asked[-1]) == 26
