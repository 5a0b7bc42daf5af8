"""What the SDK adds to asyncio: `Closing`, `Receiving`, `Tasks`, `on_thread` and `rest`."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Self, TypeVar

from anabranch.client._errors import ClosedError

MessageT = TypeVar("MessageT")


class Closing(ABC):
    """Use as an asynchronous context manager, or call `close`."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it; calling it again ends nothing more."""

    async def abandon(self) -> None:
        """Ends it after an error: waits for nothing that may never come, and raises nothing of its
        own that would hide the error.
        """
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await (self.close() if error is None else self.abandon())


class Receiving(Closing, Generic[MessageT]):
    """Use `async for` as well, which ends when it is closed."""

    @abstractmethod
    async def receive(self, timeout_s: float | None = None) -> MessageT:
        """The next message. Raises DeadlineError, ClosedError."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageT:
        try:
            return await self.receive()
        except ClosedError:
            raise StopAsyncIteration from None


class Tasks:
    """Of one owner, on one event loop. `on_failure` is told of the error that ends one."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs it beside everything else; nobody has to wait for it."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancel(self) -> None:
        """Ends all of them."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)


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


async def rest(failures: int, least_s: float, most_s: float) -> None:
    """Sleeps after so many failures in a row: twice as long for each, and never as others do."""
    pause_s = min(most_s, least_s * 2 ** min(failures, 10))
    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
