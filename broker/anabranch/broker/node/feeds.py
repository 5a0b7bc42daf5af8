"""Threads that wait for Kafka, so that the event loop never does."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_AHEAD_MAX: Final = 4  # batches read but not yet taken by the loop
_WAIT_S: Final = 0.2


class Feed(Generic[T]):
    """Polls a source in a thread and hands each batch to the loop, a bounded number ahead.

    `poll` blocks for a bounded time and returns the items that there are. `deliver` runs in the
    loop, in order. It may return some of the last items, and gets them again after others had their
    turn. An error that either raises goes to `failed`, in the loop, once; then the feed is over.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], Sequence[T]],
        deliver: Callable[[Sequence[T]], Sequence[T] | None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._poll = poll
        self._deliver = deliver
        self._failed = failed
        self._arrived: deque[Sequence[T]] = deque()  # the loop's: at most as many as slots
        self._slots = threading.Semaphore(_AHEAD_MAX)
        self._over = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to poll."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end, and drops items that were read but not delivered."""
        self._over.set()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread and returns whether it has ended. Never called in the loop."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                items = self._poll()
                if items and self._slot():
                    self._call(self._take, items)
        except Exception as error:  # noqa: BLE001 - the loop decides what it means
            self._call(self._fail, error)

    def _slot(self) -> bool:
        while not self._slots.acquire(timeout=_WAIT_S):
            if self._over.is_set():
                return False
        return True

    def _call(self, what: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, argument)
        except RuntimeError:  # the loop is closed: the process is ending
            self._over.set()

    def _take(self, items: Sequence[T]) -> None:
        self._arrived.append(items)
        if len(self._arrived) == 1:
            self._hand_over()

    def _hand_over(self) -> None:
        rest: Sequence[T] | None = None
        try:
            if not self._over.is_set():
                rest = self._deliver(self._arrived[0])
        except Exception as error:  # noqa: BLE001 - a fault, not to be swallowed by the loop
            self._fail(error)
        if rest:
            self._arrived[0] = rest
        else:
            self._arrived.popleft()
            self._slots.release()
        if self._arrived:
            self._loop.call_soon(self._hand_over)

    def _fail(self, error: Exception) -> None:
        if not self._over.is_set():
            self._over.set()
            self._failed(error)
