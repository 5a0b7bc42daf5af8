"""What consumers over many topics share, and how their topics come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from anabranch import client as sdk
from anabranch.client import LayoutWatch
from anabranch.client._consumer.holding import Loss
from anabranch.client._many.connections import SharedConnections
from anabranch.client._many.followed import OPENING_MAX
from anabranch.client._topics.nodes import NodeConnection, Nodes
from anabranch.client._topics.traffic import TrafficReporter
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import RequestTimeoutError
from anabranch.wire.server.server import Peer, Routes
from support.lone_consumers import consuming
from support.still_watch import no_producer
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


def over_many() -> sdk.StreamTopicsConsumer:
    nodes, selection = Nodes("pulsar://127.0.0.1:1"), sdk.TopicSelection("public/default")
    reporter, settings = TrafficReporter(), sdk.ConsumerSettings()
    return sdk.StreamTopicsConsumer(
        nodes, {}, reporter, selection, "billing", "", settings, no_producer
    )


@asynccontextmanager
async def leaving() -> AsyncIterator[_Scene]:
    """It has received three messages of a topic that the list has no more."""
    many = over_many()
    async with consuming(9) as (one, plane):
        followed = many._followed
        followed._open_topic = AsyncMock(return_value=one)
        followed.listed([TOPIC])
        topic = followed.topics[TOPIC]
        await until(lambda: topic.is_giving)
        one._readable.listener = lambda: followed.readable(TOPIC)
        plane.read(range(3))
        one._changed()
        batch = await many.receive_many(timeout_s=0)
        many._list_changed(sdk.ListChange(removed=(TOPIC,)))
        await until(lambda: topic in followed.draining)
        yield many, one, batch
        await followed._tasks.cancel()


async def test_a_topic_is_kept_until_all_of_it_is_acknowledged_or_lost() -> None:
    for loss in (None, Loss.LAPSED):
        async with leaving() as (many, one, batch):
            assert TOPIC in many._followed.consumers
            if loss is None:
                many.acknowledge(batch)
            else:
                one._core.give_up(loss)
                one._changed()
            await until(lambda: not many._followed.draining)


async def test_what_was_lost_with_a_topic_that_was_left_is_told_once() -> None:
    async with leaving() as (many, one, batch):
        one._core.give_up(Loss.CLOSED)
        one._changed()
        await until(lambda: not many._followed.consumers)
        with pytest.raises(sdk.BucketLostError, match=f"{TOPIC} was taken away .* left it"):
            many.acknowledge(batch)
        with pytest.raises(sdk.BucketLostError):
            async with many.while_held(batch):
                pytest.fail("it is not begun any more")
        with pytest.raises(sdk.BucketLostError):
            many.acknowledge_all()
        many.acknowledge_all()


# --- where the topics of a consumer over many begin that were there at first, came, and came again


async def test_a_topic_that_comes_or_comes_again_is_late_and_one_of_the_first_list_is_not() -> None:
    many = over_many()
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
    many = over_many()
    many._list = AsyncMock()
    opened = many._followed._open_topic = Opened()
    names = tuple(f"a/b/t{number:03}" for number in range(100))
    many._list_changed(sdk.ListChange(added=names))
    await until(lambda: opened.opening == OPENING_MAX)
    many._list_changed(sdk.ListChange(removed=names[:10]))  # while they are opened
    opened.may_open.set()
    await until(lambda: len(opened.open) == 90)
    assert opened.most == OPENING_MAX
    assert many.topics == list(names[10:])
    many._list_changed(sdk.ListChange(removed=names[20:]))
    many._list_changed(sdk.ListChange(added=names[:30]))  # some before they are closed
    await until(lambda: sorted(opened.open) == list(names[:30]) == many.topics)
    opened.fail = True
    many._followed.failed(names[0], sdk.ClientError("the test has it fail"))
    await until(lambda: many._followed.topics[names[0]].failures == 2)
    assert many.failing.keys() == {names[0]}
    opened.fail = False
    many._followed.topics[names[0]].failures = 0  # else it would wait for a second
    many._list_changed(sdk.ListChange(removed=names[:1]))
    many._list_changed(sdk.ListChange(added=names[:1]))
    await until(lambda: len(opened.open) == 30)
    assert not many.failing
    await many.close()
    assert not opened.open
    many._followed.listed(["a/b/late"])
    assert not many._followed.topics
