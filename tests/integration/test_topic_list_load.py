"""Many clients ask a node, or a proxy before it, for long lists, and two of them never read.

The memory for lists holds one in a proxy, and five in a node. Each client has a list by itself,
so that those who do not read make others wait. `TOPIC_LIST_LOAD=full` asks for 100,000 topics each;
`--log-level=info -rP` has pytest say how much memory it took.
"""

from __future__ import annotations

import asyncio
import logging
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
from anabranch.core.topic_lists.topic_list import topics_hash
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import NodeProcess, await_ready, stop_all
from anabranch.devkit.ports import free_port
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.framing import encode_frame
from support.many_topics import start_with_topics
from support.processes import EVENLY, HOST
from support.proxy_process import proxy_process

pytestmark = [pytest.mark.long, pytest.mark.lasting]

HOME: Final = "public/default"
SMALL_RECEIVE_BUFFER: Final = 4_096
CHUNK_BYTES: Final = 64 << 10
WAIT_S: Final = 300.0
SETTLED_S: Final = 3.0  # without growth
SIZE: Final = struct.Struct(">I")
HEAD: Final = struct.Struct(">II")
# Lists of several patterns are answers of their own: memory of one is not memory of another.
PATTERNS: Final = (None, f"{HOME}/orders.*")
KINDS: Final = ("heap", "direct")
NO_TOPIC: Final = f"{HOME}/no-such-topic"


_log = logging.getLogger(__name__)


class Load(NamedTuple):
    """How many ask for how much, and how much memory there is for it."""

    connections: int
    topics: int
    name_length: int
    limit_mb: int  # of each kind of memory


class Crowd(NamedTuple):
    """Who asks."""

    deaf: int  # who never read, and ask first
    readers: int


# A list is longer than what the kernel takes for a client that does not read.
LOAD: Final = (
    Load(1_000, 100_000, 100, 15)
    if os.environ.get("TOPIC_LIST_LOAD") == "full"
    else Load(200, 20_000, 240, 7)
)
# The two hold the memory for ten seconds each, one after the other.
CROWD: Final = Crowd(2, 20)
MEMORY_IN_FLIGHT: Final = 32 << 20
OF_A_NODE: Final = 4 * LOAD.limit_mb  # so that it has room for what a proxy asks for at once


def limits(megabytes: int) -> tuple[str, str]:
    """The memory of each kind."""
    return (
        f"maxTopicListInFlightHeapMemSizeMB={megabytes}",
        f"maxTopicListInFlightDirectMemSizeMB={megabytes}",
    )


OF_OTHER_MEMORY: Final = (
    # Little more than lists may take: those do not count.
    f"brokerMaxMemoryInFlight={MEMORY_IN_FLIGHT}",
)
NAMES: Final = [
    f"{HOME}/{'orders-':x<{LOAD.name_length - len(HOME) - 8}}{number:07d}"
    for number in range(LOAD.topics)
]


class Server(NamedTuple):
    """What is put under load."""

    pid: int
    web_url: str
    service_url: str
    prefix: str  # of its metrics of lists

    @property
    def address(self) -> tuple[str, int]:
        where = urlsplit(self.service_url)
        return where.hostname or "", where.port or 0

    def metric(self, name: str) -> float:
        """The sum over its label sets; fails if there is none."""
        found = [
            float(line.rpartition(" ")[2])
            for line in get(self.web_url, "/metrics").splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
        ]
        assert found, f"no metric {name}"
        return sum(found)

    def in_use(self) -> float:
        """Bytes that the limiter has given and not got back."""
        return sum(self.metric(f"{self.prefix}{kind}_memory_used_bytes") for kind in KINDS)

    def memory_mb(self, which: str = "VmRSS") -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{which}:"))

    def settled_mb(self) -> float:
        """Its memory, once what it does by itself has ended: it is just started."""
        deadline = time.monotonic() + WAIT_S
        most, since = self.memory_mb(), time.monotonic()
        while time.monotonic() < since + SETTLED_S and time.monotonic() < deadline:
            time.sleep(0.1)
            found = self.memory_mb()
            if found > most + 1:
                most, since = found, time.monotonic()
        return self.memory_mb()

    def forget_peak(self) -> None:
        """From now on VmHWM is the peak since now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


def get(url: str, path: str) -> str:
    with urllib.request.urlopen(f"{url}{path}", timeout=WAIT_S) as answer:
        return bytes(answer.read()).decode()


@pytest.fixture(scope="module")
def node(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node whose view has all topics, and that owns none.

    Whoever owns so many tells metrics of each, and looks at each now and then: that would be taken
    for the lists'.
    """
    folder = tmp_path_factory.mktemp("topic-list-load")  # another name each time
    prefix = f"{folder.name}."
    memory = (*limits(OF_A_NODE), *OF_OTHER_MEMORY)
    given = (f"topicPrefix={prefix}", *memory, EVENLY, "loadBalancerSheddingEnabled=false")
    owner, onlooker = (
        NodeProcess(name, free_port(HOST), kafka.bootstrap_servers, folder, *given)
        for name in ("owner", "onlooker")
    )
    try:
        start_with_topics(owner, KafkaConnection(kafka.bootstrap_servers), prefix, NAMES)
        onlooker.start()
        await_ready([onlooker])
        yield onlooker
    finally:
        stop_all([owner, onlooker])


