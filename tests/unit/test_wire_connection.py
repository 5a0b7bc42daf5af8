"""Both sides of the binary protocol over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import connect
from anabranch.wire.connection import Limits
from anabranch.wire.errors import (
    ConnectError,
    ConnectionLostError,
    FrameError,
    RefusedError,
    RequestTimeoutError,
)
from anabranch.wire.framing import encode_frame
from anabranch.wire.server import Peer, Routes, serve
from support.waiting import until
from support.wire import HOST, WAIT_S, connected, lookups, no_routes, raw, serving


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    """On both event loops: nodes run on uvloop, clients on whichever their program has."""
    asyncio.run(test())
    uvloop.run(test())


def test_a_connection_begins_with_what_the_node_is() -> None:
    async def test() -> None:
        async with serving() as server, connected(server) as client:
            assert client.server.protocol_version == 21
            assert client.server.max_message_size == 5 * 1024 * 1024
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


@pytest.mark.parametrize(
    ("name", "payload", "request_id"),
    [
        ("PRODUCER", b"\x2a\x07\x0a\x01t\x10\x01\x18\x09", 9),
        ("PARTITIONED_METADATA", b"\xaa\x01\x05\x0a\x01t\x10\x09", 9),
        ("GET_TOPICS_OF_NAMESPACE", b"\x82\x02\x05\x08\x09\x12\x01n", 9),
        ("WATCH_TC_ASSIGNMENTS", b"\xfa\x04\x02\x08\x01", commands.NO_REQUEST),
    ],
)
def test_a_foreign_command_is_refused_by_name_and_the_connection_lives_on(
    name: str, payload: bytes, request_id: int
) -> None:
    async def test() -> None:
        async with serving(lookups) as server, raw(server.port) as client:
            await client.handshake()
            client.send(BaseCommand(type=name).SerializePartialToString() + payload)
            refused = await client.answer()
            assert refused is not None
            assert refused.error.error == pb.NotAllowedError
            assert refused.error.message.startswith(f"{name} is not served here")
            assert refused.error.request_id == request_id
            client.send(commands.envelope(pb.CommandLookupTopic(topic="t", request_id=5)))
            answer = await client.answer()
            assert answer is not None
            assert answer.lookupTopicResponse.request_id == 5

    run(test)


def test_a_command_of_a_later_protocol_is_refused_by_its_number() -> None:
    async def test() -> None:
        async with serving() as server, raw(server.port) as client:
            await client.handshake()
            client.send(b"\x08\x57\xba\x05\x02\x08\x01")
            refused = await client.answer()
            assert refused is not None
            assert refused.error.error == pb.UnsupportedVersionError
            assert refused.error.message == "command 87 is not known to this node"
            assert refused.error.request_id == commands.NO_REQUEST

    run(test)


def test_a_command_that_lacks_a_field_is_refused_and_the_connection_lives_on() -> None:
    async def test() -> None:
        async with serving(lookups) as server, raw(server.port) as client:
            await client.handshake()
            lacking = BaseCommand(type=BaseCommand.LOOKUP)
            lacking.lookupTopic.request_id = 3
            client.send(lacking)
            refused = await client.answer()
            assert refused is not None
            assert "LOOKUP lacks lookupTopic.topic" in refused.error.message
            assert refused.error.request_id == 3
            client.send(commands.envelope(pb.CommandPing()))
            assert (await client.answer()) == commands.envelope(pb.CommandPong())

    run(test)


def test_a_command_before_connect_is_refused() -> None:
    async def test() -> None:
        async with serving(lookups) as server, raw(server.port) as client:
            client.send(commands.envelope(pb.CommandLookupTopic(topic="t", request_id=5)))
            refused = await client.answer()
            assert refused is not None
            assert refused.error.message == "LOOKUP came before CONNECT"
            assert await client.answer() is None

    run(test)


def test_who_never_says_connect_is_disconnected() -> None:
    async def test() -> None:
        async with serving(limits=Limits(handshake_s_max=0.01)) as server, raw(server.port) as it:
            assert await it.answer() is None

    run(test)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not this protocol: it begins with 'GET ', as HTTP does"),
        (b"\x00\x50\x00\x01\x00\x00\x00\x00", "a frame of 5242881 bytes"),
        (b"\x00\x00\x00\x03abcd", "a frame of 3 bytes"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x09", "says its command has 9"),
        (encode_frame(b"\xff\xff\xff"), "3 bytes that are no command"),
        (encode_frame(b""), "without a type"),
    ],
)
def test_garbage_ends_only_the_connection_that_it_came_on(sent: bytes, reason: str) -> None:
    async def test() -> None:
        async with serving(lookups) as server, connected(server) as other:
            async with raw(server.port) as client:
                await client.handshake()
                (peer,) = [peer for peer in server.peers if peer.client_version == "raw"]
                client.writer.write(sent)
                assert await client.answer() is None
                assert reason in await peer.closed
            answer = await other.request(pb.CommandLookupTopic(topic="t"), WAIT_S)
            assert answer.lookupTopicResponse.brokerServiceUrl == "t"

    run(test)


def test_a_stream_that_ends_within_a_frame_says_so() -> None:
    async def test() -> None:
        async with serving() as server, raw(server.port) as client:
            await client.handshake()
            (peer,) = server.peers
            client.writer.write(b"\x00\x00\x00\x08\x00")
            client.writer.write_eof()
            assert await peer.closed == "the stream ends within a frame, after 5 bytes of it"

    run(test)


def test_a_peer_that_does_not_read_is_cut_off_before_memory_grows() -> None:
    async def test() -> None:
        limits = Limits(frame_bytes_max=200_000, unsent_bytes_max=1_000_000)
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
        limits = Limits(unread_s_max=0.05)
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
        limits = Limits(keep_alive_s=0.05)
        async with serving(limits=limits) as server, raw(server.port) as client:
            await client.handshake()
            assert await client.answer() == commands.envelope(pb.CommandPing())
            assert await client.answer() is None

    run(test)


def test_who_answers_pings_stays_connected() -> None:
    async def test() -> None:
        limits = Limits(keep_alive_s=0.2)
        async with serving(lookups, limits=limits) as server, raw(server.port) as client:
            await client.handshake()
            for _ in range(3):
                assert await client.answer() == commands.envelope(pb.CommandPing())
                client.send(commands.envelope(pb.CommandPong()))
            client.send(commands.envelope(pb.CommandLookupTopic(topic="t", request_id=5)))
            answer = await client.answer()
            while answer is not None and answer.type == BaseCommand.PING:
                answer = await client.answer()
            assert answer is not None
            assert answer.type == BaseCommand.LOOKUP_RESPONSE

    run(test)


def test_what_a_route_refuses_reaches_the_request_that_asked() -> None:
    async def test() -> None:
        def routes(_peer: Peer) -> Routes:
            async def refuse(_command: BaseCommand) -> None:
                raise RefusedError(pb.TopicNotFound, "no such topic")

            return {BaseCommand.LOOKUP: refuse}

        async with serving(routes) as server, connected(server) as client:
            with pytest.raises(RefusedError, match="no such topic") as refused:
                await client.request(pb.CommandLookupTopic(topic="t"), WAIT_S)
            assert refused.value.code == pb.TopicNotFound
            assert client.is_open

    run(test)


def test_a_fault_in_a_route_is_an_answer_and_the_connection_lives_on() -> None:
    async def test() -> None:
        def routes(peer: Peer) -> Routes:
            async def fault(command: BaseCommand) -> None:
                if command.lookupTopic.topic == "bad":
                    raise ZeroDivisionError
                await lookups(peer)[BaseCommand.LOOKUP](command)

            return {BaseCommand.LOOKUP: fault}

        async with serving(routes) as server, connected(server) as client:
            with pytest.raises(RefusedError, match="LOOKUP met a fault in the node"):
                await client.request(pb.CommandLookupTopic(topic="bad"), WAIT_S)
            await client.request(pb.CommandLookupTopic(topic="good"), WAIT_S)

    run(test)


def test_an_error_within_an_answer_is_raised_like_any_other() -> None:
    async def test() -> None:
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
                topic="t",
                subscription="s",
                consumer_name="c",
                consumer_id=1,
                consumer_type=pb.STREAM,
            )
            with pytest.raises(RefusedError, match="the name is in use") as refused:
                await client.request(asked, WAIT_S)
            assert refused.value.code == pb.ConsumerBusy

    run(test)


def test_a_request_without_an_answer_ends_at_its_deadline() -> None:
    async def test() -> None:
        def routes(_peer: Peer) -> Routes:
            async def silent(_command: BaseCommand) -> None:
                """Never answers."""

            return {BaseCommand.LOOKUP: silent}

        async with serving(routes) as server, connected(server) as client:
            with pytest.raises(RequestTimeoutError, match="no answer"):
                await client.request(pb.CommandLookupTopic(topic="t"), 0.01)
            assert client.is_open

    run(test)


def test_requests_under_way_end_with_the_connection_and_so_do_their_routes() -> None:
    async def test() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        def routes(_peer: Peer) -> Routes:
            async def stuck(_command: BaseCommand) -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            return {BaseCommand.LOOKUP: stuck}

        async with serving(routes) as server, connected(server) as client:
            asked = asyncio.create_task(client.request(pb.CommandLookupTopic(topic="t"), WAIT_S))
            await began.wait()
            await server.stop()
            with pytest.raises(ConnectionLostError):
                await asked
            assert cancelled.is_set()
            assert not client.is_open
            with pytest.raises(ConnectionLostError):
                await client.request(pb.CommandLookupTopic(topic="t"), WAIT_S)

    run(test)


def test_commands_beyond_what_a_connection_may_have_under_way_wait_their_turn() -> None:
    async def test() -> None:
        running, most = 0, 0
        may_end = asyncio.Event()

        def routes(peer: Peer) -> Routes:
            async def count(command: BaseCommand) -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                await may_end.wait()
                running -= 1
                await lookups(peer)[BaseCommand.LOOKUP](command)

            return {BaseCommand.LOOKUP: count}

        async with serving(routes, Limits(requests_max=3)) as server, connected(server) as client:
            asked = [
                asyncio.create_task(client.request(pb.CommandLookupTopic(topic="t"), WAIT_S))
                for _ in range(50)
            ]
            await until(lambda: running == 3, WAIT_S)
            may_end.set()
            await asyncio.gather(*asked)
            assert most == 3

    run(test)


def test_more_connections_than_allowed_are_turned_away() -> None:
    async def test() -> None:
        server = await serve(no_routes, host=HOST, connections_max=1)
        try:
            async with connected(server) as client:
                with pytest.raises(ConnectError):
                    await connect(HOST, server.port, timeout_s=WAIT_S)
                assert client.is_open
        finally:
            await server.stop()

    run(test)


def test_a_server_that_stops_tells_its_clients() -> None:
    async def test() -> None:
        async with serving() as server, connected(server) as client:
            await server.stop()
            assert "closed by the other side" in await client.closed
            assert server.port == 0

    run(test)


def test_an_address_where_nobody_listens_is_named() -> None:
    async def test() -> None:
        with socket.socket() as held:
            held.bind((HOST, 0))
            port = held.getsockname()[1]
            with pytest.raises(ConnectError, match=f"127.0.0.1:{port} cannot be reached"):
                await connect(HOST, port, timeout_s=WAIT_S)

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
                await connect(HOST, port, timeout_s=0.05)

    run(test)
