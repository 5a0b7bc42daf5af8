"""`topics produce` with a producer that keeps what it is given."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.topics import produce as produce_module
from anabranch.client import DeliveryResult, MessageTooLargeError

TOPIC = "public/default/orders"


class Kept:
    """Client and producer: each message is there at once."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.sent: list[tuple[object, ...]] = []
        self.closed = False
        self.under_way = 0

    async def create_producer(self, _topic: str) -> "Kept":
        return self

    async def post(
        self,
        value: bytes,
        key: bytes | None,
        *,
        headers: object,
        event_time_ms: int | None,
        on_delivery: Callable[[DeliveryResult | None, Exception | None], None],
    ) -> None:
        self.values.append(value)
        self.sent.append((key, value, headers, event_time_ms))
        on_delivery(DeliveryResult(TOPIC, 0, 0, len(self.values) - 1, 1_000), None)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    found = Kept()

    @contextlib.asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Kept]:
        yield found

    monkeypatch.setattr(produce_module, "open_client", opened)
    return found


@pytest.mark.parametrize("how", ["--verbose", "--json"])
def test_when_nobody_reads_the_output_any_more_the_input_ends_and_what_was_read_is_sent(
    how: str, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{n}\n" for n in range(1_000)))
    read, write = os.pipe()
    os.close(read)
    with (
        monkeypatch.context() as patched,
        contextlib.suppress(BrokenPipeError),
        os.fdopen(write, "w") as nobody,
    ):
        patched.setattr(sys, "stdout", nobody)
        with pytest.raises(BrokenPipeError):  # which `main` ends quietly for
            produce_module.produce.main([TOPIC, how, "--file", str(lines)], standalone_mode=False)
    assert kept.values == [b"0"]
    assert kept.closed


def test_a_document_has_the_names_of_rest_and_a_key_that_is_no_text_in_base_64_too(
    kept: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"eve\tone\n\xff\ttwo\n")
    produce_module.produce.main([TOPIC, "--json", "--file", str(lines)], standalone_mode=False)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    place = {"topic": TOPIC, "segmentId": 0, "bucket": 0, "eventTimeMs": 1_000}
    assert first == {"line": 1, "key": "eve", "offset": 0, **place}
    assert second == {"line": 2, "key": "\ufffd", "keyBase64": "/w==", "offset": 1, **place}
    assert kept.values == [b"one", b"two"]


def test_a_document_says_null_from_empty_and_carries_bytes_that_are_no_text(
    kept: Kept, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text(
        """{"key": "eve", "value": null, "headers": [["h", null], ["h", ""]], "offset": 7}
{"value": "\ufffd", "valueBase64": "/woJ", "headers": [["b", "\ufffd", "/w=="]], "eventTimeMs": 5}
{"key": "", "value": ""}
{"key": "eve"}
{"value": "v", "headers": [["h"]]}
eve\tone
"""
    )
    how = [TOPIC, "--from-json", "--file", str(lines)]
    found = CliRunner().invoke(produce_module.produce, how, standalone_mode=False)
    assert kept.sent == [
        (b"eve", None, [("h", None), ("h", b"")], None),
        (None, b"\xff\n\t", [("b", b"\xff")], 5),
        (b"", b"", [], None),
    ]
    told = [line.split(":")[1:3] for line in found.stderr.splitlines()]
    assert [number for number, _ in told] == [" line 4", " line 5", " line 6"]
    assert (found.return_value, found.stdout) == (1, "sent 3 messages\n")


def test_a_file_of_bytes_is_one_message(kept: Kept, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1_000  # more than is read at once
    (tmp_path / "image").write_bytes(data)
    how = [TOPIC, "--whole", "--key", "k", "--header", "a=b", "--file", str(tmp_path / "image")]
    found = CliRunner().invoke(produce_module.produce, how)
    assert (found.stdout, kept.sent) == ("sent 1 message\n", [(b"k", data, [("a", "b")], None)])


def test_ten_failures_are_told(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_value: bytes, _key: bytes | None, **_: object) -> None:
        raise MessageTooLargeError("too large")

    monkeypatch.setattr(kept, "post", refused)
    lines = tmp_path / "lines"
    lines.write_text("one\n" * 25)
    found = CliRunner().invoke(produce_module.produce, [TOPIC, "--file", str(lines)])
    told = found.stderr.splitlines()
    assert [line for line in told if "too large" in line] == told[:10]
    (last,) = told[10:]
    assert last.startswith("anabranch: 25 lines are not sent, or not known to be; the first 10")


def test_who_ends_the_input_early_is_told_what_is_waited_for_and_given_up(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kept_waiting(value: bytes, _key: bytes | None, **_: object) -> None:
        kept.values.append(value)
        kept.under_way = len(kept.values)
        if len(kept.values) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(kept, "post", kept_waiting)
    lines = tmp_path / "lines"
    lines.write_text("one\n" * 3)
    monkeypatch.setattr(kept, "close", asyncio.Event().wait)
    monkeypatch.setattr(produce_module, "_BREAK_OFF_S", 0.01)
    found = CliRunner().invoke(produce_module.produce, [TOPIC, "--file", str(lines)])
    waits, lost = found.stderr.splitlines()
    assert waits == "waiting for Kafka to take 3 messages"
    assert lost.startswith("anabranch: 3 messages given up: Kafka may not have")
