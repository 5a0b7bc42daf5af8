"""Each fault of network and disk does to real packets and files what it says."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from faults.delay import QUEUE
from faults.leftovers import labels
from faults.network import HEAL, commands, held_back
from faults.schedule import Kind
from faults.tools import Disks, run, tools_of

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("engine")]

# What waits in its buffer is never too much, and who sends may take its time to begin.
_LISTEN = """
import socket
found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
found.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
found.bind(("", 7000)); found.settimeout(120.0)
count = 0
print("listening", flush=True)
while (got := found.recv(2000)) != b"end": count += got[:1] == b"x"
found.settimeout(1.0)  # what was held back on its way
try:
    while True: count += found.recv(2000)[:1] == b"x"
except TimeoutError: pass
print(count)
"""
_END = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"end", ("127.0.0.1", 7000))
"""
_SEND = """
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({count}):
    try: out.sendto(b"x" * 200, ("{address}", 7000))
    except PermissionError: pass  # its own rules dropped it
    time.sleep(0.0005)
"""


@dataclass(frozen=True)
class Pair:
    """Two containers of one network; the first one is the target."""

    network: Any
    target: Any
    peer: Any
    addresses: tuple[str, str]

    def arrived(self, *, at_target: bool, count: int = 500) -> int:
        """How many of `count` datagrams of one come to the other."""
        here, there = (self.target, self.peer) if at_target else (self.peer, self.target)
        _, said = here.exec_run(["python3", "-c", _LISTEN], stream=True)
        assert next(said).strip() == b"listening"
        to = self.addresses[0 if at_target else 1]
        run(there, f"python3 -c '{_SEND.format(count=count, address=to)}'")
        run(here, f"python3 -c '{_END}'")
        return int(b"".join(said).split()[-1])


@pytest.fixture
def pair() -> Iterator[Pair]:
    client = docker.from_env()
    with contextlib.ExitStack() as ends:
        ends.enter_context(contextlib.closing(client))
        network = client.networks.create(f"anabranch-{uuid.uuid4().hex[:8]}", labels=labels())
        ends.callback(network.remove)
        found = [
            ends.enter_context(tools_of(network=network.name, cap_add=["NET_ADMIN"]))
            for _ in range(2)
        ]
        for each in found:
            each.reload()
        first, second = (
            each.attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"] for each in found
        )
        yield Pair(network, found[0], found[1], (first, second))


@contextlib.contextmanager
def suffering(pair: Pair, kind: Kind, strength: float = 1.0) -> Iterator[None]:
    run(pair.target, "; ".join(commands(kind, strength, pair.addresses[1:])))
    yield
    run(pair.target, HEAL)


def test_what_is_cut_passes_neither_way_and_passes_again_when_healed(pair: Pair) -> None:
    with suffering(pair, Kind.CUT):
        assert pair.arrived(at_target=True) == 0
        assert pair.arrived(at_target=False) == 0
    assert pair.arrived(at_target=True) == 500
    assert pair.arrived(at_target=False) == 500


def test_one_way_only_what_is_sent_arrives(pair: Pair) -> None:
    with suffering(pair, Kind.ONE_WAY):
        assert pair.arrived(at_target=True) == 0
        assert pair.arrived(at_target=False) == 500


def test_a_share_of_what_is_sent_is_lost(pair: Pair) -> None:
    with suffering(pair, Kind.LOSSY, 0.5):
        assert 0 < pair.arrived(at_target=True) < 500
        assert 0 < pair.arrived(at_target=False) < 500


def test_other_peers_notice_nothing(pair: Pair) -> None:
    run(pair.target, "; ".join(commands(Kind.CUT, 1, ("192.0.2.1",))))
    assert pair.arrived(at_target=True) == 500


def test_what_is_held_back_goes_through_a_queue_and_arrives(pair: Pair) -> None:
    held_back(pair.target, 300)
    with suffering(pair, Kind.JITTERY):
        assert pair.arrived(at_target=True) == 500
        told = run(pair.target, "cat /proc/net/netfilter/nfnetlink_queue")
    found = next(line.split() for line in told.splitlines() if line.split()[0] == str(QUEUE))
    assert int(found[7]) >= 500  # what went through the queue
    assert (int(found[5]), int(found[6])) == (0, 0)  # and was lost there


def test_a_full_disk_has_no_room_until_it_is_freed(tmp_path: Path) -> None:
    disks = Disks(f"anabranch-{tmp_path.parent.name}".replace("_", "-"), {"node-1": 8})
    with contextlib.ExitStack() as ends:
        ends.callback(disks.remove)
        disks.create()
        tools = ends.enter_context(tools_of({disks.volume("node-1"): "/data"}))
        run(tools, "dd if=/dev/zero of=/data/found bs=1M count=2")
        disks.fill("node-1")
        with pytest.raises(RuntimeError, match="No space left on device"):
            run(tools, "dd if=/dev/zero of=/data/more bs=1M count=2")
        disks.free("node-1")
        run(tools, "dd if=/dev/zero of=/data/more bs=1M count=2")
