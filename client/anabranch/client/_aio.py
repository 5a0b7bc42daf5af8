"""Additions of the SDK to asyncio: `Closing`, `Receiving`, `Tasks`, `on_thread` and `rest`."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Self, TypeVar

from anabranch.access.home import Home
from anabranch.client._errors import HOME_ERRORS, ClosedError

MessageT = TypeVar("MessageT")


class Closing(ABC):
    """An object to close. Use it as an asynchronous context manager, or call `close`."""

    _home: Home

    @abstractmethod
    async def close(self) -> None:
        """Ends it. A second call does nothing more. Raises WrongLoopError."""

    def _lives_here(self, what: str) -> None:
        """Binds it to the running event loop, because it is of no use on another one."""
        self._home = Home(self, what, HOME_ERRORS, asyncio._get_running_loop())

    async def abandon(self) -> None:
        """Ends it after an error. It does not wait for an event that may never come, and raises no
        error that would hide the first one.
        """
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await (self.close() if error is None else self.abandon())


class Receiving(Closing, Generic[MessageT]):
    """Messages to receive. It is an asynchronous iterator too, which ends at `close`."""

    @abstractmethod
    async def receive(self, timeout_s: float | None = None) -> MessageT:
        """Returns the next message.
        Raises DeadlineError after `timeout_s` seconds, or ClosedError.
        """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageT:
        try:
            return await self.receive()
        except ClosedError:
            raise StopAsyncIteration from None


class Tasks:
    """The tasks of one owner, on one event loop.
    It passes an error that ends a task to `on_failure`.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task. Its caller need not await it."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancel(self) -> None:
        """Cancels all tasks, and waits for their end."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)


def call_on(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *args: object) -> None:
    """Has the loop call `what`, from another thread. It does nothing once the loop is over."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what, *args)


_P = ParamSpec("_P")
_T = TypeVar("_T")


async def on_thread(function: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
    """Calls the function on a thread of its own, and returns or raises its outcome. Cancelling
    gives up the wait, but not the call.
    """
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
            call_on(loop, fail, error)
        else:
            call_on(loop, succeed, result)

    name = getattr(function, "__name__", "call")
    threading.Thread(target=run, name=f"anabranch-{name}", daemon=True).start()
    return await outcome


async def rest(failures: int, least_s: float, most_s: float) -> None:
    """Sleeps after `failures` failures in a row, twice as long for each, from `least_s` to `most_s`
    seconds. A random factor keeps clients from waking together.
    """
    pause_s = min(most_s, least_s * 2 ** min(failures, 10))
    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
