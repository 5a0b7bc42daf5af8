"""What a node tells of its load, when it does, and what it believes of what others tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from anabranch.broker.balance.board import Ignored
from anabranch.broker.balance.reporter import BalanceReporter
from anabranch.channel.balance_records import (
    BrokerLoadRecord,
    broker_load_record,
    top_bundles_record,
)
from anabranch.core.balance.broker_load import BrokerLoadData, Resources
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.reports import BrokerReports
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.names import parse_topic
from support.balance import Outbox, use
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster, until
from support.there import there


class Desk:
    """A node's reporter; what it measures is set by hand."""

    def __init__(self, node: MemoryNode) -> None:
        self.node = node
        self.cpu = 20.0
        self.measure_node: Callable[[], Resources] = lambda: use(self.cpu)
        self.bundles: dict[str, BundleLoad] = {}
        self.loads, self.top = Outbox(), Outbox()
        self.board = node.operations.balance.board
        self.reporter = BalanceReporter(
            node.runtime,
            self.board,
            lambda: self.measure_node(),
            self._measured,
            self.loads,
            self.top,
            1.0,
        )

    async def _measured(self) -> dict[str, BundleLoad]:
        return self.bundles

    @property
    def own(self) -> BrokerLoadRecord:
        found: BrokerLoadRecord = self.loads.newest()[self.node.id]
        return found

    def record(self, **fields: Any) -> BrokerLoadRecord:
        """A load that another broker could report now."""
        now_ms = self.node.runtime.core.log_ms
        load = BrokerLoadData(updated_at_ms=now_ms, reported_at_ms=now_ms)
        return broker_load_record(msgspec.structs.replace(load, **fields))


@asynccontextmanager
async def reporting(nodes: int = 2) -> AsyncIterator[tuple[MemoryCluster, Desk]]:
    """The leader's desk."""
    async with memory_cluster(nodes) as cluster:
        yield cluster, Desk(next(n for n in cluster.nodes if n.runtime.core.is_leader()))


async def test_what_starting_took_is_no_load() -> None:
    async with reporting() as (_, desk):
        measured = iter([use(95.0)])
        desk.measure_node = lambda: next(measured, use(20.0))
        running = asyncio.create_task(desk.reporter.run())
        await until(lambda: desk.reporter.reports > 0)
        assert desk.own.cpu_usage == 20.0
        assert desk.own.weighted_max_ema == pytest.approx(0.2)
        running.cancel()


async def test_the_sums_of_its_bundles_are_a_broker_s_traffic() -> None:
    async with reporting() as (_, desk):
        desk.bundles = {
            "a/b/0x00000000_0x80000000": BundleLoad(1.0, 2.0, 1e6, 4e6, topics=2),
            "a/b/0x80000000_0xffffffff": BundleLoad(10.0, 20.0, 2e6, 8e6, topics=3),
        }
        await desk.reporter.round()
        own = desk.own
        assert (own.msg_rate_in, own.msg_rate_out) == (11.0, 22.0)
        assert (own.msg_throughput_in, own.msg_throughput_out) == (3e6, 12e6)
        assert (own.bundle_count, own.topics, own.msg_throughput_ema) == (2, 5, 15e6)
        told = desk.top.newest()[desk.node.id].load
        assert [name for name, _ in told.bundles] == list(desk.bundles), "the least loaded first"
        await desk.reporter.round()
        assert len(desk.top.written) == 1, "nothing has changed"


async def test_top_bundles_are_told_again_when_one_has_changed_much_or_is_another() -> None:
    first, other = "a/b/0x00000000_0x80000000", "a/b/0x80000000_0xffffffff"

    async with reporting() as (_, desk):

        async def told(**bundles: BundleLoad) -> int:
            desk.bundles = {{"first": first, "other": other}[key]: v for key, v in bundles.items()}
            await desk.reporter.round()
            return len(desk.top.written)

        load = BundleLoad(100.0, 100.0, 1e6, 1e6)
        assert await told(first=load, other=load) == 1
        flutter = BundleLoad(105.0, 95.0, 1.05e6, 0.95e6)
        for _ in range(3):
            assert await told(first=flutter, other=load) == 1
        assert await told(first=BundleLoad(105.0, 95.0, 1.05e6, 1.2e6), other=load) == 2
        assert await told(first=load, other=load) == 3, "by what was told last"
        assert await told(first=load) == 4
        assert await told(other=load) == 5
        assert await told() == 6
        assert await told() == 6


async def test_a_node_that_got_a_bundle_measures_anew_without_history() -> None:
    async with reporting(nodes=1) as (_, desk):
        await desk.reporter.round()
        desk.cpu = 90.0
        topic, namespace = parse_topic("persistent://public/default/orders")
        located = await desk.node.operations.lookups.find(topic, namespace)
        mine = located.broker == desk.node.id
        await desk.reporter.round()
        assert desk.own.weighted_max_ema == pytest.approx(0.9 if mine else 0.9 * 0.2 + 0.1 * 0.9)


