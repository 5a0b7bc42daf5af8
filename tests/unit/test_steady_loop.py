"""The loop on which tests let time pass: what a stall of the machine takes is not counted."""

from __future__ import annotations

import asyncio
import itertools
import time
from types import SimpleNamespace

import pytest

from support import steady


def test_no_time_passes_while_the_process_gets_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, stalls = time.monotonic, itertools.count(0.0, 60.0)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        stalled = SimpleNamespace(monotonic=lambda: machine() + next(stalls))
        monkeypatch.setattr(steady, "time", stalled)  # not that of other threads
        async with asyncio.timeout(1.0):
            await asyncio.sleep(0.01)
        assert loop.time() - began < 1.0

    steady.run(test())


def test_what_is_waited_for_passes() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        began, machine = loop.time(), time.monotonic()
        await asyncio.sleep(0.1)
        assert loop.time() - began + 1e-6 >= 0.1
        assert time.monotonic() - machine + 1e-6 >= 0.1

    steady.run(test())
