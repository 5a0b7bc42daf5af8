"""What consumers over many topics share: connections to nodes, and reports that keep sessions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from anabranch import client as sdk
from anabranch.client import LayoutWatch, QueueSettings, TopicSelection
from anabranch.client._consumer.assignment import AssignedSegment, Assignment, Loss
from anabranch.client._consumer.consumer import Membership
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._many import consumer as consumer_module
from anabranch.client._many import queue as queue_module
from anabranch.client._many.beginnings import Beginnings
from anabranch.client._many.connections import REQUESTS_MAX, Line, SharedConnections
from anabranch.client._many.consumer import TopicsSubscription
from anabranch.client._many.keeping import SessionKeeper
from anabranch.client._many.membership import MemberState
from anabranch.client._topics.nodes import NodeConnection, Nodes
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import RequestTimeoutError
from anabranch.wire.server.server import Peer, Routes
from support.lone_consumers import consuming
from support.still_watch import layout_of, lone_member, no_producer
from support.topic_node import TopicNode
from support.waiting import WAIT_S, until
from support.wire import HOST, on_both_loops, serving


class Many(TopicNode):
    """Tells each topic a layout of its own epoch, keeps sessions, and notes who connects."""

    def __init__(self, *, ignored: int = 0) -> None:
        super().__init__()
        self.peers: list[Peer] = []
        self.reports: list[list[int]] = []
        self.keeps = True
        self.ignored = ignored  # the consumer whose reports are not answered
        self.answers = asyncio.Event()  # clear it to make reports wait
        self.answers.set()

    def session(self, peer: Peer) -> Routes:
        self.peers.append(peer)

        async def report(command: BaseCommand) -> None:
            said = command.scalableConsumerReport
            self.reports.append([said.consumer_id, *said.also_kept])
            if said.consumer_id == self.ignored:
                return
            await self.answers.wait()
            kept = said.also_kept if self.keeps else ()
            peer.send(pb.CommandSuccess(request_id=said.request_id, kept=kept))

        return {**super().session(peer), BaseCommand.SCALABLE_CONSUMER_REPORT: report}


@asynccontextmanager
async def lines_to(node: Many, count: int = 1) -> AsyncIterator[list[NodeConnection]]:
    """What so many topics have to the node."""
    async with serving(node.session) as server:
        connections = SharedConnections()
        lines = [
            await connections.connect(HOST, server.port, on_push=lambda _: None, timeout_s=WAIT_S)
            for _ in range(count)
        ]
        yield lines
        for line in lines:
            line.close("the test is over")


@asynccontextmanager
async def kept_by(now: Callable[[], float] = clock.now) -> AsyncIterator[SessionKeeper]:
    keeper = SessionKeeper(now)
    yield keeper
    await keeper.close()


@on_both_loops
async def test_watches_of_many_topics_share_a_connection_and_each_hears_of_its_own() -> None:
    node = Many()
    async with serving(node.session) as server:
        nodes = Nodes(f"pulsar://{HOST}:{server.port}", SharedConnections().connect)
        watches = {each: LayoutWatch(nodes, f"topic://public/default/{each}") for each in "abc"}
        await asyncio.gather(*(watch.start(WAIT_S) for watch in watches.values()))
        assert len(node.peers) == 1
        node.push(7, "topic://public/default/b")
        await until(lambda: watches["b"].layout.epoch == 7)
        assert [watches[each].layout.epoch for each in "ac"] == [1, 1]
        await watches["a"].close()  # the others stay on the connection
        node.push(9, "topic://public/default/c")
        await until(lambda: watches["c"].layout.epoch == 9)
        node.peers[0].close("the test cuts it")
        await until(lambda: len(node.peers) == 2)  # one again for both
        await until(lambda: len(node.asked) == 5)  # both watch on it
        await watches["b"].close()
        await watches["c"].close()
        await until(lambda: all(peer.closed.done() for peer in node.peers))


async def test_a_session_that_goes_on_elsewhere_is_not_taken_for_a_process_that_has_ended() -> None:
    """Else whoever comes under its consumer's name would serve beside it."""
    node = Many()
    async with lines_to(node, 2) as (session, watch):
        await until(lambda: len(node.peers) == 1)
        session.abort("the session goes on over another one")
        watch.close("the watch is over")
        await until(node.peers[0].closed.done)
        assert not node.peers[0].has_hung_up


