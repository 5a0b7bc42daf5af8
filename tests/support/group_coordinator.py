"""A Kafka broker in this process that knows who coordinates groups, and what they have committed.

It speaks to the byte, and with the tags that a later Kafka adds.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Final

from anabranch.wire.kafka.protocol import Address, ResponseReader, text
from anabranch.wire.varint import varint

FIND: Final = 10
FETCH: Final = 9
NOT_COORDINATOR: Final = 16
_TAGS: Final = b"\x01\x05\x02ab"  # one, number 5, of two bytes


class GroupCoordinator:
    """A broker that says of each group who coordinates it, and what it has committed."""

    def __init__(self, *committed: dict[tuple[str, int], int]) -> None:
        self.groups = {f"g{number}": offsets for number, offsets in enumerate(committed)}
        self.questions: list[tuple[int, int]] = []
        self.elsewhere: set[str] = set()  # of these it says that another one coordinates them
        self.named: Address | None = None
        self.is_mute = False  # it ends the connection instead of telling offsets
        self.errors: dict[str, int] = {}
        self.connections = 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._door.getsockname()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hang_up(self) -> None:
        while self._open:
            with suppress(OSError):  # it was closed here or there
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):  # it is closed already
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._door.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(stream)
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        with suppress(OSError), stream, stream.makefile("rb") as questions:
            while len(head := questions.read(4)) == 4:
                asked = ResponseReader(questions.read(int.from_bytes(head, "big")))
                question, version, correlation, length = asked.unpack(">hhih")
                assert asked.take(length) == b"anabranch"
                asked.tags()
                self.questions.append((question, version))
                if question == FETCH and self.is_mute:
                    return
                body = self._found(asked) if question == FIND else self._fetched(asked)
                answer = struct.pack(">i", correlation) + _TAGS + body + _TAGS
                stream.sendall(struct.pack(">i", len(answer)) + answer)

    def _found(self, asked: ResponseReader) -> bytes:
        assert asked.take(1) == b"\0"  # it is groups that are asked for
        names = [asked.text() for _ in range(asked.count())]
        asked.tags()
        told = struct.pack(">i", 0) + varint(len(names) + 1)
        for name in names:
            host, port = self.named or self.address
            error = NOT_COORDINATOR if name in self.elsewhere else 0
            told += text(name) + struct.pack(">i", 1) + text(host)
            told += struct.pack(">ih", port, error) + varint(0) + _TAGS
        return told

    def _fetched(self, asked: ResponseReader) -> bytes:
        told, count = b"", asked.count()
        for _ in range(count):
            group = asked.text()
            told += text(group) + self._offsets(asked, self.groups.get(group, {}))
            told += struct.pack(">h", self.errors.get(group, 0)) + _TAGS
        assert asked.take(1) == b"\x01"  # only what no transaction may change
        asked.tags()
        return struct.pack(">i", 0) + varint(count + 1) + told

    def _offsets(self, asked: ResponseReader, offsets: dict[tuple[str, int], int]) -> bytes:
        topics = asked.count()
        told = varint(topics + 1)
        for _ in range(topics):
            topic, numbers = asked.text(), asked.count()
            told += text(topic) + varint(numbers + 1)
            for _ in range(numbers):
                (number,) = asked.unpack(">i")
                at = offsets.get((topic, number), -1)
                told += struct.pack(">iqi", number, at, 3) + text("note\0" if at >= 0 else "")
                told += struct.pack(">h", 0) + _TAGS
            asked.tags()
            told += _TAGS
        asked.tags()
        return told
