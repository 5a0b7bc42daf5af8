"""Both sides of the binary protocol over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from anabranch.core.strangers import AccountLimits
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection, connect, join
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import (
    ConnectError,
    FrameError,
)
from anabranch.wire.framing import encode_frame
from anabranch.wire.server.server import Peer, Routes
from support.nobody import nobody
from support.waiting import until
from support.wire import HOST, WAIT_S, connected, lookups, raw, run, serving


def test_a_connection_begins_with_what_the_node_is() -> None:
    async def test() -> None:
        async with serving() as server, connected(server) as client:
            assert client.server.protocol_version == 21
            assert client.server.max_message_size == 64 * 1024 * 1024
            assert client.server.feature_flags.supports_scalable_topics
            (peer,) = server.peers
            assert peer.client_version == "anabranch"

    run(test)


def test_an_older_client_is_answered_in_its_own_version() -> None:
    async def test() -> None:
        async with serving() as server, raw(server.port) as client:
            client.send(
                commands.envelope(pb.CommandConnect(client_version="x", protocol_version=9))
            )
            answer = await client.answer()
            assert answer is not None
            assert answer.connected.protocol_version == 9

    run(test)


def test_answers_find_their_requests_in_whatever_order_they_come() -> None:
    async def test() -> None:
        first_may_go = asyncio.Event()

        def routes(peer: Peer) -> Routes:
            answer = lookups(peer)[BaseCommand.LOOKUP]

            async def slow_first(command: BaseCommand) -> None:
                if command.lookupTopic.topic == "first":
                    await first_may_go.wait()
                await answer(command)

            return {BaseCommand.LOOKUP: slow_first}

        async with serving(routes) as server, connected(server) as client:
            first = asyncio.create_task(
                client.request(pb.CommandLookupTopic(topic="first"), WAIT_S)
            )
            await asyncio.sleep(0)
            second = await client.request(pb.CommandLookupTopic(topic="second"), WAIT_S)
            assert second.lookupTopicResponse.brokerServiceUrl == "second"
            first_may_go.set()
            assert (await first).lookupTopicResponse.brokerServiceUrl == "first"

    run(test)


def test_what_no_request_asked_for_is_pushed_in_order() -> None:
    async def test() -> None:
        pushed: list[int] = []

        def routes(peer: Peer) -> Routes:
            async def watch(command: BaseCommand) -> None:
                for epoch in range(100):
                    peer.send(
                        pb.CommandScalableTopicUpdate(
                            session_id=command.scalableTopicLookup.session_id,
                            dag=pb.ScalableTopicDAG(epoch=epoch),
                        )
                    )

            return {BaseCommand.SCALABLE_TOPIC_LOOKUP: watch}

        def on_push(command: BaseCommand) -> None:
            pushed.append(command.scalableTopicUpdate.dag.epoch)

        async with serving(routes) as server, connected(server, on_push) as client:
            client.send(pb.CommandScalableTopicLookup(session_id=7, topic="topic://a/b/c"))
            await until(lambda: len(pushed) == 100, WAIT_S)
            assert pushed == list(range(100))

    run(test)


def test_a_peer_that_does_not_read_is_cut_off_before_memory_grows() -> None:
    async def test() -> None:
        limits = ConnectionLimits(frame_bytes_max=200_000, unsent_bytes_max=1_000_000)
        async with serving(limits=limits) as server, raw(server.port) as client:
            await client.handshake()
            (peer,) = server.peers
            update = pb.CommandScalableTopicUpdate(session_id=1, message="x" * 100_000)
            for _ in range(1_000):
                peer.send(update)
                if not peer.is_open:
                    break
                await asyncio.sleep(0)
            assert "does not read" in await peer.closed

    run(test)


def test_a_peer_that_takes_nothing_for_too_long_is_cut_off() -> None:
    async def test() -> None:
        limits = ConnectionLimits(unread_s_max=0.05)
        async with serving(limits=limits) as server, raw(server.port) as client:
            await client.handshake()
            (peer,) = server.peers
            update = pb.CommandScalableTopicUpdate(session_id=1, message="x" * 100_000)
            while peer.is_open:
                peer.send(update)
                await peer.drained()
            assert "does not read" in await peer.closed

    run(test)


def test_a_message_that_fits_no_frame_is_the_senders_error() -> None:
    async def test() -> None:
        async with serving() as server, connected(server):
            (peer,) = server.peers
            with pytest.raises(FrameError, match="a frame holds 5242880"):
                peer.send(pb.CommandScalableTopicUpdate(session_id=1, message="x" * 5_300_000))
            assert peer.is_open

    run(test)


def test_silence_is_met_with_a_ping_and_more_silence_ends_the_connection() -> None:
    async def test() -> None:
        async with serving() as server, raw(server.port) as client:
            await client.handshake()
            (peer,) = server.peers
            peer.limits = ConnectionLimits(keep_alive_s=0.05)
            peer._keep_alive()  # as after the silence that it had before
            assert await client.answer() == commands.envelope(pb.CommandPing())
            assert await client.answer() is None

    run(test)


def test_who_answers_pings_stays_connected() -> None:
    async def test() -> None:
        limits = ConnectionLimits(
            keep_alive_s=1_000.0
        )  # the test says when so much time has passed
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
            answer = await client.answer()
            assert answer is not None
            assert answer.type == BaseCommand.LOOKUP_RESPONSE

    run(test)


def test_a_server_that_stops_tells_its_clients() -> None:
    async def test() -> None:
        async with serving() as server, connected(server) as client:
            await server.stop()
            assert "closed by the other side" in await client.closed
            assert server.port == 0

    run(test)


def test_who_gives_up_in_the_moment_of_connecting_leaves_nothing_behind() -> None:
    class Late(ClientConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            joining.cancel()

    def make_late() -> Late:
        made.append(Late())
        return made[-1]

    async def join_late(port: int) -> None:
        hello = pb.CommandConnect(client_version="late", protocol_version=21)
        await join(make_late, HOST, port, hello)

    made: list[Late] = []
    joining: asyncio.Task[None]

    async def test() -> None:
        nonlocal joining
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

    run(test)


def test_an_address_where_nobody_listens_is_named() -> None:
    async def test() -> None:
        with nobody() as address, pytest.raises(ConnectError, match=f"{address} cannot be reached"):
            await connect(HOST, int(address.rpartition(":")[2]), timeout_s=WAIT_S)

    run(test)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_something_else_that_listens_is_said_to_be_no_node(says: bytes) -> None:
    async def test() -> None:
        async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(says)
            writer.close()

        server = await asyncio.start_server(other, HOST, 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectError, match="does not speak the binary protocol of a node"):
                await connect(HOST, port, timeout_s=WAIT_S)

    run(test)


def test_a_listener_that_never_answers_is_given_up() -> None:
    async def test() -> None:
        with socket.socket() as held:
            held.bind((HOST, 0))
            held.listen()
            port = held.getsockname()[1]
            with pytest.raises(ConnectError, match="does not answer CONNECT within"):
                await connect(HOST, port, timeout_s=0.5)

    run(test)


def test_a_frame_that_does_not_come_to_its_end_ends_its_connection() -> None:
    """However slowly the rest drips in; whoever sends whole frames stays."""

    async def test() -> None:
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

    run(test)


def test_a_frame_that_was_begun_while_nothing_was_read_comes_to_its_end_all_the_same() -> None:
    async def test() -> None:
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

    run(test)


def test_frames_cut_at_any_place_are_not_taken_for_one_without_end() -> None:
    async def test() -> None:
        async with (
            serving(lookups, ConnectionLimits(frame_s_max=0.2)) as server,
            raw(server.port) as client,
        ):
            await client.handshake()
            frame = encode_frame(
                commands.envelope(
                    pb.CommandLookupTopic(topic="t" * 100, request_id=1)
                ).SerializeToString()
            )
            loop = asyncio.get_running_loop()
            until_s, carried = loop.time() + 1, frame[:50]
            while loop.time() < until_s:  # a frame is always under way, but none for long
                client.writer.write(carried + frame[50:] + frame[:50])
                carried = b""
                answer = await client.answer()
                assert answer is not None

    run(test)


def test_unfinished_frames_of_all_connections_together_are_bounded() -> None:
    """The one that has the most goes."""

    async def test() -> None:
        limits = ConnectionLimits(account=AccountLimits(memory=1_000_000))
        async with (
            serving(limits=limits) as server,
            raw(server.port) as big,
            raw(server.port) as it,
        ):
            await big.handshake()
            (greatest,) = [peer for peer in server.peers if peer.client_version]
            await it.handshake()
            begun = b"\x00\x50\x00\x00" + b"\x00\x4f\xff\xfc"
            big.writer.write(begun + b"x" * 600_000)
            await until(lambda: greatest.unfinished_bytes > 500_000, WAIT_S)
            it.writer.write(begun + b"x" * 500_000)
            assert "brokerMaxMemoryInFlight" in await greatest.closed
            (left,) = server.peers
            await until(lambda: left.unfinished_bytes == 500_008, WAIT_S)
            assert left.is_open
            left.abort("the test is over")
            await left.closed
            await until(lambda: not server.peers)
            assert server.gate.memory == 0

    run(test)


def test_what_many_clients_share_is_nobodys_own_memory_and_what_follows_it_is() -> None:
    async def test() -> None:
        limits = ConnectionLimits(account=AccountLimits(memory=1_000_000))
        payload = bytes(8 << 20)
        async with (
            serving(limits=limits) as server,
            raw(server.port) as one,
            raw(server.port) as other,
        ):
            await one.handshake()
            await other.handshake()
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            other.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for peer in server.peers:
                peer.send_shared(b"head", payload)
            await asyncio.sleep(0)
            assert server.gate.memory == 0
            assert all(peer.is_open for peer in server.peers)
            deaf, left = server.peers
            deaf.send_frame(bytes(600_000))
            assert server.gate.memory == 600_000
            deaf.send_frame(bytes(600_000))
            assert "brokerMaxMemoryInFlight" in await deaf.closed
            assert left.is_open

    run(test)


def test_one_client_too_many_is_told_so() -> None:
    async def test() -> None:
        limits = ConnectionLimits(account=AccountLimits(connections=1))
        async with serving(limits=limits) as server, connected(server):
            with pytest.raises(
                ConnectError, match=r"this node has 1 clients.*brokerMaxConnections"
            ):
                await connect(HOST, server.port, timeout_s=WAIT_S)

    run(test)
