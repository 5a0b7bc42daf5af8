"""The effect of SIGTERM and Ctrl-C on a command that serves."""

from __future__ import annotations

import asyncio
import signal

from anabranch.cli.shared import interrupts


def asked_to_stop() -> asyncio.Event:
    """Set by the first of these signals from now on; the second one ends the process at once.

    A Ctrl-C leaves some seconds only (`interrupts`).
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, number, stopping)
    return stopping


def _stop(number: signal.Signals, stopping: asyncio.Event) -> None:
    if number == signal.SIGINT:
        interrupts.note()
    if stopping.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    stopping.set()
