"""Many clients ask a node process for long lists, and half of them never read the answer.

`TOPIC_LIST_LOAD=full` asks over 1,000 connections for 100,000 topics each, with the default limits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
import time
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pytest

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.core.names import full_name
from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.devkit.ports import free_port
from anabranch.devkit.topics_on_log import append_topics
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.framing import encode_frame
from support.processes import EVENLY, HOST

pytestmark = pytest.mark.integration

HOME: Final = "public/default"
SMALL_RECEIVE_BUFFER: Final = 4_096
WAIT_S: Final = 300.0
SIZE: Final = struct.Struct(">I")
# Lists of several patterns are answers of their own: memory of one is not memory of another.
PATTERNS: Final = (None, "public/default/orders.*")


class Load(NamedTuple):
    """How many ask for how much, and how much memory there is for it."""

    connections: int
    topics: int
    limit_mb: int  # of each kind of memory


LOAD: Final = (
    Load(1_000, 100_000, 100)
    if os.environ.get("TOPIC_LIST_LOAD") == "full"
    else Load(200, 20_000, 40)
)
# Less than those who never read are owed: what many share is nobody's own.
MEMORY_IN_FLIGHT: Final = 32 << 20
NAMES: Final = [
    f"{HOME}/{'orders-of-the-customers-in-the-region-of-this-number-':-<200}{number:07d}"
    for number in range(LOAD.topics)
]


@pytest.fixture
def node(kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that serves, whose view has all topics."""
    process = NodeProcess(
        "node",
        free_port(HOST),
        kafka.bootstrap_servers,
        tmp_path,
        f"topicPrefix={topic_prefix}",
        f"maxTopicListInFlightHeapMemSizeMB={LOAD.limit_mb}",
        f"maxTopicListInFlightDirectMemSizeMB={LOAD.limit_mb}",
        f"brokerMaxMemoryInFlight={MEMORY_IN_FLIGHT}",
        f"brokerMaxMemoryInFlightPerIp={MEMORY_IN_FLIGHT}",
        EVENLY,
    )
    try:
        process.start()
        await_ready([process])
        for number in range(100):  # some fall into each bundle of the namespace
            get(process, f"/lookup/v2/topic/persistent/{HOME}/any-{number}")
        process.kill()
        connection = KafkaConnection(kafka.bootstrap_servers)
        append_topics(connection, topic_prefix, process.broker_id, NAMES, 1)
        process.start()
        await_ready([process])
        yield process
    finally:
        stop_all([process])


def get(node: NodeProcess, path: str) -> str:
    with urllib.request.urlopen(f"{node.url}{path}", timeout=WAIT_S) as answer:
        return bytes(answer.read()).decode()


def metric(node: NodeProcess, name: str) -> float:
    """The sum over its label sets; fails if there is none."""
    found = [
        float(line.rpartition(" ")[2])
        for line in get(node, "/metrics").splitlines()
        if line.partition("{")[0].partition(" ")[0] == name
    ]
    assert found, f"no metric {name}"
    return sum(found)


def memory_mb(node: NodeProcess, which: str) -> float:
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{which}:"))


def forget_peak(node: NodeProcess) -> None:
    """From now on VmHWM is the peak since now."""
    Path(f"/proc/{node.pid}/clear_refs").write_text("5")


def in_use(node: NodeProcess) -> float:
    """Bytes that the limiter has given and not got back."""
    kinds = ("heap", "direct")
    return sum(metric(node, f"pulsar_broker_topic_list_{kind}_memory_used_bytes") for kind in kinds)


