"""Commands and their envelope; the generated code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import FrameError

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
