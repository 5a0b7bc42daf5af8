"""`HandlerThreads`: plain functions as handlers, each call on a thread of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from anabranch.client._consumer.messages import Message
from anabranch.client._stream.work import Work


class HandlerThreads:
    """Calls a plain function as if it were a coroutine function.

    No thread can be cancelled. So a cancelled call waits on, and its key stays taken until the
    function returns. A result that comes late counts.
    """

    def __init__(self, function: Callable[[Message, Work], Any], most: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(most, "anabranch-work")

    async def __call__(self, message: Message, work: Work) -> None:
        loop = asyncio.get_running_loop()
        outcome = loop.run_in_executor(self._pool, self._function, message, work)
        while not outcome.done():
            try:
                await asyncio.wait([outcome])
            except asyncio.CancelledError:
                continue
        outcome.result()

    def close(self) -> None:
        """Lets the threads end as their calls return."""
        self._pool.shutdown(wait=False)
