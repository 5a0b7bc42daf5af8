"""An event loop on which no time passes while the machine stands still, or has no turn for us.

What a test leaves to time, it leaves to this: a lease that lasts a second lasts as long as a second
of it, however long the process was stopped meanwhile. What waits in threads or other processes, or
on another kind of loop, is not bound to it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, Final

# Of what lies between two waits, and of a wait for nothing, that much counts.
_STEP_S: Final = 0.02


class _SteadySelector(selectors.DefaultSelector):
    """Lets pass, in each wait, what was asked for at most."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = (time.monotonic(), time.monotonic())  # here, and when that was

    def now(self) -> float:
        here, then = self._passed  # in one piece: other threads ask, too
        return here + min(time.monotonic() - then, _STEP_S)

    def select(self, timeout: float | None = None) -> Any:
        here, began = self.now(), time.monotonic()
        self._passed = here, began
        found = super().select(timeout)
        ended = time.monotonic()
        self._passed = here + min(ended - began, max(timeout or 0.0, _STEP_S)), ended
        return found


class SteadyLoop(asyncio.SelectorEventLoop):
    """Its `time` is steady, and with it all that is timed by it."""

    def __init__(self) -> None:
        self._selected = _SteadySelector()
        super().__init__(self._selected)

    def time(self) -> float:
        return self._selected.now()


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(main)
