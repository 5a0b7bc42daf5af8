"""`PlacedReads`: has the event loop read what a connection is sent right to where it belongs.
`SharedReads`: spares what comes by TLS a block of memory at each read.

What is missing of a large command goes to the memory that is reserved for it; all else through a
buffer that the connections of one event loop share, in pieces of a size that the connection says.
So a long list is in memory once, and of one that nobody has asked to be read there is no more than
a piece.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Protocol

SCRATCH_BYTES: Final = 256 * 1024


class Placing(Protocol):
    """A connection that says where what it reads belongs."""

    def room(self) -> memoryview:
        """Where the next bytes go; not empty."""

    def came(self, count: int) -> None:
        """So many are there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class _Scratch(threading.local):
    """One for each thread, that is, for each event loop."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))


_scratch: Final = _Scratch()


def scratch() -> memoryview:
    """What a connection of this thread may read into; whoever reads next overwrites it."""
    return _scratch.view


class _InPlaceOf(asyncio.BufferedProtocol):
    """Stands before a protocol, which is told all but what is read."""

    def __init__(self, behind: Placing | asyncio.Protocol) -> None:
        self._behind = behind

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._behind.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._behind.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received()

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()


class PlacedReads(_InPlaceOf):
    """The protocol that a transport has instead of the connection itself."""

    def __init__(self, connection: Placing) -> None:
        super().__init__(connection)
        self._connection = connection

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._connection.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.came(nbytes)


class SharedReads(_InPlaceOf):
    """The protocol that a transport with TLS has instead of one that takes bytes.

    For one of those it makes room for 256 KiB at each read, though a request has some hundred
    bytes: where large blocks are mapped, and unmapped at once, that costs twice what TLS does.
    """

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol

    def get_buffer(self, _sizehint: int) -> memoryview:
        return _scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(_scratch.view[:nbytes]))
