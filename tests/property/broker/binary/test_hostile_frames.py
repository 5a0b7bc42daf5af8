"""Whatever bytes a stranger, or somebody without rights, sends to the binary port: nothing is told,
nothing stays, nobody else notices, and no secret is written anywhere.

Commands are sound, mutated, nested, huge, of unknown types, before CONNECT and after it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from anabranch.core.security.table import WIRE
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands, entries
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import FrameDecoder, encode_frame
from anabranch.wire.server.server import Peer, Routes
from anabranch.wire.varint import nested, varint
from support import steady
from support.memory_cluster import until
from support.secured import ROOT, bearer, secured_node, tokens_alone
from support.tokens import SECRET, by_hand, token
from support.wire import HOST, error_of, serving

HOME: Final = "public/default"
TOPIC: Final = f"{HOME}/orders"
SECRETS: Final = ("hunter2-is-my-password", SECRET.hex())
# What says that something was told that needs a right.
TELLING: Final = (
    *(BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, BaseCommand.WATCH_TOPIC_LIST_SUCCESS),
    *(BaseCommand.WATCH_TOPIC_UPDATE, BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE),
    *(BaseCommand.SCALABLE_TRAFFIC_REPORT_RESPONSE, BaseCommand.SCALABLE_TOPIC_LINEAGE_RESPONSE),
)

numbers = st.one_of(st.integers(0, 3), st.sampled_from((2**31, 2**63 - 1, 2**64 - 1)))
names = st.one_of(
    st.sampled_from((f"topic://{TOPIC}", f"persistent://{TOPIC}", HOME, "a/b", "", "/", "..")),
    st.text(max_size=40),
    st.text("x/", min_size=1_000, max_size=5_000),
)
hands = st.builds(
    by_hand,
    st.dictionaries(
        st.sampled_from(("alg", "kid", "typ", "jwk", "jku", "x5u", "crit", "b64")),
        st.one_of(
            st.sampled_from(("none", "None", "HS256", "RS256", "../../../etc/passwd", "")),
            st.none() | st.integers() | st.lists(st.text(max_size=5), max_size=3),
        ),
    ),
    st.dictionaries(st.sampled_from(("sub", "exp", "nbf")), st.integers() | st.text(max_size=9)),
    st.binary(max_size=64),
).map(str.encode)
shown = st.one_of(
    *(hands, hands, st.binary(max_size=200), st.just(b"ada:" + SECRETS[0].encode())),
    *(st.just(b"x" * 20_000), st.just(b"x" * 70_000), st.just(token("eve", bytes(64)).encode())),
)
methods = st.sampled_from(("", "token", "basic", "tls", "none", "kerberos", "\x00", "t" * 300))


def connect(method: str, data: bytes, original: str, version: int) -> pb.CommandConnect:
    said = pb.CommandConnect(client_version="anabranch", protocol_version=version)
    said.auth_method_name, said.auth_data = method, data
    if original:
        said.original_principal = original
    return said


hellos = st.builds(
    connect, methods, shown, st.sampled_from(("", "", ROOT, "ada", "\n")), st.integers(0, 30)
)
answers = st.builds(
    lambda method, data: pb.CommandAuthResponse(
        response=pb.AuthData(auth_method_name=method, auth_data=data)
    ),
    methods,
    shown,
)
asked = st.one_of(
    st.builds(pb.CommandLookupTopic, topic=names, request_id=numbers),
    st.builds(
        pb.CommandGetTopicsOfNamespace, namespace=names, request_id=numbers, topics_pattern=names
    ),
    st.builds(
        pb.CommandWatchTopicList,
        namespace=names,
        topics_pattern=st.sampled_from((".*", "(a+)+$", "[", "")),
        request_id=numbers,
        watcher_id=numbers,
    ),
    st.builds(pb.CommandScalableTopicLookup, topic=names, session_id=numbers),
    st.builds(pb.CommandWatchScalableTopics, namespace=names, watch_id=numbers),
    st.builds(
        pb.CommandScalableTopicSubscribe,
        request_id=numbers,
        topic=names,
        subscription=names,
        consumer_name=names,
        consumer_id=numbers,
        consumer_type=st.sampled_from((0, 1)),
    ),
    st.builds(pb.CommandScalableTopicUnsubscribe, request_id=numbers, consumer_id=numbers),
    st.builds(pb.CommandScalableConsumerReport, request_id=numbers, consumer_id=numbers),
    st.builds(
        pb.CommandScalableTrafficReport,
        request_id=numbers,
        topic=names,
        incarnation=numbers.map(lambda number: number % 2**63),
        client_id=numbers,
        since_ms=numbers,
    ),
    st.builds(pb.CommandScalableTopicLineage, request_id=numbers, topic=names, segment_id=numbers),
    st.builds(pb.CommandPing),
)


def mutated(whole: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    """With some bytes changed, and the end cut off or said twice."""
    found = bytearray(whole)
    for place, value in changes:
        if found:
            found[place % len(found)] = value
    return bytes(found[: len(found) - cut] if cut >= 0 else found + found[cut:])


sound = st.one_of(hellos, hellos, answers, asked, asked).map(
    lambda message: commands.envelope(message).SerializeToString()
)
places = st.lists(st.tuples(st.integers(0, 9_999), st.integers(0, 255)), min_size=1, max_size=4)
groups = st.integers(1, 3_000).map(lambda depth: b"\x0b" * depth + b"\x0c" * depth)
frames = st.one_of(
    sound.map(encode_frame),
    st.builds(mutated, sound, places, st.integers(-8, 8)).map(encode_frame),
    st.builds(mutated, sound.map(encode_frame), places, st.integers(-8, 8)),
    groups.map(encode_frame),
    st.binary(max_size=100).map(encode_frame),
    st.binary(max_size=100),
)
scripts = st.lists(frames, min_size=1, max_size=6)


async def said(port: int, begins: bytes, script: list[bytes]) -> list[BaseCommand]:
    """All that comes back for it."""
    reader, writer = await asyncio.open_connection(HOST, port)
    decoder, found = FrameDecoder(1 << 26), list[BaseCommand]()
    try:
        writer.writelines((begins, *script))
        writer.write_eof()
        while data := await reader.read(65_536):
            decoder.feed(data)
            while (command := decoder.next_command()) is not None:
                found.append(commands.parse(command))
    except (ConnectionError, FrameError):
        pass  # it was cut off
    finally:
        writer.close()
    return found


def tells(answer: BaseCommand) -> bool:
    payload: Any = commands.payload_of(answer)
    if answer.type in TELLING:
        return True
    if answer.type == BaseCommand.SCALABLE_TOPIC_UPDATE:
        return bool(payload.HasField("dag"))
    if answer.type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE:
        return payload.WhichOneof("event") is not None
    if answer.type == BaseCommand.LOOKUP_RESPONSE:
        return bool(payload.response != pb.CommandLookupTopicResponse.Failed)
    if answer.type == BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE:
        return bool(payload.HasField("assignment"))
    return False


@settings(max_examples=6)  # each starts a node
@given(st.lists(scripts, min_size=1, max_size=16), st.booleans())
def test_hostile_bytes_learn_nothing_and_leave_nothing(
    many: list[list[bytes]], is_somebody: bool
) -> None:
    """`is_somebody`: they come from somebody who has shown who they are, and has no right."""
    good = token("ada")
    hello = encode_frame(
        commands.envelope(connect("token", good.encode(), "", 21)).SerializeToString()
    )

    async def test(given: dict[str, object]) -> None:
        async with secured_node(**given) as node:
            made = await node.ask("PUT", f"/admin/v2/scalable/{TOPIC}", bearer(ROOT))
            assert made.status_code == 204
            before = dict(node.node.view.entities)
            for script in many:
                found = await said(node.wire.port, hello if is_somebody else b"", script)
                for number, answer in enumerate(found):
                    assert not tells(answer), answer
                    assert error_of(answer) != ServerError.UnknownError, answer
                    if not is_somebody:
                        # An error, or the command's own answer with one.
                        assert answer.type == BaseCommand.ERROR or error_of(answer) > 0, answer
                    elif number == 0:
                        assert answer.type == BaseCommand.CONNECTED
            account = node.wire.gate.account
            await until(lambda: account.connections == 0)
            assert (account.watches, account.strangers) == (0, 0)
            assert not node.security.guard.rights
            changed = {key for key in node.node.view.entities if before.get(key) is None}
            assert not {key for key in changed if key.startswith(("topic:", "subscription:"))}
            served = await said(node.wire.port, hello, [])
            assert [each.type for each in served] == [BaseCommand.CONNECTED]

    with tempfile.TemporaryDirectory() as folder, capture_logs() as logged:
        more = {"authorizationEnabled": True, "superuserRoles": ROOT, "logLevel": "debug"}
        steady.run(test(tokens_alone(Path(folder), **more)))
    assert not [line for line in logged if line["event"].endswith("fault")]
    written = str(logged)
    for secret in (*SECRETS, *good.split(".")[1:], *token("eve", bytes(64)).split(".")[2:]):
        assert secret not in written


def lists_in(form: Any, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The numbers of fields that lead to each list of a message, also within others."""
    for field in form.fields:
        if field.is_repeated:
            yield (*path, field.number)
        if field.message_type is not None:
            yield from lists_in(field.message_type, (*path, field.number))


