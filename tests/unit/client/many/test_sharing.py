"""What consumers over many topics share, and how their topics come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from anabranch import client as sdk
from anabranch.client import LayoutWatch, QueueSettings, TopicSelection
from anabranch.client._consumer.assignment import AssignedSegment, Assignment, Loss
from anabranch.client._consumer.consumer import Membership
from anabranch.client._many import consumer as consumer_module
from anabranch.client._many import queue as queue_module
from anabranch.client._many.connections import SharedConnections
from anabranch.client._many.consumer import TopicsConsumer, TopicsSubscription
from anabranch.client._topics.nodes import NodeConnection, Nodes
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import RequestTimeoutError
from anabranch.wire.server.server import Peer, Routes
from support.lone_consumers import consuming
from support.still_watch import layout_of, lone_member, no_producer
from support.topic_node import TopicNode
from support.waiting import WAIT_S, until
from support.wire import HOST, on_both_loops, serving


class Many(TopicNode):
    """Tells each topic a layout of its own epoch, takes reports, and notes who connects."""

    def __init__(self, *, ignored: int = 0) -> None:
        super().__init__()
        self.peers: list[Peer] = []
        self.reports: list[int] = []
        self.ignored = ignored  # the consumer whose reports are not answered

    def session(self, peer: Peer) -> Routes:
        self.peers.append(peer)

        async def report(command: BaseCommand) -> None:
            said = command.scalableConsumerReport
            self.reports.append(said.consumer_id)
            if said.consumer_id != self.ignored:
                peer.send(pb.CommandSuccess(request_id=said.request_id))

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
        unheard, heard = (pb.CommandScalableConsumerReport(consumer_id=each) for each in (1, 2))
        waiting = asyncio.create_task(first.request(unheard, 0.3))
        await until(lambda: node.reports == [1])
        await second.request(heard, WAIT_S)
        with pytest.raises(RequestTimeoutError):
            await waiting
        assert [first.is_open, second.is_open] == [True, True]
        with pytest.raises(RequestTimeoutError):  # now nobody is
            await first.request(unheard, 0.1)
        assert [first.is_open, second.is_open] == [False, False]


# --- what a consumer over many topics does with a topic that it is to leave, and with what is lost


TOPIC = "public/default/orders"

_Scene = tuple[sdk.StreamTopicsConsumer, sdk.StreamConsumer, sdk.Batch]


def _who() -> TopicsSubscription:
    nodes = Nodes("pulsar://127.0.0.1:1")
    chosen = sdk.TopicSelection("public/default")
    return TopicsSubscription(nodes, {}, chosen, "billing", "", no_producer, TrafficReporter())


def listed(many: TopicsConsumer[Any, Any, Any], name: str) -> consumer_module._Topic:
    """The topic, which the consumer follows."""
    many._listed([name])
    return many._topics[name]


@asynccontextmanager
async def leaving() -> AsyncIterator[_Scene]:
    """It has received three messages of a topic that the list has no more."""
    many = sdk.StreamTopicsConsumer(_who(), sdk.ConsumerSettings())
    async with consuming(9) as (one, plane):
        many._opened = AsyncMock(return_value=one)  # type: ignore[method-assign]
        topic = listed(many, TOPIC)
        await until(lambda: topic.is_giving)
        one._readable._listener = lambda: many._topic_readable(TOPIC)
        plane.read(range(3))
        one._changed()
        batch = await many.receive_many(timeout_s=0)
        many._list_changed(sdk.ListChange(removed=(TOPIC,)))
        await until(lambda: topic in many._draining)
        yield many, one, batch
        await many._tasks.cancel()


async def test_a_topic_is_kept_until_all_of_it_is_acknowledged_or_lost() -> None:
    for loss in (None, Loss.LAPSED):
        async with leaving() as (many, one, batch):
            assert TOPIC in many._consumers
            if loss is None:
                many.acknowledge(batch)
            else:
                one._core.give_up(loss)
                one._changed()
            await until(lambda: not many._draining)


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


async def test_a_topic_that_comes_or_comes_again_is_late_and_one_of_the_first_list_is_not() -> None:
    many = sdk.StreamTopicsConsumer(_who(), sdk.ConsumerSettings())
    many._first = {"a/b/c": 0, "a/b/d": 0}
    assert [many._is_late("a/b/c", 7) for _ in range(3)] == [False] * 3
    assert not many._is_late("a/b/d", 9)
    assert many._is_late("a/b/new", 7)
    # Made again between two lists that have it, and between two of which the first has it not.
    assert [many._is_late("a/b/c", 12) for _ in range(2)] == [True] * 2
    many._list_changed(sdk.ListChange(removed=("a/b/d",)))
    assert many._is_late("a/b/d", 9)


class Opened:
    """Consumers of topics that open when they are let, and note what is open."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.most = 0
        self.opening = 0
        self.fail = False
        self.may_open = asyncio.Event()

    async def __call__(self, topic: str) -> Any:
        self.opening += 1
        self.most = max(self.most, self.opening)
        try:
            await self.may_open.wait()
        finally:
            self.opening -= 1
        if self.fail:
            raise sdk.ClientError("the test has it fail")
        assert topic not in self.open, "two consumers of one topic"
        self.open.append(topic)
        consumer = Mock(in_flight=False)
        consumer.take_lost.return_value = []
        consumer.poll.return_value = None
        consumer.close = AsyncMock(side_effect=lambda **_: self.open.remove(topic))
        return consumer


async def test_topics_come_and_go_and_fail_and_each_has_one_consumer_at_most() -> None:
    many = sdk.StreamTopicsConsumer(_who(), sdk.ConsumerSettings())
    many._list = AsyncMock()
    opened = many._opened = Opened()  # type: ignore[method-assign]
    names = tuple(f"a/b/t{number:03}" for number in range(100))
    many._list_changed(sdk.ListChange(added=names))
    await until(lambda: opened.opening == consumer_module.OPENING_MAX)
    many._list_changed(sdk.ListChange(removed=names[:10]))  # while they are opened
    opened.may_open.set()
    await until(lambda: len(opened.open) == 90)
    assert opened.most == consumer_module.OPENING_MAX
    assert many.topics == list(names[10:])
    many._list_changed(sdk.ListChange(removed=names[20:]))
    many._list_changed(sdk.ListChange(added=names[:30]))  # some before they are closed
    await until(lambda: sorted(opened.open) == list(names[:30]) == many.topics)
    opened.fail = True
    many._failed(names[0], sdk.ClientError("the test has it fail"))
    await until(lambda: many._topics[names[0]].failures == 2)
    assert many.failing.keys() == {names[0]}
    opened.fail = False
    many._topics[names[0]].failures = 0  # else it would wait for a second
    many._list_changed(sdk.ListChange(removed=names[:1]))
    many._list_changed(sdk.ListChange(added=names[:1]))
    await until(lambda: len(opened.open) == 30)
    assert not many.failing
    await many.close()
    assert not opened.open
    many._listed(["a/b/late"])
    assert not many._topics


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
    consumer._listed(topics)
    await until(lambda: len(made) == 3 and len(consumer.failing) == 2)
    assert all("at most" in why for why in consumer.failing.values())
    may_open.set()
    await until(lambda: len(consumer.topics) == 3)
    assert len(made) == 3
    await consumer._tasks.cancel()
