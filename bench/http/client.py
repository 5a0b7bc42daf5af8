"""A client of the nodes that costs next to nothing: one kept connection, one request in flight."""

from __future__ import annotations

import bisect
import json
import socket
import zlib
from collections.abc import Sequence
from typing import Any

from anabranch.devkit.nodes import NodeProcess

_TIMEOUT_S = 60.0


class Client:
    """Speaks HTTP/1.1 to one node. Not thread-safe."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self._address = ("127.0.0.1", node.port)
        self._socket: socket.socket | None = None

    def get(self, path: str) -> tuple[int, Any]:
        return self._ask("GET", path, b"")

    def put(self, path: str, body: object = None) -> None:
        """Raises RuntimeError unless the answer is a success."""
        self._must("PUT", path, b"" if body is None else json.dumps(body).encode())

    def post(self, path: str) -> None:
        """Raises RuntimeError unless the answer is a success."""
        self._must("POST", path, b"")

    def delete(self, path: str) -> None:
        """Raises RuntimeError unless the answer is a success."""
        self._must("DELETE", path, b"")

    def _must(self, method: str, path: str, body: bytes) -> None:
        status, answer = self._ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")

    def lookup(self, topic: str, domain: str = "persistent") -> str:
        """The broker id that a topic (`tenant/namespace/local`) is served by.

        Raises RuntimeError.
        """
        status, answer = self.get(f"/lookup/v2/topic/{domain}/{topic}")
        if status != 200:
            raise RuntimeError(f"{topic}: {status} {answer}")
        return str(answer["httpUrl"]).removeprefix("http://")

    def owners(self, namespace: str) -> dict[str, str]:
        """Owner by range; empty for a bundle that nobody owns."""
        status, answer = self.get(f"/admin/v2/namespaces/{namespace}/bundles/ownership")
        if status != 200:
            raise RuntimeError(f"{namespace}: {status} {answer}")
        return {
            one["bundle"]: one["broker"] if one["state"] == "OWNED" else ""
            for one in answer["bundles"]
        }

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
        if body:
            head += "Content-Type: application/json\r\n"
        request = head.encode() + b"\r\n" + body
        kept = self._socket is not None
        try:
            return self._once(request)
        except ConnectionError:
            if not kept:
                raise
            return self._once(request)  # a server ends connections that nobody used for a while

    def _once(self, request: bytes) -> tuple[int, Any]:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, _TIMEOUT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(request)
            return self._answer(self._socket)
        except OSError:
            self.close()
            raise

    def _answer(self, connection: socket.socket) -> tuple[int, Any]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        size = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        parts = [body]
        missing = size - len(body)
        while missing > 0:
            parts.append(self._more(connection))
            missing -= len(parts[-1])
        whole = b"".join(parts)
        return int(head.split(b" ", 2)[1]), json.loads(whole) if whole else None

    @staticmethod
    def _more(connection: socket.socket) -> bytes:
        data = connection.recv(262_144)
        if not data:
            raise ConnectionError("the node closed the connection")
        return data


def topic_per_bundle(namespace: str, ranges: Sequence[str]) -> dict[str, str]:
    """For every range, a topic (`tenant/namespace/local`) whose name falls into it."""
    edges = sorted((int(part[2:10], 16), part) for part in ranges)
    lowers = [low for low, _ in edges]
    found: dict[str, str] = {}
    number = 0
    while len(found) < len(edges):
        topic = f"{namespace}/topic-{number}"
        position = zlib.crc32(f"persistent://{topic}".encode())
        found.setdefault(edges[bisect.bisect_right(lowers, position) - 1][1], topic)
        number += 1
    return found
