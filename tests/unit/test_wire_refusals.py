"""What a node says to commands and bytes that it does not serve."""

from __future__ import annotations

import pytest

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import Limits
from anabranch.wire.framing import encode_frame
from support.wire import WAIT_S, connected, lookups, raw, run, serving


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
