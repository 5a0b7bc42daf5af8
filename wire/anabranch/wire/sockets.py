"""The socket below a transport, for what asyncio has no call for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket


def shut_down(transport: asyncio.BaseTransport | None) -> None:
    """Tells the other side of the end after the event loop is over."""
    held = transport.get_extra_info("socket") if transport is not None else None
    with contextlib.suppress(OSError):  # it has ended
        if held is not None:
            with socket.socket(fileno=os.dup(held.fileno())) as shared:
                shared.shutdown(socket.SHUT_RDWR)
