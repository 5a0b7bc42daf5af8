"""A consumer's session with controllers of the test's making: whom it asks, and how it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import LayoutWatch
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.session import ConsumerSession, Identity
from anabranch.client._topics.nodes import Nodes
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import clock
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Routes
from support.waiting import until
from support.wire import HOST, run, serving

_TOPIC = "topic://public/default/orders"
_CLOSE_S = 10.0


class Controller:
    """Takes every consumer, and notes what it hears of them; tells whoever watches of `named`."""

    def __init__(self) -> None:
        self.named = ""
        self.heard: list[str] = []
        self._watcher: tuple[Peer, int] | None = None
        self._consumers: list[Peer] = []

    def name(self, url: str) -> None:
        """That one is the controller from now on, by a layout of the same epoch."""
        self.named = url
        if self._watcher is not None:
            peer, session_id = self._watcher
            dag = pb.ScalableTopicDAG(epoch=1, incarnation=1, controller_broker_url=url)
            peer.send(pb.CommandScalableTopicUpdate(session_id=session_id, dag=dag))

    def cut(self) -> None:
        """Ends the connections of all consumers."""
        for peer in self._consumers:
            peer.close("the test cuts it")
        self._consumers.clear()

    def session(self, peer: Peer) -> Routes:
        async def watch(command: BaseCommand) -> None:
            self._watcher = (peer, command.scalableTopicLookup.session_id)
            self.name(self.named)

        async def unwatch(_command: BaseCommand) -> None:
            pass

        async def subscribe(command: BaseCommand) -> None:
            self.heard.append("subscribe")
            self._consumers.append(peer)
            assignment = pb.ScalableConsumerAssignment(
                layout_epoch=1, incarnation=1, group_id="g", session_timeout_ms=10_000, sequence=1
            )
            number = command.scalableTopicSubscribe.request_id
            peer.send(
                pb.CommandScalableTopicSubscribeResponse(request_id=number, assignment=assignment)
            )

        async def unsubscribe(command: BaseCommand) -> None:
            self.heard.append("unsubscribe")
            peer.send(pb.CommandSuccess(request_id=command.scalableTopicUnsubscribe.request_id))

        async def look_up(command: BaseCommand) -> None:
            self.heard.append("look-up")
            peer.send(
                pb.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    brokerServiceUrl=self.named,
                    response=pb.CommandLookupTopicResponse.Connect,
                )
            )

        return {
            BaseCommand.SCALABLE_TOPIC_LOOKUP: watch,
            BaseCommand.SCALABLE_TOPIC_CLOSE: unwatch,
            BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: subscribe,
            BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: unsubscribe,
            BaseCommand.LOOKUP: look_up,
        }


@asynccontextmanager
async def subscribed(port: int) -> AsyncIterator[tuple[ConsumerSession, ConsumerCore]]:
    """The session of a consumer, subscribed at the controller that the node at the port names."""
    nodes = Nodes(f"pulsar://{HOST}:{port}")
    watch = LayoutWatch(nodes, _TOPIC)
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


def test_a_session_goes_to_the_controller_that_was_named_last_whatever_the_epoch() -> None:
    async def test() -> None:
        former, next_one = Controller(), Controller()
        async with serving(former.session) as first, serving(next_one.session) as second:
            former.name(f"pulsar://{HOST}:{first.port}")
            async with subscribed(first.port):
                former.name(f"pulsar://{HOST}:{second.port}")
                former.cut()
                await until(lambda: bool(next_one.heard))
            assert (former.heard, next_one.heard) == (["subscribe"], ["subscribe"])

    run(test)


def test_a_session_that_is_closed_while_it_reconnects_says_goodbye_all_the_same() -> None:
    async def test() -> None:
        controller = Controller()
        async with serving(controller.session) as server:
            controller.name(f"pulsar://{HOST}:{server.port}")
            async with subscribed(server.port) as (session, core):
                controller.cut()
                await until(lambda: not core.subscribed)
                await session.close(_CLOSE_S)
            assert [each for each in controller.heard if each != "look-up"] == [
                "subscribe",
                "subscribe",
                "unsubscribe",
            ]

    run(test)


def test_a_session_that_was_stopped_says_nothing_when_it_is_closed() -> None:
    async def test() -> None:
        controller = Controller()
        async with serving(controller.session) as server:
            controller.name(f"pulsar://{HOST}:{server.port}")
            async with subscribed(server.port) as (session, _):
                session.stop()
                await session.close(_CLOSE_S)
            assert controller.heard == ["subscribe"]

    run(test)


def test_a_goodbye_that_no_controller_hears_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        controller = Controller()
        async with serving(controller.session) as server:
            controller.name(f"pulsar://{HOST}:{server.port}")
            async with subscribed(server.port) as (session, core):
                await server.stop()
                await until(lambda: not core.subscribed)
                await session.close(0.1)

    asyncio.run(test())
    assert "consumer.leave_unheard" in caplog.text