def test_a_load_at_rest_is_told_once_more_when_the_leader_waits_for_it() -> None:
    reports = BrokerReports(BalanceSettings(shedding_delay_in_seconds=180.0))

    def told_at(seconds: int, gave_at_s: int | None) -> bool:
        gave_at_ms = None if gave_at_s is None else gave_at_s * 1_000
        return reports.measured(use(20.0), {}, seconds * 1_000, gave_at_ms) is not None

    assert told_at(1_000, None)
    assert [told_at(each, None) for each in (1_005, 1_200)] == [False, False]
    assert [told_at(each, 1_200) for each in (1_205, 1_379)] == [False, False]
    assert [told_at(each, 1_200) for each in (1_380, 1_385, 1_800)] == [True, False, False]
    assert [told_at(each, 1_790) for each in (1_900, 1_972, 1_975)] == [False, True, False]


async def test_what_the_leader_has_taken_away_is_told_again() -> None:
    bundle = "a/b/0x00000000_0x80000000"

    async with reporting() as (_, desk):

        async def rounds() -> tuple[int, int]:
            await desk.reporter.round()
            for topic, take in ((desk.loads, desk.board.take), (desk.top, desk.board.take_top)):
                take([(desk.node.id, topic.newest()[desk.node.id])])
            return desk.reporter.reports, len(desk.top.written)

        desk.bundles = {bundle: BundleLoad(100.0, 100.0, 1e6, 1e6)}
        assert await rounds() == (1, 1)
        desk.node.runtime.core.log_ms += 20_000
        assert await rounds() == (1, 1), "everybody knows it"
        desk.board.take([(desk.node.id, None)])  # as while this node's session is over
        desk.board.take_top([(desk.node.id, None)])
        assert await rounds() == (2, 2)
        desk.board.take([(desk.node.id, None)])
        assert await rounds() == (2, 2), "the newest one may still be on its way"


def test_a_new_bundle_of_a_split_is_told_however_low_also_if_it_was_just_not_measured() -> None:
    reports = BrokerReports(BalanceSettings(max_number_of_bundles_in_bundle_load_report=1))
    high, low = {"a/b/high": BundleLoad(0, 0, 9e6)}, {"a/b/low": BundleLoad(0, 0, 1e6)}

    def told(bundles: dict[str, BundleLoad]) -> list[str] | None:
        found = reports.top(bundles, NO_POLICIES, 1_000)
        return None if found is None else [name for name, _ in found.bundles]

    reports.changed_hands(low)
    assert told(high) == ["a/b/high"], "the split was through while loads were added up"
    assert (told(high | low), told(high)) == (["a/b/low", "a/b/high"], ["a/b/high"])
    assert told(high | low) is None, "it went, and has come back as any other"


async def test_a_node_out_of_touch_with_the_log_tells_nothing() -> None:
    async with reporting() as (_, desk):
        desk.node.connected = False
        await until(lambda: not desk.node.runtime.has_lease)
        await desk.reporter.round()
        assert desk.loads.written == []


async def test_a_load_that_cannot_be_meant_is_counted_and_not_taken_in() -> None:
    async with reporting() as (cluster, desk):
        other = next(n.id for n in cluster.nodes if n is not desk.node)
        ahead = desk.node.runtime.core.log_ms + 3_600_000
        desk.board.take([(other, desk.record(updated_at_ms=ahead))])
        assert desk.board.of(other) is None
        assert len(desk.board) == 0
        assert other in desk.board.known(), "its broker has told something"
        desk.board.take([("nobody:1", desk.record())])
        assert desk.board.ignored == {Ignored.UNSOUND: 1, Ignored.UNKNOWN_BROKER: 1}
        assert "nobody:1" not in desk.board.known()
        desk.board.take([(other, desk.record(weighted_max_ema=0.5))])
        assert there(desk.board.of(other)).weighted_max_ema == 0.5
        desk.board.take([(other, None)])
        assert desk.board.of(other) is None


async def test_what_is_out_of_date_does_not_count_and_the_leader_takes_it_away() -> None:
    async with reporting() as (cluster, desk):
        other = next(n.id for n in cluster.nodes if n is not desk.node)
        old_ms = desk.node.runtime.core.log_ms - 1_800_001 - 10_000
        desk.board.take([(other, desk.record(updated_at_ms=old_ms))])
        assert desk.board.of(other) is None
        desk.board.take_top([(other, top_bundles_record(TopBundlesLoadData((), old_ms)))])
        assert desk.board.top() == {}
        await desk.reporter.round()
        assert desk.top.follows, "the leader reads the top bundles"
        assert (other, None) in desk.loads.written
        assert (other, None) in desk.top.written
        desk.board.take([(other, desk.record())])
        desk.board.take_top([(other, top_bundles_record(TopBundlesLoadData((), old_ms)))])
        desk.loads.written.clear()
        await desk.reporter.round()
        assert desk.top.written[-1] == (other, None)
        assert (other, None) not in desk.loads.written, "without traffic it has a load"
        follower = Desk(next(n for n in cluster.nodes if n is not desk.node))
        follower.top.follows = True  # it has led until now
        follower.board.take([(desk.node.id, follower.record(updated_at_ms=old_ms))])
        await follower.reporter.round()
        assert not follower.top.follows
        assert None not in dict(follower.loads.written).values()
