"""The leader of real nodes dies in the middle of a cycle of shedding: the next one goes on.

How busy a node is, and what traffic a bundle has, is told here in place of two gauges, the one of
the process and the one of segments. Everything else is real: reports, their topics, the decision,
the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from anabranch.broker import node as shell
from anabranch.broker.balance import build
from anabranch.broker.node import Node
from anabranch.broker.settings import Settings
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.kafka_log import KafkaLogReader
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.offload import Unmoved
from anabranch.core.balance.reports import Resources
from anabranch.core.balance.splitting import TopicLoad
from anabranch.core.bundles.unit import Move, UnitState
from anabranch.core.log.fold import evolve
from anabranch.core.log.records import AUTOMATIC, Cause, Record, UnitMove
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, parse_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.audit.tally import CheckName
from support.balance import use
from support.channel import read_all
from support.history import History
from support.kafka_cluster import WAIT_S, KafkaCluster, kafka_cluster
from support.local_audit import audited, not_applicable, violated
from support.waiting import eventually, until

pytestmark = pytest.mark.integration

HOME = Namespace("public/shop")
BUNDLES = 10
LEADS_AT = 30.0  # the leader's own use of its processor: neither the most loaded nor the least
BEFORE = 2  # moves that the leader gets onto the log
TOO_BUSY = 60.0  # by which what has come should go again
SETTINGS = {
    "loadBalancerReportUpdateMinIntervalMillis": 200,
    "loadBalancerReportUpdateThresholdPercentage": 1,
    "loadBalancerReportUpdateMaxIntervalMinutes": 0.01,  # a load that rests is told, too
    "loadBalancerHistoryResourcePercentage": 0,  # what is measured counts at once
    "loadBalancerBandwidthInResourceWeight": 0,  # the machine's own
    "loadBalancerBandwidthOutResourceWeight": 0,
    "loadBalancerSheddingIntervalMinutes": 0.01,
    "loadBalancerSheddingConditionHitCountThreshold": 0,
    "loadBalanceSheddingDelayInSeconds": 2,
    "loadBalancerBrokerLoadTargetStd": 0.1,
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": 600_000,  # nobody overrides
}


class Gauges:
    """What every node of this process measures: its bundles' traffic, and the use that makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traffic: dict[str, int] = {}  # bytes a second of each bundle, wherever it is
        self.busy: dict[str, float] = {}  # percent of a processor, beside the bundles
        self._serving: dict[str, TopicService] = {}
        gauges = self

        class Process:
            def __init__(self, settings: Settings) -> None:
                self._me = settings.broker_id

            def read(self) -> Resources:
                return use(gauges.use(self._me))

        class Segments:
            def __init__(self, service: TopicService, *_: object) -> None:
                gauges._serving[service.runtime.core.me] = self._service = service

            async def read(self, elapsed_s: float) -> dict[str, BundleLoad]:
                return gauges.loads(self._service)

            def topics(self, bundle: str) -> list[TopicLoad]:
                return []

        monkeypatch.setattr(shell, "resource_meter", Process)
        monkeypatch.setattr(build, "BundleMeter", Segments)

    def loads(self, service: TopicService) -> dict[str, BundleLoad]:
        serving = service.runtime.core.serving
        return {
            name: BundleLoad(msg_throughput_in=float(amount))
            for name, amount in self.traffic.items()
            if name in serving
        }

    def use(self, broker: str) -> float:
        loads = self.loads(self._serving[broker]) if broker in self._serving else {}
        mine = sum(each.msg_throughput_in for each in loads.values())
        whole = sum(self.traffic.values()) or 1
        return self.busy.get(broker, 0.0) + 100 * mine / whole


class HalfProposed:
    """Lets the first automatic moves of a leader onto the log and no more, as if it had died then.

    The last one of them stays under way: its owner does not hand it over until `go_on`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, leader: Node, owner: Node) -> None:
        self.proposed: list[UnitMove] = []
        self.lost: list[UnitMove] = []
        self.is_held = True
        send = leader.runtime.proposals.send
        own = owner.runtime.proposals.send

        def decides(records: Sequence[Record], *, again: bool = False) -> None:
            for record in records:
                if not isinstance(record, UnitMove) or record.cause not in AUTOMATIC:
                    send((record,), again=again)
                elif len(self.proposed) < BEFORE:
                    self.proposed.append(record)
                    send((record,), again=again)
                else:
                    self.lost.append(record)

        def hands_over(records: Sequence[Record], *, again: bool = False) -> None:
            own(
                [each for each in records if not (self.is_held and self._is_last(each))],
                again=again,
            )

        monkeypatch.setattr(leader.runtime.proposals, "send", decides)
        monkeypatch.setattr(owner.runtime.proposals, "send", hands_over)

    def _is_last(self, record: Record) -> bool:
        return (
            isinstance(record, UnitMove)
            and record.move is Move.HAND_OVER
            and [each.unit for each in self.proposed[BEFORE - 1 :]] == [record.unit]
        )

    def go_on(self) -> None:
        self.is_held = False


async def give_all(node: Node, to: Node) -> tuple[str, ...]:
    """A namespace, all of whose bundles belong to one node; in ring order."""
    operations = node.operations
    await operations.tenancy.create_namespace(HOME, BUNDLES)
    for number in range(BUNDLES * 5):
        await operations.lookups.lookup(*parse_topic(f"persistent://{HOME}/t{number}"))
    names = tuple(f"{HOME}/{part}" for part, _ in operations.bundles(HOME))
    for name in names:
        await operations.unload(name, to.settings.broker_id)
    return names


async def read_log(kafka: EmbeddedKafka, prefix: str, cluster: KafkaCluster) -> History:
    """All that the log holds by now."""
    await cluster.caught_up()
    end = cluster.nodes[0].operations.position().next_offset
    connection = KafkaConnection(kafka.bootstrap_servers)
    history = History()

    def read() -> None:
        reader = KafkaLogReader(connection, Topics(prefix).wal, 0)
        history.entries = read_all(reader, end)
        reader.close()

    await asyncio.to_thread(read)
    return history


def accepted_moves(history: History) -> list[tuple[int, UnitMove]]:
    """Every accepted move of a unit, with its offset, by the nodes' own rule."""
    found = []
    for entry in history.entries:
        record = entry.record()
        assert record is not None
        outcome = evolve(history.state, record, entry.offset, entry.timestamp_ms)
        history.state.apply(outcome.changes)
        history.state.next_offset = entry.offset + 1
        if isinstance(record, UnitMove) and outcome.verdict is Verdict.ACCEPTED:
            found.append((entry.offset, record))
    return found


