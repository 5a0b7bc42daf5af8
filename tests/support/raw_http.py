"""A client of an HTTP port that sends what a test wants, in pieces, or nothing that is HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.waiting import WAIT_S


class RawHttp:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, *pieces: bytes) -> int:
        """The status of the answer to a request that comes in these pieces."""
        for piece in pieces:
            self.send(piece)
            await self.writer.drain()
        return (await self.answer())[0]

    async def answer(self) -> tuple[int, Any]:
        """Status, and the reason of a refusal or the body."""
        async with asyncio.timeout(WAIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            size = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            body = await self.reader.readexactly(size)
        status = int(head.split()[1])
        return status, json.loads(body)["reason"] if status >= 400 else body

    async def ends(self) -> bytes:
        """What still comes until the node closes the connection."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawHttp]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawHttp(reader, writer)
    finally:
        writer.close()
