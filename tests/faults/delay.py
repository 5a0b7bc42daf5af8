"""Holds packets back: `delay.py MS` in a container's network, for what iptables puts in queue 1.

Each packet is held for up to MS milliseconds, at random, and none overtakes another. When this
program has ended, packets pass (`--queue-bypass`). It speaks to nfnetlink_queue itself, which is
three messages: Debian has no binding for Python.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

QUEUE: Final = 1
_NETLINK_NETFILTER: Final = 12
_PACKET, _VERDICT, _CONFIG = (3 << 8 | message for message in (0, 1, 2))
_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_NFGEN: Final = struct.Struct(">BBH")  # family, version, queue
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_QUEUE_MAX: Final = 100_000
_COPY_META: Final = 1
_ACCEPT: Final = 1


def _message(kind: int, number: int, body: bytes) -> bytes:
    """A message with one attribute."""
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(body), number) + body
    attribute += bytes(-len(attribute) % 4)
    whole = _NFGEN.pack(0, 0, QUEUE) + attribute
    return _HEADER.pack(_HEADER.size + len(whole), kind, 1, 0, 0) + whole  # 1: a request


def _packets(data: bytes) -> Iterator[bytes]:
    """The ids of the packets in what the kernel told."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        inside = at + _HEADER.size + _NFGEN.size
        while kind == _PACKET and inside + _ATTRIBUTE.size <= at + length:
            size, number = _ATTRIBUTE.unpack_from(data, inside)
            if number == 1:  # NFQA_PACKET_HDR begins with the id
                yield data[inside + 4 : inside + 8]
            inside += size + -size % 4
        at += length + -length % 4


def main(longest_ms: float) -> None:
    queue = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    queue.setsockopt(270, 5, 1)  # NETLINK_NO_ENOBUFS: what is too much is lost, and no error
    queue.bind((0, 0))
    queue.send(_message(_CONFIG, 1, struct.pack(">BBH", 1, 0, 0)))  # bind to the queue
    queue.send(_message(_CONFIG, 2, struct.pack(">IB", 0, _COPY_META)))
    queue.send(_message(_CONFIG, 3, struct.pack(">I", _QUEUE_MAX)))
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    held: deque[tuple[float, bytes]] = deque()
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([queue], [], [], wait_s)[0]:
            release = time.monotonic() + random.uniform(0, longest_ms / 1_000)
            if held:
                release = max(release, held[-1][0])
            held.extend((release, packet) for packet in _packets(queue.recv(1 << 17)))
        while held and held[0][0] <= time.monotonic():
            queue.send(_message(_VERDICT, 2, struct.pack(">I", _ACCEPT) + held.popleft()[1]))


if __name__ == "__main__":
    main(float(sys.argv[1]))
