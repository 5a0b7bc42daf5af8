"""What a node says to commands and bytes that it does not serve."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.framing import encode_frame
from support.wire import WAIT_S, connected, lookups, on_both_loops, raw, serving

pytestmark = on_both_loops


@pytest.mark.parametrize(
    ("name", "payload", "request_id"),
    [
        ("SUBSCRIBE", b"\x22\x0a\x0a\x01t\x12\x01s\x18\x00\x28\x09", 9),
        ("PARTITIONED_METADATA", b"\xaa\x01\x03\x0a\x01t", commands.NO_REQUEST),  # lacks its id
        ("FLOW", b"\x5a\x04\x08\x01\x10\x05", commands.NO_REQUEST),
    ],
)
async def test_a_foreign_command_is_refused(name: str, payload: bytes, request_id: int) -> None:
    async with serving(lookups) as server, raw(server.port) as client:
        await client.handshake()
        client.send(BaseCommand(type=name).SerializePartialToString() + payload)
        refused = await client.told()
        assert refused.error.error == pb.NotAllowedError
        assert refused.error.message.startswith(f"{name} is not served here")
        assert "Kafka" in refused.error.message
        assert refused.error.request_id == request_id
        client.send(commands.envelope(pb.CommandLookupTopic(topic="t", request_id=5)))
        answer = await client.told()
        assert answer.lookupTopicResponse.request_id == 5


# Requests of Pulsar's clients, the number of the response that they wait for, and the numbers of
# its ids, error and message, as its 5.0.0-M1 has them.
RESPONSES: list[tuple[int, dict[int, int], int, dict[int, int], int, int]] = [
    (6, {1: 3, 2: 9}, 8, {1: 3, 2: 9}, 3, 4),  # SEND
    (10, {1: 3, 8: 9}, 38, {1: 3, 6: 9}, 4, 5),  # ACK
    (21, {2: 9}, 22, {2: 9, 3: 1}, 4, 5),  # PARTITIONED_METADATA; 3: Failed
    (23, {2: 9}, 24, {4: 9, 3: 2}, 6, 7),  # LOOKUP, that lacks its topic; 3: Failed
    (25, {1: 9}, 26, {1: 9}, 2, 3),  # CONSUMER_STATS
    (34, {1: 9}, 35, {1: 9}, 2, 3),  # GET_SCHEMA
    (39, {1: 9}, 40, {1: 9}, 2, 3),  # GET_OR_CREATE_SCHEMA
    (50, {1: 9}, 51, {1: 9}, 4, 5),  # NEW_TXN, as those of transactions up to 60
    (62, {1: 9}, 63, {1: 9}, 2, 3),  # TC_CLIENT_CONNECT_REQUEST
    (70, {1: 9}, 71, {1: 9}, 3, 4),  # SCALABLE_TOPIC_LOOKUP, that lacks its topic
    (73, {1: 9}, 74, {1: 9}, 2, 3),  # SCALABLE_TOPIC_SUBSCRIBE, that lacks nearly all
    (76, {1: 9}, 77, {1: 9}, 4, 5),  # WATCH_SCALABLE_TOPICS
    (79, {1: 9}, 80, {1: 9}, 3, 4),  # WATCH_TC_ASSIGNMENTS
]


async def test_a_request_with_a_response_of_its_own_is_refused_by_that() -> None:
    async with serving() as server, raw(server.port) as client:
        await client.handshake()
        for number, ids, response, echoed, code, why in RESPONSES:
            client.send(_varint(1 << 3) + _varint(number) + _message(number, ids))
            answer = await client.told()
            assert answer.type == response, commands.name_of(number)
            found = {each.number: value for each, value in commands.payload_of(answer).ListFields()}
            assert found.pop(code) in (pb.NotAllowedError, pb.UnsupportedVersionError)
            assert commands.name_of(number) in found.pop(why)
            assert found == echoed
            assert not commands.lacking(answer)


def _message(number: int, fields: dict[int, int]) -> bytes:
    body = b"".join(_varint(each << 3) + _varint(value) for each, value in fields.items())
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


async def test_a_command_of_a_later_protocol_is_refused_by_its_number() -> None:
    async with serving() as server, raw(server.port) as client:
        await client.handshake()
        client.send(b"\x08\x57\xba\x05\x02\x08\x01")
        refused = await client.told()
        assert refused.error.error == pb.UnsupportedVersionError
        assert refused.error.message == "command 87 is not known to this node"
        assert refused.error.request_id == commands.NO_REQUEST


async def test_a_command_that_lacks_a_field_is_refused_and_the_connection_lives_on() -> None:
    async with serving(lookups) as server, raw(server.port) as client:
        await client.handshake()
        lacking = BaseCommand(type=BaseCommand.LOOKUP)
        lacking.lookupTopic.request_id = 3
        client.send(lacking)
        refused = await client.told()
        assert "LOOKUP lacks lookupTopic.topic" in refused.lookupTopicResponse.message
        assert refused.lookupTopicResponse.request_id == 3
        client.send(commands.envelope(pb.CommandPing()))
        assert (await client.answer()) == commands.envelope(pb.CommandPong())


@pytest.mark.parametrize(
    "command", [pb.CommandLookupTopic(topic="t", request_id=5), pb.CommandPing()]
)
async def test_a_command_before_connect_is_refused_by_name(command: Message) -> None:
    name = commands.name_of(commands.number_of(command))
    async with serving(lookups) as server, raw(server.port) as client:
        client.send(commands.envelope(command))
        assert commands.payload_of(await client.told()).message == f"{name} came before CONNECT"
        assert await client.answer() is None


@pytest.mark.parametrize(
    ("number", "payload", "field"),
    [
        (23, b"\x0a\x01\xff\x10\x05", "topic"),
        (73, b"\x08\x05\x12\x01t\x1a\x02\xc3\x28\x22\x01c\x28\x01\x30\x00", "subscription"),
        (
            1001,
            b"\x08\x05\x12\x01t\x18\x01\x20\x01\x28\x01\x32\x09\x08\x00\x12\x01\x80\x18\x01\x20\x01",
            "segments.subscription",
        ),
    ],
)
async def test_text_that_is_not_utf_8_is_refused_by_its_fields_name(
    number: int, payload: bytes, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(lookups) as server, raw(server.port) as client:
        await client.handshake()
        size = _varint(number << 3 | 2) + _varint(len(payload))
        client.send(_varint(1 << 3) + _varint(number) + size + payload)
        said = commands.payload_of(await client.told())
        assert said.message == f"{commands.name_of(number)}: {field} is not UTF-8 text"
        client.send(commands.envelope(pb.CommandPing()))
        assert (await client.answer()) == commands.envelope(pb.CommandPong())
    assert not caplog.records


async def test_who_never_says_connect_is_disconnected() -> None:
    async with (
        serving(limits=ConnectionLimits(handshake_s_max=0.01)) as server,
        raw(server.port) as it,
    ):
        told = await it.told()
        assert told.error.error == pb.NotAllowedError
        assert "no CONNECT came within 0.01 s" in told.error.message
        assert await it.answer() is None


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not this protocol: it begins with 'GET ', as HTTP does"),
        (b"\x00\x00\x00\x03abcd", "a frame of 3 bytes"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x09", "says its command has 9"),
        (encode_frame(b"\xff\xff\xff"), "3 bytes that are no command"),
        (encode_frame(b""), "without a type"),
    ],
)
async def test_garbage_ends_only_the_connection_that_it_came_on(sent: bytes, reason: str) -> None:
    async with serving(lookups) as server, connected(server) as other:
        async with raw(server.port) as client:
            await client.handshake()
            (peer,) = [peer for peer in server.peers if peer.client_version == "raw"]
            client.writer.write(sent)
            told = await client.told()
            assert reason in told.error.message
            assert await client.answer() is None
            assert reason in await peer.closed
        answer = await other.request(pb.CommandLookupTopic(topic="t"), WAIT_S)
        assert answer.lookupTopicResponse.brokerServiceUrl == "t"


async def test_a_stream_that_ends_within_a_frame_says_so() -> None:
    async with serving() as server, raw(server.port) as client:
        await client.handshake()
        (peer,) = server.peers
        client.writer.write(b"\x00\x00\x00\x08\x00")
        client.writer.write_eof()
        assert await peer.closed == "the stream ends within a frame, after 5 bytes of it"