def within(path: tuple[int, ...], body: bytes) -> bytes:
    """What stands in the field to which the path leads, in the command that it begins with."""
    for number in reversed(path[1:]):
        body = nested(number, body)
    return b"\x08" + varint(path[0]) + nested(path[0], b"\x08\x01" + body)


def repeated(path: tuple[int, ...], entry: bytes, count: int) -> bytes:
    return within(path[:-1], nested(path[-1], entry) * count)


TYPES: Final = sorted(
    field.number for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
)
LISTS: Final = tuple(lists_in(BaseCommand.DESCRIPTOR, ()))
paths = st.sampled_from(LISTS) | st.sampled_from(
    tuple((number, field) for number, its in entries.LISTS.items() for field in (3, 6, 1000))
)
counts = st.sampled_from((1, 300, 2_100, 9_999, 10_001, 60_000)) | st.integers(1, 100_000)
types = st.sampled_from(TYPES)
unknown = st.sampled_from((b"\x78\x00", b"\xf8\xff\xff\xff\x0f\x00", b"\x7a\x00", b"\x7b\x7c"))
floods = st.one_of(
    st.builds(repeated, paths, st.sampled_from((b"", b"\x08\x01", b"\x78\x00")), counts),
    st.builds(lambda path, count: within(path, b"\x01" * count), paths, counts),  # packed
    st.builds(lambda number, each, count: within((number,), each * count), types, unknown, counts),
    st.builds(
        lambda number, each, count: within((number,), b"") + each * count, types, unknown, counts
    ),
    st.builds(
        lambda number, deep: within((number,), b"\x7b" * deep + b"\x7c" * deep), types, counts
    ),
    st.builds(lambda number, count: within((number,), b"") * count, types, counts),
    st.builds(
        lambda path, number, count: within((number,), b"") + repeated(path, b"", count),
        paths,
        types,
        counts,
    ),
)


