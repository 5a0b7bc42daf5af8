"""What a type checker says of the SDK, and what its documentation names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import anabranch.client as aio
import anabranch.client as sdk
from anabranch.client import _settings as settings
from anabranch.client import sync
from anabranch.core.topics.entries import BOUNDS_HEADERS

_REPOSITORY: Final = Path(__file__).parents[3]
_NOT_OF_THE_FACE: Final = {"abandon", "adopt", "start", "watch", "watch_topics", "while_held"} | {
    # For consumers over many topics.
    *("in_flight", "poll", "take_lost", "note_acknowledged", "note_all_acknowledged"),
    *("join", "part"),
}
# Each line ends with what the checker is to say of it, if anything.
_CALLS: Final = """
from anabranch.client import Client, Checkpoint, Message, ProducerSettings, QueueMessage
from anabranch.client import TopicSelection, Work
from anabranch.client import sync
from anabranch.admin import Admin, AsyncAdmin

tenants: list[str] = Admin().tenants.get_tenants()
Admin().scalable_topics.delete_subscription("t", "s", force=True)
Admin().tenants.get_tenant(5)  # attr-defined
Admin().scalable_topics.delete_subscription("t", "s", True)  # call-arg

with sync.Client("pulsar://n:1", kafka={"client.id": "a"}) as client:
    producer: sync.Producer = client.create_producer("t", linger_ms=0, compression="zstd")
    offset: int = producer.send(b"v", key="k", event_time_ms=5).offset
    producer.send_many([("k", b"v")])
    with client.subscribe("t", "s", settle_timeout_s=1.0) as stream:
        for message in stream:
            kept: Message = message
            stream.acknowledge(message)
            late: bool = message.is_revoked
    for job in client.subscribe_queue("t", "s", messages_max=5):
        own: QueueMessage = job
    with client.subscribe_topics(TopicSelection("p/n"), "s") as topics:
        topics.run(lambda message, work: print(message.topic, work.id), concurrency=5)
        running: int = topics.stats().running  # union-attr
        topics.run(5)  # arg-type
    positions = client.subscribe_checkpoint("t", "s", position_of=lambda s, b: s + b)
    positions.saved(positions.checkpoint())

    client.create_producer("t", linger=0)  # call-arg
    client.subscribe("t", "s", read=64)  # arg-type
    producer.send_many([b"v"])  # list-item
    stream.acknowledge(b"v")  # arg-type
    text: str = stream.receive()  # assignment


async def main() -> None:
    async with Client("pulsar://n:1") as client:
        producer = await client.create_producer("t", ProducerSettings(), encrypt=bytes)
        await producer.send(b"v", key="k")
        stream = await client.subscribe("t", "s", "worker-1", commit_interval_s=1)
        async for message in stream:
            async with stream.while_held(message):
                kept: Message = message
        many = await client.subscribe_topics(TopicSelection("p/n"), "s")

        async def work(message: Message, work: Work) -> None:
            print(message.topic, message.value, work.attempt)

        await many.run(work, concurrency=100)
        await many.run_batches(work)  # arg-type
        await many.run(work, width=100)  # call-arg
        queue = await client.subscribe_queue("t", "s", decrypt=bytes)
        count: int = (await queue.receive()).delivery_count

        await client.create_producer("t", linger=0)  # call-arg
        await client.subscribe_checkpoint("t", "s", position_of=5)  # arg-type
        for wrong in stream:  # attr-defined
            pass

        known: list[str] = await AsyncAdmin().tenants.get_tenants()
        known = AsyncAdmin().tenants.get_tenants()  # assignment
        await Admin().tenants.get_tenants()  # misc