async def test_who_is_not_answered_leaves_a_connection_on_which_others_are() -> None:
    node = Many(ignored=1)
    async with lines_to(node, 2) as (first, second):
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


@on_both_loops
async def test_reports_do_not_wait_for_what_opens_sessions() -> None:
    node = Many(ignored=1)
    async with lines_to(node) as (line,):
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


@on_both_loops
async def test_a_look_at_sessions_costs_nothing_for_those_that_are_not_due() -> None:
    node, times = Many(), list[float]()

    def now() -> float:  # it stands still
        times.append(0.0)
        return 0.0

    async with lines_to(node) as (line,), kept_by(now) as keeper:
        with contextlib.ExitStack() as kept:
            for number in range(1_000):
                kept.enter_context(keeper.kept(line, number, _Core(1.0), lambda: None))
            _Core.asked = 0
            looked = len(times)
            await until(lambda: len(times) >= looked + 4)  # two looks
            assert not node.reports
            assert _Core.asked <= 4 * (len(times) - looked)


def _subscribed(*segments: AssignedSegment, now: Callable[[], float] = clock.now) -> ConsumerCore:
    core = ConsumerCore(1.0, keep_alives=0.1)
    order = core.begin_subscribe(now())
    assert core.on_subscribed(order.number, Assignment(1, 1, 1, "g", 2.0, segments), now())
    return core


async def test_who_is_kept_waits_for_no_time_of_its_own_until_it_is_kept_no_more() -> None:
    node, poked = Many(), list[int]()
    now = asyncio.get_running_loop().time
    async with lines_to(node) as (line,), kept_by(now) as keeper:
        first, second = _subscribed(now=now), _subscribed(now=now)
        with keeper.kept(line, 1, first, lambda: poked.append(1)):
            with keeper.kept(line, 2, second, lambda: poked.append(2)):
                assert second.wake_at() < math.inf
                await until(lambda: first.is_kept and second.is_kept)
                assert [first.wake_at(), second.wake_at()] == [math.inf] * 2
                assert not poked
                node.keeps = False
                await until(lambda: not second.is_kept)
                assert second.report_due(now())
                assert set(poked) == {2}
                node.keeps = True
                await until(lambda: second.is_kept)
                poked.clear()
            assert (second.is_kept, poked) == (False, [2])
            node.peers[0].close("the test cuts it")
            await until(lambda: not first.is_kept)
            assert 1 in poked


async def test_news_that_came_while_a_report_was_under_way_are_told_at_once() -> None:
    node, poked = Many(), list[int]()
    now = asyncio.get_running_loop().time
    async with lines_to(node) as (line,), kept_by(now) as keeper:
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


@asynccontextmanager
async def others_answered(line: NodeConnection) -> AsyncIterator[None]:
    """So that the connection is trusted, whoever else is not answered on it."""

    async def ask() -> None:
        while True:
            await line.request(pb.CommandScalableConsumerReport(consumer_id=9), WAIT_S)
            await asyncio.sleep(0.05)

    busy = asyncio.create_task(ask())
    yield
    busy.cancel()


async def test_who_is_not_answered_in_time_is_reported_with_all_others_again() -> None:
    node, poked = Many(ignored=1), list[int]()
    now = asyncio.get_running_loop().time
    async with lines_to(node, 2) as (line, other), kept_by(now) as keeper, others_answered(other):
        cores = {number: _subscribed(now=now) for number in (1, 2)}
        before = {number: core._answered_at for number, core in cores.items()}
        with contextlib.ExitStack() as kept:
            for number, core in cores.items():
                poke = functools.partial(poked.append, number)
                kept.enter_context(keeper.kept(line, number, core, poke))
            # A second one, once the patience with the first is over, and before the session is.
            await until(lambda: node.reports.count([1, 2]) == 2)
            node.ignored = 0
            await until(lambda: all(c._answered_at > before[n] for n, c in cores.items()))
            assert {tuple(each) for each in node.reports} == {(1, 2), (9,)}
            assert not poked
            assert line.is_open


