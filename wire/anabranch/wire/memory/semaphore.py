"""`AsyncSemaphore`: coroutines that wait for permits (PIP-442, "AsyncSemaphore").

`core.topic_lists.semaphore` decides; this module only waits. Make it and use it on one event loop.
A waiting coroutine may be cancelled at any moment. Its request then leaves the queue, and permits
that were granted in that very moment go back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from anabranch.core.topic_lists.errors import (
    InvalidPermitsError,
    PermitAcquireAlreadyClosedError,
    PermitAcquireCancelledError,
    PermitAcquireError,
    PermitAcquireQueueFullError,
    PermitAcquireTimeoutError,
)
from anabranch.core.topic_lists.semaphore import (
    CancelFlag,
    Effect,
    Permit,
    PermitGranted,
    PermitRefused,
    Refusal,
    Semaphore,
    SemaphoreLimits,
)

Latency = Callable[[int], None]  # ns; the largest 64-bit number before that of a time-out

_NS: Final = 1_000_000_000
_SOON_NS: Final = 1_000_000  # the loop's timers are not finer
_ERRORS: Final[dict[Refusal, type[PermitAcquireError]]] = {
    Refusal.NEGATIVE: InvalidPermitsError,
    Refusal.MORE_THAN_ALL: InvalidPermitsError,
    Refusal.CLOSED: PermitAcquireAlreadyClosedError,
    Refusal.QUEUE_FULL: PermitAcquireQueueFullError,
    Refusal.TIMED_OUT: PermitAcquireTimeoutError,
    Refusal.CANCELLED: PermitAcquireCancelledError,
}


def _never() -> bool:
    return False


class AsyncSemaphore:
    """Permits, first in, first out. It passes `latency` the time for which each request has queued.

    `remedies` are texts that its errors add behind the reason of a refusal.
    """

    def __init__(
        self,
        limits: SemaphoreLimits,
        latency: Latency | None = None,
        remedies: Mapping[Refusal, str] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = Semaphore(limits)
        self._latency = latency
        self._remedies = remedies or {}
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Permit]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ns = 0
        # The one look that nothing else causes: a head that was cancelled without a sign.
        self._first_look = self._loop.call_later(limits.timeout_ns / 2 / _NS, self._look)

    # --- questions ----------------------------------------------------------------------

    @property
    def limits(self) -> SemaphoreLimits:
        """The present limits."""
        return self._core.limits

    @property
    def acquired(self) -> int:
        """The permits that are held, 0 while there is no maximum."""
        return self._core.acquired

    @property
    def available(self) -> int:
        """The permits that could be given."""
        return self._core.available

    @property
    def queue_size(self) -> int:
        """The number of waiting requests."""
        return self._core.queue_size

    # --- for users ----------------------------------------------------------------------

    async def acquire(self, permits: int, is_cancelled: CancelFlag = _never) -> Permit:
        """Returns a permit for that number, once they are free. Raises PermitAcquireError.

        It calls `is_cancelled` when the request's turn has come.
        """
        number = next(self._numbers)
        effects = self._core.acquire(number, permits, self._now_ns(), is_cancelled)
        return await self._ended(number, effects)

    async def update(
        self, permit: Permit, new_permits: int, is_cancelled: CancelFlag = _never
    ) -> Permit:
        """Returns a permit for another number. The old one is empty then.

        Raises PermitAcquireError, and then the old one is unchanged.
        """
        number = next(self._numbers)
        effects = self._core.update(number, permit, new_permits, self._now_ns(), is_cancelled)
        return await self._ended(number, effects)

    def release(self, permit: Permit) -> None:
        """Gives back all that the permit still holds.
        Raises InvalidPermitsError for a strange one.
        """
        self._carry_out(self._core.release(permit, self._now_ns()))

    def configure(self, limits: SemaphoreLimits) -> None:
        """Sets other limits from now on, also for present holders and waiting requests."""
        self._carry_out(self._core.configure(limits, self._now_ns()))

    def close(self) -> None:
        """Refuses all waiting and later requests. Permits may still be released."""
        self._first_look.cancel()
        self._carry_out(self._core.close(self._now_ns()))

    # --- inside -------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return int(self._loop.time() * _NS)

    async def _ended(self, number: int, effects: Iterable[Effect]) -> Permit:
        future: asyncio.Future[Permit] = self._loop.create_future()
        self._waiting[number] = future
        self._carry_out(effects)
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None:
                self._carry_out(self._core.withdraw(number, self._now_ns()))
            elif not future.cancelled() and future.exception() is None:
                self.release(future.result())  # granted, but nobody is there to take it
            raise
        finally:
            del future  # or it, its error and this frame were a circle

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        due = deque(effects)
        latencies: list[int] = []
        while due:
            effect = due.popleft()
            latencies += effect.latencies_ns
            future = self._waiting.pop(effect.request)
            if not future.done():
                self._settle(future, effect)
            elif isinstance(effect, PermitGranted):  # the caller has cancelled in this very moment
                due += self._core.release(effect.permit, self._now_ns())
        self._arm()
        if self._latency is not None:
            for each in latencies:
                self._latency(each)

    def _settle(self, future: asyncio.Future[Permit], effect: Effect) -> None:
        if isinstance(effect, PermitGranted):
            future.set_result(effect.permit)
        else:
            future.set_exception(self._error(effect))

    def _error(self, refused: PermitRefused) -> PermitAcquireError:
        remedy = self._remedies.get(refused.reason)
        text = f"{refused.message}: {remedy}" if remedy else refused.message
        return _ERRORS[refused.reason](text)

    def _arm(self) -> None:
        """Sets one timer, for the oldest request. A timer that comes too early just looks again."""
        due_ns = self._core.due_ns
        if self._alarm is not None and (due_ns is None or due_ns < self._alarm_ns):
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None and due_ns is not None:
            self._alarm_ns = max(due_ns, self._now_ns() + _SOON_NS)
            self._alarm = self._loop.call_at(self._alarm_ns / _NS, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._carry_out(self._core.time_out(self._now_ns()))

    def _look(self) -> None:
        self._carry_out(self._core.look(self._now_ns()))
