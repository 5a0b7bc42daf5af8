"""What SIGTERM and Ctrl-C do to a command that serves."""

from __future__ import annotations

import asyncio
import signal


def asked_to_stop() -> asyncio.Event:
    """Set by the first of these signals from now on; the second one ends the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping)
    return stopping


def _stop(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    stopping.set()
