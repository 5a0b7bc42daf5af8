"""A node's balancer, on nodes that share a log in memory: what it does, when, and what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.broker.balance.runner import BalanceRunner
from anabranch.broker.node.balancing import build_counts, installed
from anabranch.channel.codec import read_entry
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.counters import BalanceResult, SplitReason, UnloadReason
from anabranch.core.entities.unit import Move
from anabranch.core.log.grounds import strategy_of
from anabranch.core.log.records import Cause, UnitMove
from anabranch.core.names import Namespace
from support.balance import give_all, tell
from support.example_strategies import installed_in
from support.memory_cluster import MemoryCluster, MemoryNode, memory_cluster, until

HOME = Namespace("public/shop")
BUNDLES = 8
SOON = {
    "loadBalancerSheddingIntervalMinutes": 0.02,
    "loadBalancerSplitIntervalMinutes": 0.02,
    "loadBalancerSheddingConditionHitCountThreshold": 1,
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": 1,
}


class Balanced:
    """A node with its balancer; loads are those that were told by hand."""

    def __init__(self, node: MemoryNode) -> None:
        self.node = node
        self.bundles: dict[str, BundleLoad] = {}
        self.board = node.operations.balance.board
        self.counts = build_counts(node.operations, node.runtime)
        self.balancer = BalanceRunner(
            node.runtime, self.board, self.counts, lambda: self.bundles, lambda bundle: ()
        )
        node.operations.topics.access.service.tickers.append(self.balancer.ticked)


class Scene:
    """A namespace whose bundles all belong to one node."""

    def __init__(self, cluster: MemoryCluster, nodes: list[Balanced]) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.leader = next(n for n in nodes if n.node.runtime.core.is_leader())
        self.hot = next(n for n in nodes if n is not self.leader)

    async def heat(self) -> tuple[str, ...]:
        await give_all(self.hot.node, HOME, BUNDLES)
        return self.of_hot()

    def of_hot(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.leader.node.operations.owned(self.hot.node.id))

    def moves(self, *causes: Cause) -> list[UnitMove]:
        read = [read_entry(e.key, e.value) for e in self.cluster.entries]
        return [r for r in read if isinstance(r, UnitMove) and r.cause in causes]


@asynccontextmanager
async def balanced(**settings: object) -> AsyncIterator[Scene]:
    async with memory_cluster(3, **SOON | settings) as cluster:
        yield Scene(cluster, [Balanced(node) for node in cluster.nodes])


async def test_the_leader_relieves_a_hot_broker_and_says_why() -> None:
    async with balanced() as scene:
        bundles = await scene.heat()
        assert len(bundles) == BUNDLES
        loads = {each.node.id: 0.1 for each in scene.nodes} | {scene.hot.node.id: 0.9}
        with capture_logs() as lines:
            for each in scene.nodes:
                tell(each.node, loads, {scene.hot.node.id: bundles})
            await until(lambda: 0 < len(scene.of_hot()) < BUNDLES)
        told = [line for line in lines if line["event"] == "balance.unload"]
        moved = scene.moves(Cause.OVERLOADED)
        assert [line["bundle"] for line in told] == [each.unit for each in moved]
        assert all(each.move is Move.RELEASE for each in moved)
        assert {each.actor for each in moved} == {scene.leader.node.id}
        for line, record in zip(told, moved, strict=True):
            (grounds,) = record.choice
            assert line["reason"] == grounds.rule == "Overloaded"
            assert line["source"] == scene.hot.node.id
            assert line["destination"] == record.broker != scene.hot.node.id
            assert line["predicted"] < line["deviation"]
            assert grounds.predicted < grounds.deviation
        done = (BalanceResult.SUCCESS, UnloadReason.OVERLOADED)
        await until(lambda: scene.leader.counts.unloads[done] == len(moved))
        assert scene.leader.counts.brokers_unloaded == 1
        assert scene.leader.balancer.last_round is not None
        assert scene.hot.balancer.last_round is None, "only the leader decides"


async def test_an_owner_splits_what_has_too_many_topics() -> None:
    async with balanced() as scene:
        bundles = await scene.heat()
        with capture_logs() as lines:
            scene.hot.bundles = {bundles[0]: BundleLoad(topics=1_001)}
            await until(lambda: len(scene.hot.node.operations.bundles(HOME)) == BUNDLES + 1)
        (line,) = [line for line in lines if line["event"] == "balance.split"]
        assert (line["bundle"], line["reason"]) == (bundles[0], "Topics")
        assert "1001 topics" in line["why"]
        (record,) = scene.moves(Cause.TOPICS)
        assert record.actor == scene.hot.node.id
        done = (BalanceResult.SUCCESS, SplitReason.TOPICS)
        await until(lambda: scene.hot.counts.splits[done] == 1)


@pytest.mark.parametrize(("name", "decides"), [("even-keel", True), ("lost", False)])
async def test_an_installed_strategy_decides_and_one_that_cannot_is_named(
    name: str, decides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed_in(tmp_path)))
    own = {
        "loadBalancerLoadSheddingStrategy": name,
        "loadBalancerLoadPlacementStrategy": "even-keel",
        "loadBalancerBundleSplitStrategy": "even-keel",
    }
    async with balanced(**own) as scene:
        for each in scene.nodes:
            each.node.runtime.core.balance.strategies = installed()
        bundles = await scene.heat()
        loads = {each.node.id: 0.1 for each in scene.nodes} | {scene.hot.node.id: 0.9}
        with capture_logs() as lines:
            for each in scene.nodes:
                tell(each.node, loads, {scene.hot.node.id: bundles})
            await until(lambda: len(scene.of_hot()) < BUNDLES)
            scene.hot.bundles = {scene.of_hot()[0]: BundleLoad(topics=2, consumers=500)}
            await until(lambda: bool(scene.moves(Cause.SESSIONS)))
        rules = {
            what: {
                strategy_of(record.choice[0].rule)
                for record in scene.moves(*Cause)
                if record.move is what and record.choice
            }
            for what in (Move.ASSIGN, Move.RELEASE, Move.SPLIT)
        }
        assert rules[Move.ASSIGN] == rules[Move.SPLIT] == {"even-keel"}
        assert rules[Move.RELEASE] == ({name} if decides else {""})
        told = [line for line in lines if line["event"] == "balance.strategy_failed"]
        assert {line["strategy"] for line in told} == (set() if decides else {name})
        assert all("even_keel:nowhere cannot be loaded" in line["why"] for line in told)
