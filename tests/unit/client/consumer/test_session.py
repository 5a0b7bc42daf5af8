"""A consumer's session with controllers of the test's making: whom it asks, and how it leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import LayoutWatch
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.session import ConsumerSession, Identity
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from support.topic_node import TopicNode
from support.waiting import until
from support.wire import HOST, on_both_loops, serving

_CLOSE_S = 10.0


@asynccontextmanager
async def subscribed(port: int) -> AsyncIterator[tuple[ConsumerSession, ConsumerCore]]:
    """The session of a consumer, subscribed at the controller that the node at the port names."""
    nodes = Nodes(f"pulsar://{HOST}:{port}")
    watch = LayoutWatch(nodes, "topic://public/default/orders")
    await watch.start()
    who = Identity(watch.topic, "billing", "one", 1, pb.ScalableConsumerType.STREAM)
    core = ConsumerCore(1.0)
    session = ConsumerSession(core, who, nodes, watch, clock.now, lambda: None)
    try:
        await session.start(10.0)
        yield session, core
    finally:
        session.stop()
        await session.close(0.0)
        await watch.close()


@on_both_loops
async def test_a_session_goes_to_the_controller_that_was_named_last_whatever_the_epoch() -> None:
    former, next_one = TopicNode(), TopicNode()
    async with serving(former.session) as first, serving(next_one.session) as second:
        former.name(f"pulsar://{HOST}:{first.port}")
        async with subscribed(first.port):
            former.name(f"pulsar://{HOST}:{second.port}")
            former.cut()
            await until(lambda: bool(next_one.heard))
        assert (former.heard, next_one.heard) == (["watch", "subscribe"], ["subscribe"])


@on_both_loops
async def test_a_session_that_is_closed_while_it_reconnects_says_goodbye_all_the_same() -> None:
    controller = TopicNode()
    async with serving(controller.session) as server:
        controller.name(f"pulsar://{HOST}:{server.port}")
        async with subscribed(server.port) as (session, core):
            controller.cut()
            await until(lambda: not core.subscribed)
            await session.close(_CLOSE_S)
        assert [each for each in controller.heard if each != "look-up"] == [
            "watch",
            "subscribe",
            "subscribe",
            "unsubscribe",
        ]


@on_both_loops
async def test_a_session_that_was_stopped_says_nothing_when_it_is_closed() -> None:
    controller = TopicNode()
    async with serving(controller.session) as server:
        controller.name(f"pulsar://{HOST}:{server.port}")
        async with subscribed(server.port) as (session, _):
            session.stop()
            await session.close(_CLOSE_S)
        assert controller.heard == ["watch", "subscribe"]


async def test_a_goodbye_that_nobody_hears_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    controller = TopicNode()
    async with serving(controller.session) as server:
        controller.name(f"pulsar://{HOST}:{server.port}")
        async with subscribed(server.port) as (session, core):
            await server.stop()
            await until(lambda: not core.subscribed)
            await session.close(0.1)
    assert "consumer.leave_unheard" in caplog.text