def listed(message: Any) -> int:
    """How many entries parsing has made of it, at any depth, but for numbers."""
    found = 0
    for field, held in message.ListFields():
        if field.message_type is not None:
            those = held if field.is_repeated else (held,)
            found += sum(listed(each) for each in those) + len(those)
        elif field.is_repeated and field.cpp_type == field.CPPTYPE_STRING:
            found += len(held)
    return found


@settings(max_examples=40)
@given(st.lists(floods, min_size=1, max_size=6))
def test_no_frame_has_more_made_of_it_than_is_served_and_charged(frames: list[bytes]) -> None:
    """What is parsed is what blocks the node and takes its memory, so that is what is counted."""
    made, parse = list[BaseCommand](), commands.parse

    def parsed(data: bytes | bytearray) -> BaseCommand:
        command = parse(data)
        if len(data) > entries.SHORT_BYTES:
            made.append(command)
        return command

    def routes(_peer: Peer) -> Routes:
        async def serve(command: BaseCommand) -> None:
            least = 40 * listed(command) + command.ByteSize()  # 40: of the smallest message
            assert entries.memory_of(command, command.ByteSize()) > least

        return dict.fromkeys((n for n in TYPES if commands.name_of(n) in WIRE), serve)

    async def test() -> None:
        hello = commands.envelope(connect("", b"", "", 21)).SerializeToString()
        async with serving(routes) as server:
            for frame in frames:
                answers = await said(server.port, encode_frame(hello), [encode_frame(frame)])
                assert answers[0].type == BaseCommand.CONNECTED
                for answer in answers[1:]:
                    assert error_of(answer) != ServerError.UnknownError, answer
            served = await said(server.port, encode_frame(hello), [])
            assert [each.type for each in served] == [BaseCommand.CONNECTED]

    with patch.object(commands, "parse", parsed):
        steady.run(test())
    for command in made:
        lists = entries.LISTS.get(commands.type_of(command), {})
        assert listed(command) <= sum(most.entries for most in lists.values()) + 600
