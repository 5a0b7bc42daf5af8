"""What consumers over many topics share: connections to nodes, and reports that keep sessions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import Callable

import pytest

from anabranch.client import LayoutWatch
from anabranch.client._consumer.assignment import AssignedSegment, Assignment
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._many.connections import REQUESTS_MAX, Line, SharedConnections
from anabranch.client._many.keeping import SessionKeeper
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import RequestTimeoutError
from anabranch.wire.server.server import Peer, Routes
from support import steady
from support.waiting import WAIT_S, until
from support.wire import HOST, run, serving


class Many:
    """A node that tells each topic a layout of its own epoch, and notes who connects."""

    def __init__(self, *, keeps: bool = True, ignored: int = 0) -> None:
        self.peers: list[Peer] = []
        self.reports: list[list[int]] = []
        self.keeps = keeps
        self._ignored = ignored  # the consumer whose reports are not answered
        self.answers = asyncio.Event()  # clear it to make reports wait
        self.answers.set()
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
            if said.consumer_id == self._ignored:
                return
            await self.answers.wait()
            kept = said.also_kept if self.keeps else ()
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


def test_who_is_not_answered_leaves_a_connection_on_which_others_are() -> None:
    async def test() -> None:
        node = Many(ignored=1)
        async with serving(node.session) as server:
            connections = SharedConnections()
            first, second = [
                await connections.connect(
                    HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
                )
                for _ in range(2)
            ]
            unheard, heard = (
                pb.CommandScalableConsumerReport(consumer_id=each, also_kept=[7]) for each in (1, 2)
            )
            waiting = asyncio.create_task(first.request(unheard, 0.3))
            await until(lambda: node.reports == [[1, 7]])
            await second.request(heard, WAIT_S)
            with pytest.raises(RequestTimeoutError):
                await waiting
            assert [first.is_open, second.is_open] == [True, True]
            with pytest.raises(RequestTimeoutError):  # now nobody is
                await first.request(unheard, 0.1)
            assert [first.is_open, second.is_open] == [False, False]

    steady.run(test())


def test_reports_do_not_wait_for_what_opens_sessions() -> None:
    async def test() -> None:
        node = Many(ignored=1)
        async with serving(node.session) as server:
            line = await SharedConnections().connect(
                HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
            )
            assert isinstance(line, Line)
            ask = functools.partial(pb.CommandScalableConsumerReport, also_kept=[7])
            opening = [
                asyncio.create_task(line.request(ask(consumer_id=1), WAIT_S))
                for _ in range(REQUESTS_MAX + 1)
            ]
            await until(lambda: len(node.reports) == REQUESTS_MAX)
            answer = await line.request_at_once(ask(consumer_id=2), WAIT_S)
            assert list(answer.success.kept) == [7]
            assert len(node.reports) == REQUESTS_MAX + 1  # the last one waits for its turn
            line.close("the test is over")
            await asyncio.gather(*opening, return_exceptions=True)

    run(test)


class _Core(ConsumerCore):
    """One that counts how often the time of its session is asked for."""

    asked = 0

    @property
    def assignment(self) -> Assignment | None:
        _Core.asked += 1
        return self._told

    @assignment.setter
    def assignment(self, told: Assignment | None) -> None:
        self._told = told


def test_a_look_at_sessions_costs_nothing_for_those_that_are_not_due() -> None:
    async def test() -> None:
        node, times = Many(), list[float]()

        def now() -> float:  # it stands still
            times.append(0.0)
            return 0.0

        async with serving(node.session) as server:
            line = await SharedConnections().connect(
                HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
            )
            keeper = SessionKeeper(now)
            with contextlib.ExitStack() as kept:
                for number in range(1_000):
                    kept.enter_context(keeper.kept(line, number, _Core(1.0), lambda: None))
                _Core.asked = 0
                looked = len(times)
                await until(lambda: len(times) >= looked + 4)  # two looks
                assert not node.reports
                assert _Core.asked <= 4 * (len(times) - looked)
            await keeper.close()
            line.close("the test is over")

    run(test)


def _subscribed(*segments: AssignedSegment, now: Callable[[], float] = clock.now) -> ConsumerCore:
    core = ConsumerCore(1.0, keep_alives=0.1)
    order = core.begin_subscribe(now())
    assert core.on_subscribed(order.number, Assignment(1, 1, 1, "g", 2.0, segments), now())
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


def test_who_is_kept_waits_for_no_time_of_its_own_until_it_is_kept_no_more() -> None:
    async def test() -> None:
        node, poked = Many(), list[int]()
        now = asyncio.get_running_loop().time
        async with serving(node.session) as server:
            keeper = SessionKeeper(now)
            line = await SharedConnections().connect(
                HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
            )
            first, second = _subscribed(now=now), _subscribed(now=now)
            with keeper.kept(line, 1, first, lambda: poked.append(1)):
                with keeper.kept(line, 2, second, lambda: poked.append(2)):
                    assert second.wake_at() < math.inf
                    await until(lambda: first.is_kept and second.is_kept)
                    assert [first.wake_at(), second.wake_at()] == [math.inf] * 2
                    assert not poked
                    node.keeps = False
                    await until(lambda: not second.is_kept)
                    assert second.wake_at() < math.inf
                    assert set(poked) == {2}
                    node.keeps = True
                    await until(lambda: second.is_kept)
                    poked.clear()
                assert (second.is_kept, poked) == (False, [2])
                node.peers[0].close("the test cuts it")
                await until(lambda: not first.is_kept)
                assert 1 in poked
            await keeper.close()
            line.close("the test is over")

    steady.run(test())


def test_news_that_came_while_a_report_was_under_way_are_told_at_once() -> None:
    async def test() -> None:
        node, poked = Many(), list[int]()
        now = asyncio.get_running_loop().time
        async with serving(node.session) as server:
            keeper = SessionKeeper(now)
            line = await SharedConnections().connect(
                HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
            )
            core = _subscribed(AssignedSegment(0, "orders", (0,)), now=now)
            node.answers.clear()
            with keeper.kept(line, 1, core, lambda: poked.append(1)):
                await until(lambda: node.reports == [[1]])
                core.on_assignment(Assignment(2, 1, 1, "g", 2.0), now())
                assert core.has_news
                assert not core.report_due(now())  # one is under way
                assert not poked
                node.answers.set()
                await until(lambda: bool(poked))
                assert core.report_due(now())
            await keeper.close()
            line.close("the test is over")

    steady.run(test())


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


def test_who_is_not_answered_in_time_by_a_slow_node_is_reported_with_all_others_again() -> None:
    async def test() -> None:
        node, poked = Many(ignored=1), list[int]()
        now = asyncio.get_running_loop().time
        async with serving(node.session) as server:
            connections, keeper = SharedConnections(), SessionKeeper(now)
            line, other = [
                await connections.connect(
                    HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S
                )
                for _ in range(2)
            ]
            cores = {number: _subscribed(now=now) for number in (1, 2)}
            before = {number: core._answered_at for number, core in cores.items()}

            async def others_are_answered() -> None:
                while True:
                    await other.request(pb.CommandScalableConsumerReport(consumer_id=9), WAIT_S)
                    await asyncio.sleep(0.05)

            busy = asyncio.create_task(others_are_answered())
            with contextlib.ExitStack() as kept:
                for number, core in cores.items():
                    poke = functools.partial(poked.append, number)
                    kept.enter_context(keeper.kept(line, number, core, poke))
                # A second one, once the patience with the first is over, and before the session is.
                await until(lambda: node.reports.count([1, 2]) == 2)
                node._ignored = 0
                await until(lambda: all(c._answered_at > before[n] for n, c in cores.items()))
                assert {tuple(each) for each in node.reports} == {(1, 2), (9,)}
                assert not poked
                assert line.is_open
            busy.cancel()
            await keeper.close()
            line.close("the test is over")
            other.close("the test is over")

    steady.run(test())
