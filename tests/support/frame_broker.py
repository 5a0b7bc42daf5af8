"""A Kafka broker of a test's own, on its event loop, that treats each question as told."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from anabranch.wire.kafka.protocol import Address

HOST = "127.0.0.1"
TAGS = b"\x01\x05\x02ab"  # one, number 5, of two bytes: of a later Kafka


class Asked(NamedTuple):
    """A question as it came; `body` is all behind the client's name."""

    api: int
    version: int
    number: int
    client: str
    body: bytes


class Caller:
    """A connection of a client, as the broker has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def asked(self) -> Asked:
        """Its next question. Raises IncompleteReadError when there is none any more."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        data = await self._reader.readexactly(size)
        api, version, number, length = struct.unpack_from(">hhih", data)
        client = data[10 : 10 + length].decode()
        return Asked(api, version, number, client, data[10 + length :])

    def answer(self, asked: Asked, body: bytes = b"", tags: bytes = TAGS) -> None:
        """`tags`: of the answer's head, which only "flexible" ones have."""
        self.write(frame(asked.number, tags + body))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def hang_up(self) -> None:
        """Ends it, once what was written is out."""
        self._writer.close()

    def reset(self) -> None:
        self._writer.transport.abort()


def frame(number: int, rest: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(rest), number) + rest


Serve = Callable[[Caller], Awaitable[None]]


class FrameBroker:
    """`serve` has each caller in turn; when it returns, the connection stays as it is."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.callers: list[Caller] = []
        self.address: Address = (HOST, 0)

    async def called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = Caller(reader, writer)
        self.callers.append(caller)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self.serve(caller)


@asynccontextmanager
async def frame_broker(
    serve: Serve, context: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[FrameBroker]:
    broker = FrameBroker(serve)
    server = await asyncio.start_server(broker.called, HOST, port, ssl=context)
    broker.address = server.sockets[0].getsockname()[:2]
    try:
        yield broker
    finally:
        server.close()
        for caller in broker.callers:
            caller.reset()
            with suppress(OSError):
                await caller._writer.wait_closed()
        await server.wait_closed()


async def echo(caller: Caller) -> None:
    """Answers each question with its own body."""
    while True:
        asked = await caller.asked()
        caller.answer(asked, asked.body[1:])  # behind its tags