class Asker:
    """One connection that asks for one list."""

    def __init__(self, pattern: str | None) -> None:
        self.pattern = pattern
        self._socket = socket.socket()
        self._socket.setblocking(False)

    async def ask(self, address: tuple[str, int], *, reads: bool = True) -> None:
        """Connects, shakes hands, and sends the request."""
        if not reads:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BUFFER)
        await asyncio.get_running_loop().sock_connect(self._socket, address)
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self._send(pb.CommandConnect(client_version="load", protocol_version=21))
        assert (await self.answer()).type == pb.BaseCommand.CONNECTED
        asked = pb.CommandGetTopicsOfNamespace(request_id=1, namespace=HOME)
        if self.pattern is not None:
            asked.topics_pattern = self.pattern
        if not reads:
            self._writer.transport.pause_reading()  # type: ignore[attr-defined]
        self._send(asked)

    async def answer(self) -> pb.BaseCommand:
        """The next command."""
        size, command_size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        assert size == SIZE.size + command_size
        return commands.parse(await self._reader.readexactly(command_size))

    async def checksum(self) -> tuple[int, int]:
        """Size and checksum of the next frame, of which nothing is kept."""
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        found, left = 0, size
        while left:
            chunk = await self._reader.read(min(left, CHUNK_BYTES))
            assert chunk, f"the connection of one who reads was ended, {left} before {size}"
            found, left = zlib.crc32(chunk, found), left - len(chunk)
        return size, found

    def close(self) -> None:
        self._writer.transport.abort()

    def _send(self, message: pb.CommandConnect | pb.CommandGetTopicsOfNamespace) -> None:
        self._writer.write(encode_frame(commands.envelope(message).SerializeToString()))


async def check(asker: Asker) -> None:
    """The whole list comes."""
    answer = await asker.answer()
    assert answer.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
    told = answer.getTopicsOfNamespaceResponse
    expected = topics_hash([full_name(name) for name in NAMES])
    assert (len(told.topics), told.topics_hash) == (len(NAMES), expected)


async def read_all(readers: list[Asker]) -> None:
    """Each gets the whole list: the first of each pattern looks, the others get the same bytes."""
    first = {reader.pattern: reader for reader in reversed(readers)}
    others = [reader for reader in readers if reader is not first[reader.pattern]]
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        for reader in first.values():
            tasks.create_task(check(reader))
        sums = {pattern: set[tuple[int, int]]() for pattern in PATTERNS}

        async def read(reader: Asker) -> None:
            sums[reader.pattern].add(await reader.checksum())

        for reader in others:
            tasks.create_task(read(reader))
    assert all(len(found) == 1 for found in sums.values())


@contextmanager
def askers(*patterns: str | None) -> Iterator[list[Asker]]:
    found = [Asker(pattern) for pattern in patterns]
    try:
        yield found
    finally:
        for each in found:
            each.close()


async def become_known(server: Server) -> None:
    """As many clients as there will be ask for little, and one of each pattern for a list."""
    with askers(*[NO_TOPIC] * LOAD.connections) as many, askers(*PATTERNS, *PATTERNS) as readers:
        for each in many:
            await each.ask(server.address)
        for each in many:
            assert not (await each.answer()).getTopicsOfNamespaceResponse.topics
        for reader in readers:
            await reader.ask(server.address)
        await read_all(readers)


async def load(server: Server, crowd: Crowd) -> None:
    """Those who never read ask first, then the others; it ends when all memory has come back."""
    with (
        askers(*[PATTERNS[0]] * crowd.deaf) as deaf,
        askers(*[PATTERNS[number % 2] for number in range(crowd.readers)]) as readers,
    ):
        for each in deaf:
            await each.ask(server.address, reads=False)
        for each in readers:
            await each.ask(server.address)
        await read_all(readers)
        deadline = time.monotonic() + WAIT_S
        while await asyncio.to_thread(server.in_use):  # the deaf are still connected, as they think
            assert time.monotonic() < deadline, "memory of lists was not given back"
            await asyncio.sleep(0.1)


def withstands(server: Server, limit_mb: int) -> None:
    """It keeps within its memory, refuses nobody who reads, and gives the memory back."""
    # What it keeps of topics and connections is there then; the limits are about none of it.
    asyncio.run(become_known(server))
    before = server.settled_mb()
    server.forget_peak()
    asyncio.run(load(server, CROWD))
    peak, after = server.memory_mb("VmHWM"), server.memory_mb()
    _log.info("%s: %.0f MB before, %.0f at most, %.0f after", server.prefix, before, peak, after)
    # The list for each client that does not read would be many times as much. An allocator keeps up
    # to half more than it gives out, where the machine is busy with others.
    assert peak < 1.6 * (before + 2 * limit_mb), (before, after)
    assert after < 1.2 * before, (before, peak)
    for kind in KINDS:
        assert server.metric(f"{server.prefix}{kind}_timeout_total") == 0
        assert server.metric(f"{server.prefix}{kind}_queue_size") == 0


def test_clients_that_never_read_cost_a_node_neither_memory_nor_heartbeats(
    node: NodeProcess,
) -> None:
    served = Server(node.pid or 0, node.url, node.service_url(), "pulsar_broker_topic_list_")
    lapses = served.metric("anabranch_session_lapses_total")
    withstands(served, OF_A_NODE)
    assert served.metric("anabranch_session_lapses_total") == lapses == 0


def test_clients_that_never_read_cost_a_proxy_no_memory(node: NodeProcess, tmp_path: Path) -> None:
    memory = limits(LOAD.limit_mb)
    with proxy_process("proxy", [node.url.removeprefix("http://")], tmp_path, memory) as proxy:
        withstands(
            Server(proxy.process.pid, proxy.web_url, proxy.service_url, "pulsar_proxy_topic_list_"),
            LOAD.limit_mb,
        )
    heard = Server(node.pid or 0, node.url, node.service_url(), "pulsar_broker_topic_list_")
    assert heard.metric("anabranch_session_lapses_total") == 0
    assert heard.in_use() == 0
