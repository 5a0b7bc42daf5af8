"""Both sides of the binary protocol over real sockets."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from anabranch.core.strangers import AccountLimits
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection, connect, join
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import (
    ConnectError,
    ConnectionLostError,
    RefusedError,
)
from anabranch.wire.framing import encode_frame
from anabranch.wire.server.server import OpenSession, Peer, Routes
from support.nobody import nobody
from support.waiting import until
from support.wire import HOST, WAIT_S, connected, is_refused, lookups, on_both_loops, raw, serving

pytestmark = on_both_loops


async def test_a_node_tells_what_it_is_and_an_older_client_its_own_version() -> None:
    async with serving() as server, raw(server.port) as client:
        client.send(commands.envelope(pb.CommandConnect(client_version="x", protocol_version=9)))
        answer = await client.told()
        assert answer.connected.protocol_version == 9
    async with serving() as server, connected(server) as client:
        assert client.server.protocol_version == 21
        assert client.server.max_message_size == 64 * 1024 * 1024
        assert client.server.feature_flags.supports_scalable_topics


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_client_that_lives_on_does_not_end_a_connection_as_one_that_is_killed_does(
    is_killed: bool,
) -> None:
    peers: list[Peer] = []

    def session(peer: Peer) -> Routes:
        peers.append(peer)
        return {}

    async with serving(session) as server, connected(server) as client:
        await until(lambda: bool(peers))
        (client.close if is_killed else client.abort)("it ends")  # as its kernel would close it
        await asyncio.wait([peers[0].closed])
        assert peers[0].has_hung_up is is_killed


async def test_silence_is_met_with_a_ping_and_more_silence_ends_the_connection() -> None:
    async with serving() as server, raw(server.port) as client:
        await client.handshake()
        (peer,) = server.peers
        peer.limits = ConnectionLimits(keep_alive_s=0.05)
        peer._keep_alive()  # as after the silence that it had before
        assert await client.answer() == commands.envelope(pb.CommandPing())
        assert await client.answer() is None


async def test_who_answers_pings_stays_connected() -> None:
    limits = ConnectionLimits(keep_alive_s=1_000.0)  # the test says when so much time has passed
    async with serving(lookups, limits=limits) as server, raw(server.port) as client:
        await client.handshake()
        (peer,) = server.peers
        for _ in range(3):
            peer._keep_alive()
            peer._keep_alive()  # nothing came since the time before
            assert await client.answer() == commands.envelope(pb.CommandPing())
            client.send(commands.envelope(pb.CommandPong()))
            await until(lambda: peer._heard)
        client.send(commands.envelope(pb.CommandLookupTopic(topic="t", request_id=5)))
        answer = await client.told()
        assert answer.type == BaseCommand.LOOKUP_RESPONSE


@pytest.mark.parametrize("moment", ["connected", "welcome"])
async def test_who_gives_up_in_the_moment_of_connecting_leaves_nothing_behind(moment: str) -> None:
    class Late(ClientConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            if moment == "connected":
                joining.cancel()

        def received(self, command: BaseCommand) -> None:
            super().received(command)
            joining.cancel()

    def make_late() -> Late:
        made.append(Late())
        return made[-1]

    async def join_late(port: int) -> None:
        hello = pb.CommandConnect(client_version="late", protocol_version=21)
        await join(make_late, HOST, port, hello)

    made: list[Late] = []
    joining: asyncio.Task[None]

    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(str(what)))
    async with serving() as server:
        joining = asyncio.create_task(join_late(server.port))
        with pytest.raises(asyncio.CancelledError):
            await joining
        assert not made[-1].is_open
    made.clear()
    gc.collect()  # an error that nobody has looked at is told of when it goes
    assert not told


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"", "does not speak the binary protocol of a node"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the binary protocol of a node"),
        (None, "does not answer CONNECT within"),
    ],
)
async def test_whatever_else_listens_is_said_to_be_no_node(says: bytes | None, why: str) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 if says is not None else -1)
        writer.write(says or b"")
        writer.close()

    async with await asyncio.start_server(other, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match=why):
            await connect(HOST, port, timeout_s=WAIT_S if says is not None else 0.05)
    with nobody() as address, pytest.raises(ConnectError, match=f"{address} cannot be reached"):
        await connect(HOST, int(address.rpartition(":")[2]), timeout_s=WAIT_S)


async def test_a_frame_that_does_not_come_to_its_end_ends_its_connection() -> None:
    """However slowly the rest drips in; whoever sends whole frames stays."""

    limits = ConnectionLimits(frame_s_max=0.1)
    async with serving(lookups, limits) as server, raw(server.port) as slow:
        await slow.handshake()
        (peer,) = server.peers
        async with connected(server) as other:
            slow.writer.write(b"\x00\x50\x00\x00" + b"\x00\x4f\xff\xfc")
            while not peer.closed.done():
                slow.writer.write(b"x")
                await other.request(pb.CommandLookupTopic(topic="t"), WAIT_S)
            assert "not there whole within 0.1 s" in await peer.closed


async def test_a_frame_begun_while_nothing_was_read_has_its_time_too() -> None:
    may_go = asyncio.Event()

    def routes(_peer: Peer) -> Routes:
        async def wait(_command: BaseCommand) -> None:
            await may_go.wait()

        return {BaseCommand.LOOKUP: wait}

    limits = ConnectionLimits(frame_s_max=0.1, requests_max=1)
    async with serving(routes, limits) as server, raw(server.port) as slow:
        await slow.handshake()
        (peer,) = server.peers
        asked = commands.envelope(pb.CommandLookupTopic(topic="t", request_id=1))
        frame = encode_frame(asked.SerializeToString())
        slow.writer.write(frame + frame[:5])
        await until(lambda: peer.unfinished_bytes == 5, WAIT_S)
        may_go.set()
        await asyncio.wait([peer.closed], timeout=WAIT_S)
        assert "not there whole within 0.1 s" in peer.closed.result()


async def test_frames_cut_at_any_place_are_not_taken_for_one_without_end() -> None:
    limits = ConnectionLimits(frame_s_max=1_000.0)  # the test says when so much has passed
    async with serving(lookups, limits) as server, raw(server.port) as client:
        await client.handshake()
        (peer,) = server.peers
        asked = pb.CommandLookupTopic(topic="t" * 100, request_id=1)
        frame = encode_frame(commands.envelope(asked).SerializeToString())
        client.writer.write(frame[:50])
        await until(lambda: peer.unfinished_bytes == 50, WAIT_S)
        for _ in range(3):  # a frame is always under way, but none for long
            begun = peer._frames
            client.writer.write(frame[50:] + frame[:50])
            assert await client.answer() is not None
            await until(lambda: peer.unfinished_bytes == 50, WAIT_S)
            peer._frame_due(begun)
            assert peer.is_open
        peer._frame_due(peer._frames)
        assert "after 50 bytes of it" in await peer.closed


async def test_a_list_is_no_memory_of_its_client_and_what_follows_it_is() -> None:
    limits = ConnectionLimits(account=AccountLimits(memory=1_000_000))
    payload = bytes(8 << 20)
    async with serving(limits=limits) as server, raw(server.port) as one, raw(server.port) as other:
        await one.handshake()
        await other.handshake()
        one.writer.transport.pause_reading()  # type: ignore[attr-defined]
        other.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for peer in server.peers:
            peer.send_list(payload)
        await asyncio.sleep(0)
        assert server.gate.memory == 0
        assert all(peer.is_open for peer in server.peers)
        deaf, left = server.peers
        deaf.send_frame(bytes(600_000))
        assert server.gate.memory == 600_000
        deaf.send_frame(bytes(600_000))
        assert "brokerMaxMemoryInFlight" in await deaf.closed
        assert left.is_open


# --- requests, their answers, and what ends them --------------------------------------------------


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
