"""Commands in bytes: how much a client's may list, counted before anything is made of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.core.security.table import WIRE
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands, entries
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.entries import ENTRIES_MAX, LISTS, SHORT_BYTES
from anabranch.wire.errors import ExcessError, FrameError
from anabranch.wire.server.server import Peer, Routes
from anabranch.wire.varint import nested, varint
from support.wire import raw, serving

FORMS = {
    field.number: field.message_type
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}
CASES = [(number, name) for number, its in LISTS.items() for name in its]


def filled(form: Any) -> bytes:
    """A message with what it must have, and nothing else."""
    return b"".join(
        nested(field.number, b"t")
        if field.cpp_type == field.CPPTYPE_STRING
        else varint(field.number << 3) + b"\x01"
        for field in form.fields
        if field.is_required
    )


def command(number: int, message: bytes) -> bytes:
    return b"\x08" + varint(number) + nested(number, message)


def listing(number: int, name: str, count: int) -> bytes:
    form = FORMS[number]
    field = form.fields_by_name[name]
    entry = (
        varint(field.number << 3) + b"\x01"
        if field.message_type is None
        else nested(field.number, filled(field.message_type))
    )
    return command(number, filled(form) + entry * count)


def lists_of(form: Any) -> Iterator[str]:
    for field in form.fields:
        if field.is_repeated:
            yield field.name
        elif field.message_type is not None:
            yield from lists_of(field.message_type)


def test_every_list_of_a_command_that_a_node_serves_has_a_limit() -> None:
    said = [number for number, form in FORMS.items() if commands.name_of(number) in WIRE]
    said += [BaseCommand.CONNECT, BaseCommand.AUTH_RESPONSE, BaseCommand.PING, BaseCommand.PONG]
    assert {n: sorted(lists_of(FORMS[n])) for n in said if [*lists_of(FORMS[n])]} == {
        number: sorted(its) for number, its in LISTS.items()
    }


@pytest.mark.parametrize(("number", "name"), CASES)
async def test_a_command_is_served_with_as_much_as_it_may_list_and_refused_with_more(
    number: int, name: str
) -> None:
    served: list[tuple[int, int]] = []

    def routes(peer: Peer) -> Routes:
        async def serve(found: BaseCommand) -> None:
            served.append((len(getattr(commands.payload_of(found), name)), peer.memory))
            peer.send(pb.CommandSuccess(request_id=9))

        return {number: serve}

    most = LISTS[number][name].entries
    async with serving(routes) as server, raw(server.port) as client:
        await client.handshake()
        client.send(listing(number, name, most))
        assert (await client.told()).success.request_id == 9
        for count in (most + 1, 100_000):
            client.send(listing(number, name, max(count, SHORT_BYTES)))
            answer = commands.payload_of(await client.told())
            ids = [each for each in ("request_id", "watch_id") if hasattr(answer, each)]
            assert [getattr(answer, each) for each in ids] == [1]
            assert answer.error == pb.NotAllowedError
            assert f"more than {most} entries in {name}" in answer.message
        assert [count for count, _ in served] == [most]
        assert served[0][1] > 144 * most


@pytest.mark.parametrize(
    ("number", "rest", "reason"),
    [
        (71, nested(71, b"\x08\x01" + nested(2, nested(2, b"") * 3_000)), "only nodes send"),
        (23, nested(23, filled(FORMS[23]) + b"\x78\x00" * 3_000), "more than 256 fields"),
        (23, nested(23, nested(1, b"x" * 65_537)), "or 65536 bytes, that are no lists"),
        (23, nested(23, filled(FORMS[23])) + nested(5_000, b"x" * 65_537), "or 65536 bytes"),
        (23, nested(23, filled(FORMS[23])) + b"\xf8\x7f\x00" * 3_000, "more than 256 fields"),
        (23, nested(23, b"\x0a\x01t") + nested(32, b"x" * 5_000), "more than one message"),
        (1001, nested(1001, nested(6, b"\x12\x01t" * 3_000)), "more than 16 fields in an entry"),
        (4, nested(4, b"\x7b\x7c" * 3_000), "more than 256 fields"),
        (1000, nested(1000, nested(1000, b"\x01" * 10_001)), "or 10000 bytes"),
        (1000, nested(1000, nested(3, nested(2, b"\x01" * 262_144))), "or 262144 bytes"),
        (1001, nested(1001, nested(6, b"\x12\x01t" * 300) * 2_000), "or 1048576 bytes"),
        (5_000, nested(5_000, b"") + b"\x78\x00" * 3_000, "more than 256 fields"),
    ],
)
def test_what_else_is_too_much_is_refused_and_told_by_its_head(
    number: int, rest: bytes, reason: str
) -> None:
    with pytest.raises(ExcessError, match=reason) as refused:
        entries.check(b"\x08" + varint(number) + rest)
    head = refused.value.head
    assert (commands.type_of(commands.parse(head)), len(head) < 1_100) == (number, True)


@pytest.mark.parametrize(
    "data",
    [
        b"\x08\x17" + nested(23, b"") + b"\x0a",  # a length is lacking
        b"\x08\x17" + b"\xba\x01\xff\xff\xff\x7f",  # more than there is
        b"\x08" + b"\xff" * 11,  # a number that never ends
        b"\x08\x17\x7f",  # a kind of field that there is not
    ],
)
def test_bytes_that_are_no_command_are_known_without_parsing_too(data: bytes) -> None:
    with pytest.raises(FrameError):
        entries.check(nested(5_000, b"x" * SHORT_BYTES) + data)


def test_an_entry_is_counted_however_its_number_is_written() -> None:
    """The parser takes more bytes for a number than it needs."""
    tag = b"\x9a\x80\x80\x80\x00"  # of field 3
    report = command(
        1000, filled(FORMS[1000]) + (tag + b"\x82\x80\x00\x08\x01") * (ENTRIES_MAX + 1)
    )
    assert len(commands.parse(report).scalableConsumerReport.released) == ENTRIES_MAX + 1
    with pytest.raises(ExcessError, match="in released"):
        entries.check(report)


# --- commands and their envelope; the generated code ----------------------------------------------


_ROOT = Path(__file__).parents[3] / "wire"


def test_the_committed_code_is_what_the_proto_file_gives(tmp_path: Path) -> None:
    source = "anabranch/wire/anabranch.proto"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{_ROOT}", f"--python_out={tmp_path}"),
            *(f"--pyi_out={tmp_path}", str(_ROOT / source)),
        ],
        check=True,
    )
    for suffix in (".py", ".pyi"):
        name = source.replace(".proto", f"_pb2{suffix}")
        assert (tmp_path / name).read_text() == (_ROOT / name).read_text(), "run `make proto`"


def test_each_type_has_the_number_of_its_field() -> None:
    types = set(BaseCommand.Type.values())
    assert {f.number for f in BaseCommand.DESCRIPTOR.fields if f.message_type is not None} <= types


def test_what_the_protocol_did_not_have_is_optional_and_from_1000_on() -> None:
    ours = {
        "ScalableTopicDAG": 5,
        "SegmentInfoProto": 12,
        "CommandScalableTopicSubscribe": 6,
        "ScalableConsumerAssignment": 2,
        "ScalableAssignedSegment": 5,
    }
    messages = pb.DESCRIPTOR.message_types_by_name
    for name, theirs_max in ours.items():
        extra = [f for f in messages[name].fields if f.number > theirs_max]
        assert extra
        assert all(f.number >= 1000 and not f.is_required for f in extra)


def test_what_a_command_lacks_is_named() -> None:
    lacking = BaseCommand(type=BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE)
    assert commands.lacking(lacking) == "scalableTopicUnsubscribe"
    lacking.scalableTopicUnsubscribe.request_id = 1
    assert commands.lacking(lacking) == "scalableTopicUnsubscribe.consumer_id"


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x12\x00", b"\x0a\x01x"])
def test_bytes_that_are_no_command_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        commands.parse(data)


def test_of_a_field_that_comes_a_million_times_not_all_is_looked_at() -> None:
    """That text is UTF-8 is made sure of in the event loop, one by one."""
    looked = 0

    class Counted:
        def __iter__(self) -> Iterator[pb.KeyValue]:
            nonlocal looked
            for _ in range(1_000_000):
                looked += 1
                yield pb.KeyValue(key="k", value="v")

    class Asked:
        namespace = current_hash = ""
        property_filters = Counted()

    texts = commands._TEXTS[BaseCommand.WATCH_SCALABLE_TOPICS]
    assert not commands._garbled(Asked(), texts)
    assert 64 < looked < 10_000


@pytest.mark.parametrize("number", [0, 1, 300, 2**63 - 1])
def test_the_request_id_of_an_answer_that_is_not_parsed_is_found(number: int) -> None:
    told = pb.CommandWatchTopicListSuccess(request_id=number, watcher_id=5, topics_hash="abc")
    told.topic.extend(["topic://public/default/a"] * 1_000)
    assert entries.request_id_in(commands.envelope(told).SerializeToString()) == number
    ping = commands.envelope(pb.CommandPing()).SerializeToString()
    assert entries.request_id_in(ping) == commands.NO_REQUEST
