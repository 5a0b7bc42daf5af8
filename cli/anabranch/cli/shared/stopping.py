"""The effect of SIGTERM and Ctrl-C on a command that goes on until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from anabranch.cli.shared import interrupts

_T = TypeVar("_T")


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


def run_stoppable(main: Callable[[asyncio.Event], Coroutine[Any, Any, _T]]) -> _T:
    """Runs it with the event of `asked_to_stop`."""

    async def heard() -> _T:
        return await main(asked_to_stop())

    return asyncio.run(heard())


async def unless_stopped(what: Awaitable[_T], stopping: asyncio.Event) -> _T | None:
    """Returns the result, or None when the event came first; then it cancels `what`."""
    working = asyncio.ensure_future(what)
    asked = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, asked), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, asked):
            if not task.done():
                task.cancel()
        await asyncio.gather(working, asked, return_exceptions=True)