async def test_a_session_that_lapses_while_its_report_is_under_way_is_watched_in_time() -> None:
    node, poked = Many(), list[int]()
    now = asyncio.get_running_loop().time
    async with lines_to(node, 2) as (line, other), kept_by(now) as keeper, others_answered(other):
        core = _subscribed(AssignedSegment(0, "orders", (0,)), now=now)
        with keeper.kept(line, 1, core, lambda: poked.append(core.lapses)):
            await until(lambda: core.is_kept)
            node.ignored = 1
            await until(lambda: not core.is_kept)
            assert poked == [0], "who drives it knows when it lapses, before it does"
            assert core.wake_at() <= core._lapses_at() < math.inf


# --- what a consumer over many topics does with a topic that it is to leave, and with what is lost


TOPIC = "public/default/orders"

_Scene = tuple[sdk.StreamTopicsConsumer, sdk.StreamConsumer, sdk.Batch]


def _who() -> TopicsSubscription:
    nodes = Nodes("pulsar://127.0.0.1:1")
    chosen = sdk.TopicSelection("public/default")
    return TopicsSubscription(nodes, {}, chosen, "billing", "", no_producer, TrafficReporter())


@asynccontextmanager
async def leaving() -> AsyncIterator[_Scene]:
    """It has received three messages of a topic that the list has no more."""
    many = sdk.StreamTopicsConsumer(_who(), sdk.ConsumerSettings())
    async with consuming(9) as (one, plane):
        many._consumers[TOPIC] = one
        one._readable._listener = lambda: many._topic_readable(TOPIC)
        many._members.listed([TOPIC], 0.0)
        many._members.orders(0.0)
        many._members.opened(TOPIC, 0.0)
        plane.read(range(3))
        one._changed()
        batch = await many.receive_many(timeout_s=0)
        many._members.unlisted([TOPIC], many._now())
        many._poke.set()
        many._tasks.spawn(many._drive())
        await until(lambda: not many._poke.is_set())  # it has looked, and waits
        yield many, one, batch
        await many._tasks.cancel()


async def test_a_topic_is_kept_until_all_of_it_is_acknowledged_or_lost() -> None:
    for loss in (None, Loss.LAPSED):
        async with leaving() as (many, one, batch):
            assert many._members.state(TOPIC) is MemberState.DRAINING
            if loss is None:
                many.acknowledge(batch)
            else:
                one._core.give_up(loss)
                one._changed()
            await until(lambda: many._members.state(TOPIC) is not MemberState.DRAINING)


async def test_what_was_lost_with_a_topic_that_was_left_is_told_once() -> None:
    async with leaving() as (many, one, batch):
        one._core.give_up(Loss.CLOSED)
        one._changed()
        await until(lambda: not many._consumers)
        with pytest.raises(sdk.BucketLostError, match=f"{TOPIC} was taken away .* left it"):
            many.acknowledge(batch)
        with pytest.raises(sdk.BucketLostError):
            async with many.while_held(batch):
                pytest.fail("it is not begun any more")
        with pytest.raises(sdk.BucketLostError):
            many.acknowledge_all()
        many.acknowledge_all()


async def test_what_is_lost_of_a_topic_that_a_checkpoint_does_not_name_is_told_too() -> None:
    async def position_of(_topic: str, _segment_id: int, _bucket: int) -> int | None:
        return None

    many = sdk.CheckpointTopicsConsumer(_who(), sdk.ConsumerSettings(), None, position_of)
    member = lone_member("lake")
    member.watch._layout = layout_of(SegmentLayout.initial(1))
    one = many._consumers[TOPIC] = sdk.CheckpointConsumer(member, sdk.ConsumerSettings())
    order = one._core.begin_subscribe(0.0)
    granted = Assignment(1, 1, 1, "g", 1_000.0, (AssignedSegment(0, "t0", (0,)),))
    assert one._core.on_subscribed(order.number, granted, 0.0)
    (holding,) = one._core.holdings.values()
    holding.begin(0)
    holding.deliver(9)
    stored = many.checkpoint()
    assert stored.topics[TOPIC].positions == {0: {0: 9}}
    one._core.give_up(Loss.LAPSED)
    with pytest.raises(sdk.BucketLostError):
        many.saved(sdk.TopicsCheckpoint({}))


# --- where the topics of a consumer over many begin that were there at first, came, and came again


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
