"""Requests, their answers, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import ConnectionLostError, RefusedError, RequestTimeoutError
from anabranch.wire.server.server import OpenSession, Peer, Routes
from support.waiting import until
from support.wire import WAIT_S, connected, is_refused, lookups, on_both_loops, serving

pytestmark = on_both_loops


def on_lookup(serve: Callable[[Peer, BaseCommand], Coroutine[Any, Any, None]]) -> OpenSession:
    """Each session serves look-ups by this, and nothing else."""
    return lambda peer: {BaseCommand.LOOKUP: partial(serve, peer)}


async def test_what_a_route_refuses_reaches_the_request_that_asked() -> None:
    async def refuse(_peer: Peer, _command: BaseCommand) -> None:
        raise RefusedError(pb.TopicNotFound, "no such topic")

    async with serving(on_lookup(refuse)) as server, connected(server) as client:
        asked = client.request(pb.CommandLookupTopic(topic="t"), WAIT_S)
        await is_refused(asked, pb.TopicNotFound, "no such topic")
        assert client.is_open


async def test_a_fault_in_a_route_is_an_answer_and_the_connection_lives_on() -> None:
    async def fault(peer: Peer, command: BaseCommand) -> None:
        if command.lookupTopic.topic == "bad":
            raise ZeroDivisionError
        await lookups(peer)[BaseCommand.LOOKUP](command)

    async with serving(on_lookup(fault)) as server, connected(server) as client:
        with pytest.raises(RefusedError, match="LOOKUP met a fault in the node"):
            await client.request(pb.CommandLookupTopic(topic="bad"), WAIT_S)
        await client.request(pb.CommandLookupTopic(topic="good"), WAIT_S)


async def test_an_error_within_an_answer_is_raised_like_any_other() -> None:
    def routes(peer: Peer) -> Routes:
        async def subscribe(command: BaseCommand) -> None:
            peer.send(
                pb.CommandScalableTopicSubscribeResponse(
                    request_id=command.scalableTopicSubscribe.request_id,
                    error=pb.ConsumerBusy,
                    message="the name is in use",
                )
            )

        return {BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: subscribe}

    async with serving(routes) as server, connected(server) as client:
        asked = pb.CommandScalableTopicSubscribe(
            topic="t", subscription="s", consumer_name="c", consumer_id=1, consumer_type=pb.STREAM
        )
        await is_refused(client.request(asked, WAIT_S), pb.ConsumerBusy, "the name is in use")


async def test_a_request_without_an_answer_ends_at_its_deadline() -> None:
    async def silent(_peer: Peer, _command: BaseCommand) -> None:
        """Never answers."""

    async with serving(on_lookup(silent)) as server, connected(server) as client:
        with pytest.raises(RequestTimeoutError, match="no answer"):
            await client.request(pb.CommandLookupTopic(topic="t"), 0.01)
        assert client.is_open


async def test_requests_under_way_end_with_the_connection_and_so_do_their_routes() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(_peer: Peer, _command: BaseCommand) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(on_lookup(stuck)) as server, connected(server) as client:
        asked = asyncio.create_task(client.request(pb.CommandLookupTopic(topic="t"), WAIT_S))
        await began.wait()
        await server.stop()
        with pytest.raises(ConnectionLostError):
            await asked
        assert cancelled.is_set()
        assert not client.is_open
        with pytest.raises(ConnectionLostError):
            await client.request(pb.CommandLookupTopic(topic="t"), WAIT_S)


class Work:
    """Look-ups that are under way until they may end."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.may_end = asyncio.Event()

    async def serve(self, peer: Peer, command: BaseCommand) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may_end.wait()
        self.running -= 1
        await lookups(peer)[BaseCommand.LOOKUP](command)


async def test_commands_beyond_what_a_connection_may_have_under_way_wait_their_turn() -> None:
    work = Work()
    async with (
        serving(on_lookup(work.serve), ConnectionLimits(requests_max=3)) as server,
        connected(server) as client,
    ):
        asked = [
            asyncio.create_task(client.request(pb.CommandLookupTopic(topic="t"), WAIT_S))
            for _ in range(50)
        ]
        await until(lambda: work.running == 3, WAIT_S)
        work.may_end.set()
        await asyncio.gather(*asked)
        assert work.most == 3


async def test_long_commands_beyond_a_frame_s_room_wait_their_turn_and_count_as_memory() -> None:
    work = Work()
    limits = ConnectionLimits(received_frame_bytes_max=100_000)
    async with serving(on_lookup(work.serve), limits) as server, connected(server) as client:
        asked = [
            asyncio.create_task(client.request(pb.CommandLookupTopic(topic="t" * 15_000), WAIT_S))
            for _ in range(20)
        ]
        await until(lambda: work.running == 4, WAIT_S)
        assert 120_000 < server.gate.memory < 300_000
        work.may_end.set()
        await asyncio.gather(*asked)
        assert work.most == 4
        (peer,) = server.peers
        assert peer.unfinished_bytes == 0, "no PING has to come for it to be counted anew"
        await until(lambda: server.gate.memory == 0, WAIT_S)


async def test_what_holds_a_connection_holds_it_until_it_is_over_itself() -> None:
    served = 0

    async def serve(peer: Peer, command: BaseCommand) -> None:
        nonlocal served
        served += 1
        if served == 1:
            peer.hold("the node behind is slow")
            peer.hold("it owes too many answers")
        await lookups(peer)[BaseCommand.LOOKUP](command)

    async with serving(on_lookup(serve)) as server, connected(server) as client:
        (peer,) = server.peers
        await client.request(pb.CommandLookupTopic(topic="t"), WAIT_S)
        await until(lambda: not peer._running, WAIT_S)
        second = asyncio.create_task(client.request(pb.CommandLookupTopic(topic="t"), WAIT_S))
        peer.go_on("it owes too many answers")
        peer.go_on("something else")
        assert (peer._holds, served) == ({"the node behind is slow"}, 1)
        peer.go_on("the node behind is slow")
        await second
