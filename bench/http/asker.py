"""A connection to an HTTP port, with TLS or without, and who its requests say they are from."""

from __future__ import annotations

import re
import socket
import ssl
import time
from typing import Final

import jwt

from anabranch.devkit.nodes import HOST

_TIMEOUT_S: Final = 30.0
_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_TOKEN_S: Final = 86_400


class Asker:
    """Its requests show this in their header Authorization; "": nothing."""

    def __init__(self, port: int, shown: str = "", context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection((HOST, port), _TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname=HOST) if context else plain
        self._shown = f"Authorization: {shown}\r\n" if shown else ""

    def must(self, method: str, path: str, body: bytes = b"") -> None:
        """Returns with the answer. Raises RuntimeError for a refusal."""
        status, answer = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path} was refused: {status} {answer!r:.300}")

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The answer's status, and all of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{self._shown}"
        if body or method not in ("GET", "DELETE"):
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + body)
        answer = b""
        while True:
            piece = self._socket.recv(65_536)
            answer += piece
            told, end, rest = answer.partition(b"\r\n\r\n")
            if not piece or (end and len(rest) >= _length_of(told)):
                break
        if not answer.startswith(b"HTTP/1.1 "):
            raise RuntimeError(f"{method} {path} was not answered: {answer!r:.300}")
        return int(answer[9:12]), answer

    def close(self) -> None:
        self._socket.close()


def bearer(secret: bytes, role: str) -> str:
    """What is shown by who has a token of the role, one that lasts for a day."""
    claims = {"sub": role, "exp": int(time.time()) + _TOKEN_S}
    return f"Bearer {jwt.encode(claims, secret, 'HS256')}"


def _length_of(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found[1]) if found is not None else 0
