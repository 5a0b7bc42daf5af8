"""Waiting for what another task or process brings about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

WAIT_S = 120.0  # nothing takes so long, on whatever machine: it only ends what hangs


async def until(holds: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Waits until the condition holds; fails the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.002)


def await_(holds: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    """As `until`, where no loop runs: it blocks."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


async def eventually(holds: Callable[[], Awaitable[bool]], timeout_s: float = WAIT_S) -> None:
    """As `until`, for a condition that has to be asked for."""
    deadline = time.monotonic() + timeout_s
    while not await holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)
