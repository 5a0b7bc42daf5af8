"""Many look-ups by one thread: connections side by side, one request in flight on each.

A thread for each connection costs several times as much, in handing over Python's lock, and where
all share a few processors what asks takes away from what is measured.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.devkit.nodes import HOST, NodeProcess

_TIMEOUT_S: Final = 60.0
_READ: Final = 65_536


class _Connection:
    """Asks a node for one topic after another."""

    def __init__(self, node: NodeProcess, topics: Sequence[str]) -> None:
        self._topics = iter(topics)
        self._asked = ""
        self._answer = b""
        self.socket = socket.create_connection((HOST, node.port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> bool:
        """Sends the next request; whether there was one."""
        self._asked, self._answer = next(self._topics, ""), b""
        if self._asked:
            path = f"/lookup/v2/topic/persistent/{self._asked}"
            self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        return self._asked != ""

    def is_answered(self) -> bool:
        """Takes what has come; whether it is all. Raises RuntimeError for a refusal."""
        data = self.socket.recv(_READ)
        if not data:
            raise RuntimeError(f"{self._asked}: the node closed the connection")
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank or len(body) < _length(head):
            return False
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{self._asked}: {self._answer.decode()}")
        return True


def _length(head: bytes) -> int:
    """The length of the body, by the head of an answer."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise RuntimeError(f"an answer without a length: {head.decode()}")


def look_up_all(nodes: Sequence[NodeProcess], topics: Sequence[str], connections: int) -> None:
    """Every topic once, over so many connections to the nodes in turn.

    Raises RuntimeError when a look-up is refused, or when there is no answer for a minute.
    """
    with selectors.DefaultSelector() as waiting:
        for number in range(connections):
            each = _Connection(nodes[number % len(nodes)], topics[number::connections])
            waiting.register(each.socket, selectors.EVENT_READ, each)
        try:
            for each in list(_all(waiting)):
                _go_on(waiting, each)
            while waiting.get_map():
                ready = waiting.select(_TIMEOUT_S)
                if not ready:
                    raise RuntimeError(f"no answer to a look-up within {_TIMEOUT_S:.0f} s")
                for key, _ in ready:
                    if key.data.is_answered():
                        _go_on(waiting, key.data)
        finally:
            for each in list(_all(waiting)):
                each.socket.close()


def _all(waiting: selectors.BaseSelector) -> Iterator[_Connection]:
    return (key.data for key in waiting.get_map().values())


def _go_on(waiting: selectors.BaseSelector, connection: _Connection) -> None:
    if not connection.ask():
        waiting.unregister(connection.socket)
        connection.socket.close()
