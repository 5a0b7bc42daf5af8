"""An asyncio event loop in simulated time: the product's coroutines run as they are, each turn of
the loop an event of the simulation.

What the loop is to do is given to a process, by `later`: nothing is done once that has crashed, and
all of it waits while it is paused.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from simulation.scheduler import Action

T = TypeVar("T")
Later = Callable[[float, Action], None]
Connect = Callable[["SimulatedLoop", Callable[[], Any], str, int], Coroutine[Any, Any, Any]]


def simulated_loop(
    now: Callable[[], float], later: Later, turn_s: Callable[[], float], connect: Connect
) -> SimulatedLoop:
    """A loop that has of asyncio's interface what the product uses."""
    made: Any = SimulatedLoop
    loop: SimulatedLoop = made(now, later, turn_s, connect)
    return loop


class _Numbered:
    """Has its place in a set by the number of it, not by its address in memory, which would have
    the order of sets differ from run to run.
    """

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Task(_Numbered, asyncio.Task[Any]):
    pass


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The loop of one life of one process.

    `now`: the process's clock; `later`: runs something in so many of its seconds; `turn_s`: how
    long it takes until the loop's next turn; `connect`: reaches an address.
    """

    def __init__(
        self, now: Callable[[], float], later: Later, turn_s: Callable[[], float], connect: Connect
    ) -> None:
        self._now = now
        self._later = later
        self._turn_s = turn_s
        self._connect = connect
        self._ready: deque[asyncio.Handle] = deque()
        self._turn_planned = False
        self._numbers = itertools.count()  # of tasks and futures
        # Kept to the end of the run: what is collected earlier would run its `finally` blocks.
        self._tasks: list[asyncio.Task[Any]] = []
        self.failures: list[str] = []  # of callbacks, and of tasks that nobody looked at

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is called meanwhile is called in this loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def call(self, action: Action) -> None:
        """Calls it in this loop, now."""
        with self.running():
            action()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of this loop, for whoever is outside of it; a fault in it fails the run."""

        async def told() -> T:
            try:
                return await work
            except Exception as error:
                self.failures.append(f"a task ended: {error!r}")
                raise

        with self.running():
            return self.create_task(told())

    # --- asyncio.AbstractEventLoop ------------------------------------------------------

    def time(self) -> float:
        return self._now()

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._later(max(0.0, when - self.time()), partial(self._ring, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[T]:
        task = _Task(next(self._numbers), coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[None, Any]:
        return None, await self._connect(self, protocol_factory, host, port)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its event comes, and finds it so."""

    # --- inside -------------------------------------------------------------------------

    def _add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        if not self._turn_planned:
            self._turn_planned = True
            self._later(self._turn_s(), self._turn)

    def _ring(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._add(timer)

    def _turn(self) -> None:
        """As asyncio's: what is added meanwhile has its turn in the next one."""
        self._turn_planned = False
        with self.running():
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        if self._ready and not self._turn_planned:
            self._turn_planned = True
            self._later(self._turn_s(), self._turn)
