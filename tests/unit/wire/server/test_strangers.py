"""What hostile clients can use up of a binary port, while others from elsewhere are served."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from anabranch.broker.settings import SETTING_NAMES
from anabranch.core.strangers import AccountLimits, PortRefusal
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.server.gate import Gate, code_of
from anabranch.wire.server.server import WireServer
from support.waiting import WAIT_S, until
from support.wire import HOST, Raw, lookups, on_both_loops, serving

ELSEWHERE = "127.0.0.2"
BEGUN = b"\x00\x50\x00\x00" + b"\x00\x4f\xff\xfc"  # a frame of 5 MiB
LOOKUP = commands.envelope(pb.CommandLookupTopic(topic="t", request_id=5))


@asynccontextmanager
async def honest(server: WireServer, host: str = ELSEWHERE) -> AsyncIterator[Raw]:
    """A client that has shaken hands, from that address."""
    reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(host, 0))
    try:
        client = Raw(reader, writer)
        await client.handshake()
        yield client
    finally:
        writer.close()


async def is_served(client: Raw) -> bool:
    client.send(LOOKUP)
    answer = await client.answer()
    return answer is not None and answer.type == BaseCommand.LOOKUP_RESPONSE


async def flood(server: WireServer, count: int, *said: bytes) -> list[asyncio.Transport]:
    """So many connections that say this, and nothing more."""
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        transport, _ = await loop.create_connection(asyncio.Protocol, HOST, server.port)
        for each in said:
            transport.write(each)
        made.append(transport)
    return made


def end(transports: list[asyncio.Transport]) -> None:
    for transport in transports:
        transport.abort()


async def all_left(server: WireServer) -> None:
    await until(lambda: not server.peers)
    found = server.gate.account
    assert (found.connections, found.strangers, found.watches, server.gate.memory) == (0, 0, 0, 0)
    assert not server.gate._keeps


@on_both_loops
async def test_connections_that_say_nothing_keep_nobody_out() -> None:
    """Not even where each lasts: whoever shakes hands has the place of the longest silent one."""

    limits = ConnectionLimits(handshake_s_max=600, account=AccountLimits(connections=60))
    async with serving(lookups, limits) as server:
        silent = await flood(server, 150)
        async with honest(server) as client:
            assert await is_served(client)
            silent += await flood(server, 150)
            assert await is_served(client)  # it has shaken hands, so it stays
            assert server.gate.account.connections <= 60
        assert server.gate.counts[PortRefusal.CONNECTIONS] >= 240
        end(silent)
        await all_left(server)


@on_both_loops
async def test_an_address_has_no_more_connections_than_its_limit() -> None:
    limits = ConnectionLimits(account=AccountLimits(connections_per_ip=20))
    async with serving(lookups, limits) as server, AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(honest(server, HOST))
        for _ in range(10):
            reader, writer = await asyncio.open_connection(HOST, server.port)
            told = await Raw(reader, writer).answer()
            assert told is not None
            assert told.error.error == pb.TooManyRequests
            assert "20 connections from your address, which is broker" in told.error.message
            writer.close()
        assert server.gate.counts[PortRefusal.CONNECTIONS_PER_IP] == 10
        assert await is_served(await stack.enter_async_context(honest(server)))


@on_both_loops
async def test_who_connects_and_uses_nothing_is_told_to_come_again() -> None:
    """Whoever watches stays, until it watches no more."""

    limits = ConnectionLimits(idle_s_max=0.05)
    async with serving(lookups, limits) as server, honest(server) as watching:
        (watcher,) = server.peers
        watcher.open_watch()
        async with honest(server) as idle:
            told = await idle.told()
            assert told.error.error == pb.ServiceNotReady
            assert "and nothing is watched" in told.error.message
            assert await idle.answer() is None
        await asyncio.sleep(0)
        assert watcher.is_open
        watcher.close_watch()
        told = await watching.told()
        assert "nothing is watched" in told.error.message
        assert server.gate.counts[PortRefusal.IDLE] == 2


@on_both_loops
async def test_half_frames_of_one_address_cost_nobody_else_anything() -> None:
    account = AccountLimits(memory=1_300_000)
    async with (
        serving(lookups, ConnectionLimits(account=account)) as server,
        honest(server) as client,
    ):
        (mine,) = server.peers
        client.writer.write(BEGUN + b"x" * 300_000)
        await until(lambda: mine.unfinished_bytes > 300_000)
        silent = await flood(server, 30, BEGUN + b"x" * 100_000)
        await until(lambda: server.gate.counts[PortRefusal.MEMORY] >= 20)
        assert mine.is_open
        assert server.gate.memory <= 1_300_000 + 100_008
        async with honest(server, "127.0.0.3") as other:
            assert await is_served(other)
        end(silent)
        client.writer.close()
        await all_left(server)


@on_both_loops
async def test_a_frame_may_be_as_large_as_the_setting_says_and_no_larger() -> None:
    limits = ConnectionLimits(received_frame_bytes_max=60_000)
    async with serving(lookups, limits) as server, honest(server) as client:
        topic = "t" * 59_950
        client.send(commands.envelope(pb.CommandLookupTopic(topic=topic, request_id=1)))
        answer = await client.told()
        assert answer.lookupTopicResponse.brokerServiceUrl == topic
        client.send(commands.envelope(pb.CommandLookupTopic(topic=topic + "t" * 60, request_id=2)))
        told = await client.told()
        assert told.error.error == pb.NotAllowedError
        assert "must have 4 to 60000" in told.error.message
        assert server.gate.counts[PortRefusal.FRAME_SIZE] == 1


class Guest:
    """A client that reads as much as a test says."""

    host = HOST

    def __init__(self) -> None:
        self.held = 0
        self.looks = 0
        self.refusals: list[PortRefusal] = []

    @property
    def memory(self) -> int:
        self.looks += 1
        return self.held

    def turn_away(self, refusal: PortRefusal, reason: str) -> None:
        self.refusals.append(refusal)
        self.held = 0


async def test_however_much_is_sent_in_one_turn_clients_are_looked_at_once() -> None:
    """So a full port costs a node at most one look at each client between two heartbeats' turns."""

    gate = Gate(AccountLimits(memory=500))
    guests = [Guest() for _ in range(1_000)]
    for guest in guests:
        gate.joined(guest)
    for _ in range(10):
        for guest in guests:
            guest.held += 10
            gate.touch(guest)
    await asyncio.sleep(0)
    assert {guest.looks for guest in guests} == {1}
    assert sum(bool(guest.refusals) for guest in guests) == 995  # 5 of 100 bytes may stay