async def is_kept_by_grace(cluster: KafkaCluster, bundles: set[str]) -> bool:
    """Whether the leader's next cycle would offer these if they had not been moved lately."""
    leads = cluster.nodes[0].operations.leader()
    leader = next(node for node in cluster.nodes if node.settings.broker_id == leads)
    (cycle,) = (await leader.operations.balance.told({}, 1)).outlook.cycles
    refused = (each for exchange in cycle.exchanges for each in exchange.unmoved)
    return bundles <= {name for name, why in refused if why is Unmoved.MOVED_LATELY}


def states(node: Node, names: Iterable[str]) -> Mapping[str, UnitState]:
    found = ((name, node.runtime.view.unit(name)) for name in names)
    return {name: unit.state for name, unit in found if unit is not None}


def test_the_next_leader_ends_what_was_begun_and_decides_anew_what_was_not(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gauges = Gauges(monkeypatch)

    async def body(cluster: KafkaCluster) -> None:
        by_id = {str(node.settings.broker_id): node for node in cluster.nodes}
        leader = by_id[cluster.nodes[0].operations.leader()]
        hot, cold = (node for node in cluster.nodes if node is not leader)
        names = await give_all(cold, hot)
        await cluster.caught_up()
        held = HalfProposed(monkeypatch, leader, hot)
        gauges.busy[leader.settings.broker_id] = LEADS_AT
        gauges.traffic = {name: 10_000 + 1_000 * at for at, name in enumerate(names)}

        await until(lambda: len(held.lost) > 0, WAIT_S)
        lost = {record.unit for record in held.lost}  # of the cycle that was to move all of them
        first, last = (record.unit for record in held.proposed)
        half_done = {first: UnitState.OWNED, last: UnitState.RELEASING}
        await until(
            lambda: (
                cold.runtime.core.serving == {first: True} and states(cold, half_done) == half_done
            ),
            WAIT_S,
        )
        await cluster.crash(leader)
        rest = {node.settings.broker_id for node in cluster.nodes}
        await until(lambda: all(n.operations.leader() in rest for n in cluster.nodes), WAIT_S)
        held.go_on()

        moved = {first, last} | lost

        def is_done() -> bool:
            return all(
                set(states(node, names).values()) == {UnitState.OWNED}
                and moved <= {name for name, _ in node.operations.owned(cold.settings.broker_id)}
                for node in cluster.nodes
            )

        await until(is_done, WAIT_S)
        gauges.busy[cold.settings.broker_id] = TOO_BUSY
        await eventually(lambda: is_kept_by_grace(cluster, moved), WAIT_S)
        history = await read_log(kafka, topic_prefix, cluster)
        sheds = [r for _, r in accepted_moves(history) if r.cause in AUTOMATIC]
        assert [record.unit for record in sheds[:BEFORE]] == [first, last]
        assert {record.actor for record in sheds[:BEFORE]} == {leader.settings.broker_id}
        anew = sheds[BEFORE:]
        assert {record.actor for record in anew} <= rest
        assert lost <= {record.unit for record in anew}
        assert not {record.proposal_id for record in anew} & {r.proposal_id for r in held.lost}
        units = [record.unit for record in sheds]
        assert len(units) == len(set(units)), "none moves again in its grace period"
        for record in sheds:
            (grounds,) = record.choice
            assert record.cause in (Cause.OVERLOADED, Cause.UNDERLOADED)
            assert grounds.predicted <= grounds.deviation  # equal where it is for the traffic
        findings = audited(history)
        assert violated(findings) == []
        assert CheckName.BALANCE not in not_applicable(findings)

    async def whole() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 3, **SETTINGS) as cluster:
            await body(cluster)

    asyncio.run(whole())