"""

_PARTS: Final = [
    (aio.Client, sync.Client),
    (aio.Producer, sync.Producer),
    (aio.StreamConsumer, sync.StreamConsumer),
    (aio.CheckpointConsumer, sync.CheckpointConsumer),
    (aio.QueueConsumer, sync.QueueConsumer),
    (aio.StreamTopicsConsumer, sync.StreamTopicsConsumer),
]


def test_a_strict_checker_refuses_each_wrong_call_and_no_right_one(tmp_path: Path) -> None:
    snippet = tmp_path / "calls.py"
    snippet.write_text(_CALLS)
    checked = subprocess.run(
        [
            sys.executable,
            *("-m", "mypy", "--strict", "--no-pretty", "--hide-error-context"),
            *(
                "--config-file",
                str(_REPOSITORY / "pyproject.toml"),
                "--disable-error-code=redundant-expr",
            ),
            *("--cache-dir", str(tmp_path / "cache"), str(snippet)),
        ],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[int, str] = {}
    for line in checked.stdout.splitlines():
        if ": error: " in line and str(snippet) in line:
            found.setdefault(int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
    wanted = {
        number: line.rpartition("  # ")[2]
        for number, line in enumerate(_CALLS.splitlines(), 1)
        if "  # " in line
    }
    assert found == wanted, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("given", "by_name"),
    [
        (settings.ProducerSettings, settings.ProducerOptions),
        (settings.ReceivingSettings, settings.ReceivingOptions),
        (settings.ConsumerSettings, settings.ConsumerOptions),
        (settings.QueueSettings, settings.QueueOptions),
    ],
)
def test_settings_by_name_are_those_of_the_object(given: type, by_name: type) -> None:
    assert typing.get_type_hints(by_name) == typing.get_type_hints(given)
    assert set(typing.get_type_hints(given)) == set(given.__struct_fields__)  # type: ignore[attr-defined]


def _public(kind: type) -> dict[str, Any]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    return {name: inspect.getattr_static(kind, name) for name in names - _NOT_OF_THE_FACE}


def _shape(function: Callable[..., Any], waits: bool) -> dict[str, tuple[Any, Any, Any]]:
    hints = typing.get_type_hints(function)
    found: dict[str, tuple[Any, Any, Any]] = {
        name: (each.kind, each.default, hints[name])
        for name, each in inspect.signature(function).parameters.items()
        if name != "self"
    }
    if waits:
        found["return"] = (None, None, hints["return"])
    return found


@pytest.mark.parametrize(("part", "face"), _PARTS)
def test_the_synchronous_object_has_each_method_of_the_other(part: type, face: type) -> None:
    ours, theirs = _public(part), _public(face)
    assert not ours.keys() - theirs.keys()
    for name, own in ours.items():
        other = theirs[name]
        assert isinstance(own, property) == isinstance(other, property), name
        if not isinstance(own, property):
            assert _shape(own, waits=False) == _shape(other, waits=False), name
            assert not inspect.iscoroutinefunction(other), name


# --- docs/client.md knows every public name, and every setting, of the SDK ------------------------


_DOCS: Final = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
_INSIDE: Final = {"abandon", "adopt", "count", "delivery", "ends", "index", "is_closed", "only"} | {
    *("source", "source_of", "parts", "start", "from_proto", "as_deleted", "is_newer_than"),
    *("in_flight", "joined", "poll", "take_lost", "note_acknowledged", "note_all_acknowledged"),
    *("join", "part"),
}
_OBJECTS: Final = (
    *(sdk.Client, sdk.Producer, sdk.StreamConsumer, sdk.CheckpointConsumer, sdk.QueueConsumer),
    *(sdk.Message, sdk.QueueMessage, sdk.Batch, sdk.QueueBatch, sdk.Checkpoint),
    sdk.StreamTopicsConsumer,
)


def _not_told(names: set[str]) -> set[str]:
    return names - set(re.findall(r"\w+", _DOCS))


def test_each_public_name_of_the_sdk_is_in_its_documentation() -> None:
    assert _not_told({*sdk.__all__, *sync.__all__}) == set()


@pytest.mark.parametrize("kind", [sdk.ProducerSettings, sdk.ConsumerSettings, sdk.QueueSettings])
def test_each_setting_is_in_the_documentation(kind: type[sdk.ProducerSettings]) -> None:
    assert _not_told(set(kind.__struct_fields__)) == set()


@pytest.mark.parametrize("kind", _OBJECTS)
def test_each_public_method_and_property_is_in_the_documentation(kind: type) -> None:
    assert _not_told({name for name in dir(kind) if not name.startswith("_")} - _INSIDE) == set()


def test_header_names_that_are_the_producers_own_are_documented() -> None:
    for name in BOUNDS_HEADERS:
        assert f"`{name}`" in _DOCS
