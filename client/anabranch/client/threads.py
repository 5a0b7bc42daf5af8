"""`on_thread`: blocking calls that nobody has to wait for at the end.

`asyncio.to_thread` would do, but the end of the event loop, and of the process, waits for its
threads; a call to a Kafka that is out of reach takes many seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def on_thread(function: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
    """What the call returns or raises; cancelling gives up the wait for it, not the call."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def succeed(result: _T) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def fail(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    def run() -> None:
        try:
            result = function(*args, **named)
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            tell(fail, error)
        else:
            tell(succeed, result)

    def tell(what: Callable[..., None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over: nobody waits
            loop.call_soon_threadsafe(what, value)

    name = getattr(function, "__name__", "call")
    threading.Thread(target=run, name=f"anabranch-{name}", daemon=True).start()
    return await outcome
