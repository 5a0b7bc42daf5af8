"""`SharedReads`: has a transport read into one buffer, which all connections of its thread share.

For a protocol that takes bytes, a transport makes room of 256 KiB at each read, though a request
has some hundred bytes. If large blocks are mapped and unmapped at once, that costs twice as much as
TLS.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

SCRATCH_BYTES: Final = 256 * 1024


class _Scratch(threading.local):
    """The buffer of each thread, that is, of each event loop."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))


_scratch: Final = _Scratch()


class SharedReads(asyncio.BufferedProtocol):
    """The protocol that a transport has instead of one that takes bytes."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol

    def get_buffer(self, _sizehint: int) -> memoryview:
        return _scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(_scratch.view[:nbytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
