"""`HandlerThreads`: plain functions as handlers, each call on a thread of a pool."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from anabranch.client._stream.settings import AsyncHandler, is_async

_NAME: Final = "anabranch-work"


def is_handler_thread() -> bool:
    """Tells whether a plain handler asks."""
    return threading.current_thread().name.startswith(_NAME)


class HandlerThreads:
    """Calls a plain function as if it were a coroutine function.

    No thread can be cancelled. So a cancelled call waits on, and its key stays taken until the
    function returns. A result that comes late counts.
    """

    def __init__(self, function: Callable[..., Any], most: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(most, _NAME)

    async def __call__(self, *given: Any) -> None:
        loop = asyncio.get_running_loop()
        outcome = loop.run_in_executor(self._pool, self._function, *given)
        while not outcome.done():
            try:
                await asyncio.wait([outcome])
            except asyncio.CancelledError:
                continue
        outcome.result()

    def close(self) -> None:
        """Lets the threads end as their calls return."""
        self._pool.shutdown(wait=False)


@contextlib.contextmanager
def as_async(handler: Callable[..., Any], most: int) -> Iterator[AsyncHandler]:
    """Gives an async function for a handler, on `most` threads if it is a plain one."""
    if is_async(handler):
        yield handler
        return
    threads = HandlerThreads(handler, most)
    try:
        yield threads
    finally:
        threads.close()