class Asker:
    """One connection that asks for one list."""

    def __init__(self, pattern: str | None) -> None:
        self.pattern = pattern
        self._socket = socket.socket()
        self._socket.setblocking(False)

    async def ask(self, address: tuple[str, int], *, reads: bool) -> None:
        """Connects, shakes hands, and sends the request."""
        if not reads:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BUFFER)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, address)
        await self._send(pb.CommandConnect(client_version="load", protocol_version=21))
        connected = commands.parse((await self.frame())[SIZE.size :])
        assert connected.type == pb.BaseCommand.CONNECTED
        asked = pb.CommandGetTopicsOfNamespace(request_id=1, namespace=HOME)
        if self.pattern is not None:
            asked.topics_pattern = self.pattern
        await self._send(asked)

    async def frame(self) -> bytes:
        """The next frame, without its total size."""
        (size,) = SIZE.unpack(await self._exactly(SIZE.size))
        return await self._exactly(size)

    def close(self) -> None:
        self._socket.close()

    async def _send(self, message: pb.CommandConnect | pb.CommandGetTopicsOfNamespace) -> None:
        frame = encode_frame(commands.envelope(message).SerializeToString())
        await asyncio.get_running_loop().sock_sendall(self._socket, frame)

    async def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = await asyncio.get_running_loop().sock_recv_into(self._socket, view[at:])
            assert count, f"the node ended the connection of one who reads, at {at} of {size}"
            at += count
        return bytes(data)


async def read_all(readers: list[Asker]) -> None:
    """Each gets the whole list; those who asked for the same get the same bytes."""
    seen: dict[str | None, int] = {}
    expected = topics_hash([full_name(name) for name in NAMES])

    async def read(reader: Asker) -> None:
        frame = await reader.frame()
        checksum = zlib.crc32(frame)
        if reader.pattern not in seen:
            answer = commands.parse(frame[SIZE.size :])
            assert answer.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
            told = answer.getTopicsOfNamespaceResponse
            assert (len(told.topics), told.topics_hash) == (len(NAMES), expected)
            seen[reader.pattern] = checksum
        assert checksum == seen[reader.pattern]

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(read(reader))
    assert set(seen) == set(PATTERNS)


@contextmanager
def askers(count: int) -> Iterator[list[Asker]]:
    found = [Asker(pattern) for pattern in itertools.islice(itertools.cycle(PATTERNS), count)]
    try:
        yield found
    finally:
        for each in found:
            each.close()


def address_of(node: NodeProcess) -> tuple[str, int]:
    where = urlsplit(node.service_url())
    return where.hostname or "", where.port or 0


async def ask_and_read(node: NodeProcess) -> None:
    """Half of the clients, all of which read."""
    address = address_of(node)
    with askers(LOAD.connections // 2) as readers:
        for each in readers:
            await each.ask(address, reads=True)
        await read_all(readers)


async def load(node: NodeProcess) -> None:
    """Those who never read ask first, then the others; it ends when the node has let go of all."""
    address = address_of(node)
    half = LOAD.connections // 2
    with askers(half) as deaf, askers(half) as readers:
        for each in deaf:
            await each.ask(address, reads=False)
        for each in readers:
            await each.ask(address, reads=True)
        await read_all(readers)
        deadline = time.monotonic() + WAIT_S
        while await asyncio.to_thread(in_use, node):  # the deaf are still connected, as they think
            assert time.monotonic() < deadline, "memory of lists was not given back"
            await asyncio.sleep(0.1)


def test_clients_that_never_read_cost_neither_memory_nor_heartbeats_nor_those_who_read(
    node: NodeProcess,
) -> None:
    # What the node keeps of topics and lists that were asked for is there then, and what the
    # allocator keeps of payloads that came and went: the limits are about none of it.
    asyncio.run(ask_and_read(node))
    before = memory_mb(node, "VmRSS")
    lapses = metric(node, "anabranch_session_lapses_total")
    forget_peak(node)
    asyncio.run(load(node))
    peak, after = memory_mb(node, "VmHWM"), memory_mb(node, "VmRSS")
    # A copy of the list for each client would be three times as much.
    assert peak < 1.2 * (before + 2 * LOAD.limit_mb), (before, after)
    assert after < 1.2 * (before + 2 * LOAD.limit_mb), (before, peak)
    assert in_use(node) == 0
    assert metric(node, "anabranch_session_lapses_total") == lapses == 0
    for kind in ("heap", "direct"):
        assert metric(node, f"pulsar_broker_topic_list_{kind}_timeout_total") == 0
        assert metric(node, f"pulsar_broker_topic_list_{kind}_queue_size") == 0
