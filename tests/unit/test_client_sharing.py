"""What consumers over many topics share: connections to nodes, and reports that keep sessions."""

from __future__ import annotations

import asyncio

from anabranch.client import LayoutWatch
from anabranch.client._consumer.assignment import Assignment
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._many.connections import SharedConnections
from anabranch.client._many.keeping import SessionKeeper
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server import Peer, Routes
from support.waiting import WAIT_S, until
from support.wire import HOST, run, serving


class Many:
    """A node that tells each topic a layout of its own epoch, and notes who connects."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.peers: list[Peer] = []
        self.reports: list[list[int]] = []
        self._keeps = keeps
        self._watchers: dict[str, tuple[Peer, int]] = {}

    def push(self, topic: str, epoch: int) -> None:
        peer, number = self._watchers[f"topic://public/default/{topic}"]
        dag = pb.ScalableTopicDAG(epoch=epoch, incarnation=1)
        peer.send(pb.CommandScalableTopicUpdate(session_id=number, dag=dag))

    def session(self, peer: Peer) -> Routes:
        self.peers.append(peer)

        async def watch(command: BaseCommand) -> None:
            said = command.scalableTopicLookup
            self._watchers[said.topic] = peer, said.session_id
            self.push(said.topic.rpartition("/")[2], 1)

        async def close(_command: BaseCommand) -> None:
            pass

        async def report(command: BaseCommand) -> None:
            said = command.scalableConsumerReport
            self.reports.append([said.consumer_id, *said.also_kept])
            kept = said.also_kept if self._keeps else ()
            peer.send(pb.CommandSuccess(request_id=said.request_id, kept=kept))

        return {
            BaseCommand.SCALABLE_TOPIC_LOOKUP: watch,
            BaseCommand.SCALABLE_TOPIC_CLOSE: close,
            BaseCommand.SCALABLE_CONSUMER_REPORT: report,
        }


def test_watches_of_many_topics_share_a_connection_and_each_hears_of_its_own() -> None:
    async def test() -> None:
        node = Many()
        async with serving(node.session) as server:
            nodes = Nodes(f"pulsar://{HOST}:{server.port}", SharedConnections().connect)
            watches = {each: LayoutWatch(nodes, f"topic://public/default/{each}") for each in "abc"}
            await asyncio.gather(*(watch.start(WAIT_S) for watch in watches.values()))
            assert len(node.peers) == 1
            node.push("b", 7)
            await until(lambda: watches["b"].layout.epoch == 7)
            assert [watches[each].layout.epoch for each in "ac"] == [1, 1]
            await watches["a"].close()  # the others stay on the connection
            node.push("c", 9)
            await until(lambda: watches["c"].layout.epoch == 9)
            node.peers[0].close("the test cuts it")
            await until(lambda: len(node.peers) == 2)  # one again for both
            await until(lambda: node._watchers["topic://public/default/c"][0] is node.peers[1])
            await watches["b"].close()
            await watches["c"].close()
            await until(lambda: all(peer.closed.done() for peer in node.peers))

    run(test)


def _subscribed() -> ConsumerCore:
    core = ConsumerCore(1.0, keep_alives=0.1)
    order = core.begin_subscribe(clock.now())
    assert core.on_subscribed(order.number, Assignment(1, 1, 1, "g", 2.0), clock.now())
    return core


def test_one_report_keeps_all_sessions_of_a_connection() -> None:
    async def test() -> None:
        node = Many()
        async with serving(node.session) as server:
            connections, keeper, poked = SharedConnections(), SessionKeeper(), list[int]()
            cores = {number: _subscribed() for number in (1, 2, 3)}
            before = {number: core._answered_at for number, core in cores.items()}
            lines = [
                await connections.connect(
                    HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
                )
                for _ in cores
            ]
            kept = [
                keeper.kept(line, number, core, lambda: poked.append(1))
                for line, (number, core) in zip(lines, cores.items(), strict=True)
            ]
            for each in kept:
                each.__enter__()
            await until(lambda: all(c._answered_at > before[n] for n, c in cores.items()))
            assert node.reports[0] == [1, 2, 3]
            assert not poked
            await keeper.close()
            for line in lines:
                line.close("the test is over")

    run(test)


def test_whom_a_node_does_not_keep_so_is_told_to_report_by_itself() -> None:
    async def test() -> None:
        node = Many(keeps=False)
        async with serving(node.session) as server:
            connections, keeper, poked = SharedConnections(), SessionKeeper(), list[int]()
            line = await connections.connect(
                HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
            )
            first, second = _subscribed(), _subscribed()
            with (
                keeper.kept(line, 1, first, lambda: poked.append(1)),
                keeper.kept(line, 2, second, lambda: poked.append(2)),
            ):
                await until(lambda: bool(poked))
                assert set(poked) == {2}
                assert second.report_due(clock.now())
                assert not first.report_due(clock.now())
            await keeper.close()
            line.close("the test is over")

    run(test)