async def test_what_was_read_before_the_judgement_costs_no_connection() -> None:
    gate = Gate(AccountLimits(memory=500))
    guest, greedy = Guest(), Guest()
    for each in (guest, greedy):
        gate.joined(each)
    guest.held = 400
    gate.touch(guest)
    await asyncio.sleep(0)
    assert gate.memory == 400
    guest.held = 0  # as its socket says by itself, of which the gate hears nothing
    greedy.held = 450
    gate.touch(greedy)
    await asyncio.sleep(0)
    assert guest.refusals == greedy.refusals == []
    assert gate.memory == 450


async def test_nothing_is_kept_of_who_has_left_though_something_runs_for_it_yet() -> None:
    gate = Gate(AccountLimits())
    guest = Guest()
    gate.joined(guest)
    guest.held = 100
    gate.left(guest)
    gate.touch(guest)
    left = weakref.ref(guest)
    del guest
    await asyncio.sleep(0)
    gc.collect()
    assert left() is None


async def test_a_flood_of_refusals_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(AccountLimits())
    for _ in range(1_000):
        gate.note(PortRefusal.CONNECTIONS_PER_IP, Guest(), "too many")
    assert gate.counts[PortRefusal.CONNECTIONS_PER_IP] == 1_000
    (line,) = [each.getMessage() for each in caplog.records]
    assert "wire.turned_away reason=connections_per_ip" in line


OF_THE_ACCOUNT = [each for each in PortRefusal if each.value.startswith(("conn", "mem"))]


@pytest.mark.parametrize("refusal", OF_THE_ACCOUNT)
async def test_each_limit_says_its_setting_and_its_number(refusal: PortRefusal) -> None:
    words = Gate(AccountLimits(*[4_242] * len(AccountLimits.__struct_fields__))).words(refusal)
    (named,) = re.findall(r"\bbroker[A-Z]\w+", words)
    assert named in SETTING_NAMES
    assert "4242" in words
    assert code_of(refusal) == pb.TooManyRequests


@on_both_loops
async def test_who_joins_a_server_that_has_stopped_is_sent_away() -> None:
    """As one whose hand-shake of TLS is done elsewhere."""

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        async with serving() as server:
            await server.stop()
            await loop.connect_accepted_socket(server.peer, ours)
            theirs.setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(theirs, 1), WAIT_S) == b""
            await until(lambda: not server.peers)
