"""Look-ups through a proxy against the same look-ups at a node, over connections that stay."""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import uvloop
from google.protobuf.message import Message

from anabranch.devkit.nodes import HOST
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import CommandConnect, CommandLookupTopic, FeatureFlags
from anabranch.wire.framing import encode_frame
from bench.figure import Measured
from bench.place import Place

_CONNECTIONS: Final = 32
_REPEATS: Final = 3
_SECONDS: Final = 5.0
_GOAL: Final = 0.4  # two of everything: sockets, frames, parsing
_START_S_MAX: Final = 60.0
_TOPIC: Final = "persistent://public/default/proxied"
_STARTED: Final = re.compile(r"proxy\.started web_url=(\S+) service_url=(\S+)")
_SIZE: Final = struct.Struct(">I")


class _Asker(asyncio.Protocol):
    """Asks the same again as soon as it is answered; all answers are of one length."""

    def __init__(self, hello: bytes, question: bytes) -> None:
        self.answers = 0
        self._hello = hello
        self._question = question
        self._bytes = 0
        self._length = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._hello or self._question)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._hello:  # its answer, which is small enough to come in one piece
            self._hello = b""
            self._transport.write(self._question)
            return
        self._length = self._length or _length_of(data)
        self._bytes += len(data)
        while self._bytes >= self._length:
            self._bytes -= self._length
            self.answers += 1
            self._transport.write(self._question)

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _length_of(answer: bytes) -> int:
    """Of the first answer, which has come in one piece."""
    return _SIZE.size + int(_SIZE.unpack_from(answer)[0])


def proxied_lookups(place: Place) -> Measured:
    """By the binary protocol."""
    hello = CommandConnect(
        client_version="bench",
        protocol_version=21,
        feature_flags=FeatureFlags(supports_scalable_topics=True, reads_kafka=True),
    )
    question = CommandLookupTopic(topic=_TOPIC, request_id=1)
    node = place.nodes[0]
    return _compared(place, node.service_url(), framed(hello), framed(question))


def framed(message: Message) -> bytes:
    """A command as it is sent."""
    return encode_frame(commands.envelope(message).SerializeToString())


def _compared(place: Place, direct: str, hello: bytes, question: bytes) -> Measured:
    seconds = 1.0 if place.quick else _SECONDS
    through: list[float] = []
    at_node: list[float] = []
    with proxy_before(place, place.nodes[0].url) as (_, service_url):
        for _ in range(_REPEATS):
            at_node.append(uvloop.run(rate(direct, hello, question, seconds)))
            through.append(uvloop.run(rate(service_url, hello, question, seconds)))
    ratio = statistics.median(a / b for a, b in zip(through, at_node, strict=True))
    return Measured(
        statistics.median(through),
        "look-ups/s",
        ratio,
        _GOAL,
        at_least=True,
        limit=statistics.median(at_node),
        limit_what="the same look-ups at the node",
        details={"through": through, "direct": at_node, "connections": _CONNECTIONS},
    )


async def rate(url: str, hello: bytes, question: bytes, seconds: float) -> float:
    """Answers a second to all connections together."""
    where = urlsplit(url)
    loop = asyncio.get_running_loop()
    askers = []
    for _ in range(_CONNECTIONS):
        _, asker = await loop.create_connection(
            lambda: _Asker(hello, question), where.hostname or "", where.port or 0
        )
        askers.append(asker)
    await asyncio.sleep(min(1.0, seconds / 2))  # until all is warm
    before, began = sum(each.answers for each in askers), time.perf_counter()
    await asyncio.sleep(seconds)
    count, lasted = sum(each.answers for each in askers) - before, time.perf_counter() - began
    for each in askers:
        each.end()
    if not count:
        raise RuntimeError(f"{url} answered nothing")
    return count / lasted


@contextmanager
def proxy_before(place: Place, node_url: str, *settings: str) -> Iterator[tuple[str, str]]:
    """Where a proxy before that node listens: HTTP, and the binary protocol."""
    output = place.folder / f"proxy-{place.number()}.log"
    command = [sys.executable, "-m", "anabranch.cli", "proxy"]
    command += ["--nodes", node_url, "--http-port", "0", "--service-port", "0"]
    for setting in (f"advertisedAddress={HOST}", *settings):
        command += ["--set", setting]
    with (
        output.open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield _started(process, output)
        finally:
            process.send_signal(signal.SIGTERM)


def _started(process: subprocess.Popen[bytes], output: Path) -> tuple[str, str]:
    deadline = time.monotonic() + _START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        found = _STARTED.search(output.read_text())
        if found is not None:
            return found[1], found[2]
        time.sleep(0.05)
    raise RuntimeError(f"the proxy did not start: {output.read_text()}")
