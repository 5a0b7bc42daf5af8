"""A server and clients of the binary protocol in a test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.connection import DEFAULT_LIMITS, ConnectionLimits
from anabranch.wire.errors import RefusedError
from anabranch.wire.framing import FRAME_BYTES_MAX, FrameDecoder, encode_frame
from anabranch.wire.server.server import OpenSession, Peer, Routes, WireServer
from support import steady
from support.there import there
from support.waiting import WAIT_S as WAIT_S

HOST = "127.0.0.1"


def no_routes(_peer: Peer) -> Routes:
    return {}


def lookups(peer: Peer) -> Routes:
    """Answers each look-up with its topic."""

    async def lookup(command: BaseCommand) -> None:
        asked = command.lookupTopic
        peer.send(
            pb.CommandLookupTopicResponse(
                request_id=asked.request_id,
                brokerServiceUrl=asked.topic,
                response=pb.CommandLookupTopicResponse.Connect,
            )
        )

    return {BaseCommand.LOOKUP: lookup}


async def serve(
    open_session: OpenSession, port: int = 0, limits: ConnectionLimits = DEFAULT_LIMITS
) -> WireServer:
    """Returns a server that accepts clients on a port of this machine."""
    server = WireServer(open_session, "anabranch", limits)
    await server.start(HOST, port)
    return server


@asynccontextmanager
async def serving(
    open_session: OpenSession = no_routes, limits: ConnectionLimits | None = None
) -> AsyncIterator[WireServer]:
    server = await serve(open_session, limits=limits or ConnectionLimits())
    try:
        yield server
    finally:
        await server.stop()


def connected(
    server: WireServer, on_push: Callable[[BaseCommand], None] | None = None
) -> AbstractAsyncContextManager[ClientConnection]:
    return connected_at(server.port, on_push or (lambda _command: None))


@asynccontextmanager
async def connected_at(
    port: int, on_push: Callable[[BaseCommand], None], **how: Any
) -> AsyncIterator[ClientConnection]:
    client = await connect(HOST, port, on_push=on_push, timeout_s=WAIT_S, **how)
    try:
        yield client
    finally:
        client.abort("the test is over")
        await asyncio.wait([client.closed])


class Raw:
    """A client that sends what a test wants it to."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._reader = reader
        self.writer = writer
        self._decoder = FrameDecoder(frame_bytes_max)

    async def answer(self) -> BaseCommand | None:
        """The next command; None at the end."""
        async with asyncio.timeout(WAIT_S):
            while True:
                data = self._decoder.next_command()
                if data is not None:
                    return commands.parse(data)
                chunk = await self._reader.read(65_536)
                if not chunk:
                    return None
                self._decoder.feed(chunk)

    async def told(self) -> BaseCommand:
        """The next command, which comes before the end."""
        return there(await self.answer())

    async def welcomed(self) -> None:
        """Whatever it has shown, it is let in."""
        command = await self.told()
        assert command.type == BaseCommand.CONNECTED, command

    def send(self, command: BaseCommand | bytes) -> None:
        data = command if isinstance(command, bytes) else command.SerializePartialToString()
        self.writer.write(encode_frame(data))

    async def handshake(self) -> None:
        self.send(commands.envelope(pb.CommandConnect(client_version="raw", protocol_version=15)))
        await self.welcomed()


@asynccontextmanager
async def raw(port: int, frame_bytes_max: int = FRAME_BYTES_MAX) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield Raw(reader, writer, frame_bytes_max)
    finally:
        await hang_up(writer)


def error_of(command: BaseCommand) -> int:
    """What it is refused with; -1 where it is not."""
    payload: Any = commands.payload_of(command)
    may_refuse = payload is not None and "error" in payload.DESCRIPTOR.fields_by_name
    return int(payload.error) if may_refuse and payload.HasField("error") else -1


async def is_refused(asked: Awaitable[object], code: int, said: str | None = None) -> None:
    """Fails unless what is asked is refused with this code and, somewhere, these words."""
    with pytest.raises(RefusedError, match=said) as refused:
        await asked
    assert refused.value.code == code


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Ends a connection now: neither what is unsent nor the other side's goodbye is waited for.

    A loop that ends before would leave the socket to the collector, in the midst of another test.
    """
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


# The event loops of a test: nodes run on uvloop, clients on whichever their program has.
on_asyncio = pytest.mark.loops.with_args(steady.run)
on_uvloop = pytest.mark.loops.with_args(uvloop.run)
on_both_loops = pytest.mark.loops.with_args(steady.run, uvloop.run)
