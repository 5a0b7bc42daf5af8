"""A Kafka broker of a test's own, in a thread, with answers that are ready."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

from support.waiting import WAIT_S


class Leader:
    """A broker that notes what it is asked and answers in turn; then it closes the connection."""

    def __init__(self, *answers: bytes) -> None:
        self.asked: list[bytes] = []
        self._answers = answers
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._door.getsockname()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(WAIT_S)
        self._door.close()

    def _serve(self) -> None:
        self._door.settimeout(WAIT_S)
        stream, _ = self._door.accept()
        with stream, stream.makefile("rb") as questions:
            for answer in self._answers:
                (size,) = struct.unpack(">i", questions.read(4))
                self.asked.append(questions.read(size))
                stream.sendall(answer)
