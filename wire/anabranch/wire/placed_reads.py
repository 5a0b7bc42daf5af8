"""`PlacedReads`: has the event loop read a connection's bytes right into their final place.
`SharedReads`: saves a block of memory at each read of TLS.

The missing part of a large command goes to the memory that is reserved for it. All else goes
through a buffer that the connections of one event loop share, in pieces of a size that the
connection chooses. So a long list is in memory once, and only a piece of an unread list is.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Protocol

SCRATCH_BYTES: Final = 256 * 1024


class Placing(Protocol):
    """A connection that tells the place of its next bytes."""

    def room(self) -> memoryview:
        """Returns the place for the next bytes. It is not empty."""

    def came(self, count: int) -> None:
        """Notes that so many bytes are there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class _Scratch(threading.local):
    """The buffer of each thread, that is, of each event loop."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))


_scratch: Final = _Scratch()


def scratch() -> memoryview:
    """Returns a buffer for the reads of a connection of this thread.
    The next read overwrites it.
    """
    return _scratch.view


class _InPlaceOf(asyncio.BufferedProtocol):
    """Stands before a protocol, and passes it all calls but the reads."""

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

    For one of those the transport makes room of 256 KiB at each read, though a request has some
    hundred bytes. If large blocks are mapped and unmapped at once, that costs twice as much as TLS.
    """

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol

    def get_buffer(self, _sizehint: int) -> memoryview:
        return _scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(_scratch.view[:nbytes]))
