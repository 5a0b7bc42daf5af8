"""`Semaphore`: the order and the times of permits (PIP-442, "AsyncSemaphore").

Permits are numbers, most often bytes. Requests are served strictly in the order of their arrival:
each goes through the queue, even if permits are free, and a small one behind a large one waits.
Events go in as calls, with the time in ns on any clock that does not run backwards. Their results
come out as effects, in the order in which they happened. Each request ends exactly once: in one
`PermitGranted`, in one `PermitRefused`, or by `withdraw` of its caller.

Each event costs the same however many wait, except for the requests that it serves or refuses. The
reason is that the head of the queue is always the oldest request, and all have the same time-out:
no other can be due before it.

Limits may change at any time, by `configure`:

- Held permits stay held. If they are more than the new maximum, nothing is given until enough of
  them are back. A request for fewer than its old permit holds is still served at once.
- Waiting requests keep their places. One that asks for more than the new maximum could never be
  served, and is refused like a new one. A shorter queue refuses new requests only.
- A new time-out counts for waiting requests, too, from their own request on.
- Without a maximum all waiting requests are granted. Their permits are remembered, though
  `acquired` reads 0, and count when there is a maximum again.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError
from anabranch.core.topic_lists.errors import InvalidPermitsError

LARGEST: Final = (1 << 63) - 1  # the number available without a maximum; the latency of a time-out

CancelFlag = Callable[[], bool]  # must neither raise nor use the semaphore


class Refusal(enum.Enum):
    """Why a request gets no permits."""

    NEGATIVE = enum.auto()
    MORE_THAN_ALL = enum.auto()
    CLOSED = enum.auto()
    QUEUE_FULL = enum.auto()
    TIMED_OUT = enum.auto()
    CANCELLED = enum.auto()


_MESSAGES: Final = {
    Refusal.CLOSED: "Semaphore is closed",
    Refusal.QUEUE_FULL: "Semaphore queue is full",
    Refusal.TIMED_OUT: "Permit acquisition timed out",
    Refusal.CANCELLED: "Permit acquisition was cancelled",
}


class SemaphoreLimits(msgspec.Struct, frozen=True):
    """Most permits at once, most requests that wait, and for how long.

    `permits_max`, `queue_max`: 0 or less is any number. `timeout_ns`: more than 0. Raises
    InvalidInputError.
    """

    permits_max: int
    queue_max: int
    timeout_ns: int

    def __post_init__(self) -> None:
        if self.timeout_ns <= 0:
            raise InvalidInputError(f"a time-out of {self.timeout_ns} ns: give more than 0")

    @property
    def is_bounded(self) -> bool:
        """Tells whether there is a maximum at all."""
        return self.permits_max > 0


class Permit:
    """The permits that one request was given. Only its semaphore changes it."""

    __slots__ = ("_held", "_semaphore")

    def __init__(self, semaphore: Semaphore, held: int) -> None:
        self._semaphore = semaphore
        self._held = held

    @property
    def permits(self) -> int:
        """The number it still holds; 0 after its release, or its update to another one."""
        return self._held


class PermitGranted(msgspec.Struct, frozen=True):
    """A request has its permits. `queued_ns`: the time that it waited; None if it never queued."""

    request: int
    permit: Permit
    queued_ns: int | None

    @property
    def latencies_ns(self) -> tuple[int, ...]:
        """The latencies to report to measurements."""
        return () if self.queued_ns is None else (self.queued_ns,)


class PermitRefused(msgspec.Struct, frozen=True):
    """A request gets nothing, and the permit that it wanted to update is unchanged."""

    request: int
    reason: Refusal
    message: str
    queued_ns: int

    @property
    def latencies_ns(self) -> tuple[int, ...]:
        """The latencies to report to measurements: for a time-out only, after the largest
        number.
        """
        return (LARGEST, self.queued_ns) if self.reason is Refusal.TIMED_OUT else ()


Effect = PermitGranted | PermitRefused


class _Request(msgspec.Struct, frozen=True):
    number: int
    permits: int
    old: Permit | None  # that it updates
    asked_ns: int
    is_cancelled: CancelFlag

    @property
    def needed(self) -> int:
        """The number wanted besides the permits that the old permit holds at this moment."""
        return self.permits - (self.old.permits if self.old is not None else 0)


def _never() -> bool:
    return False


class Semaphore:
    """The permits of one resource, and those who wait for them.

    `request` is any number by which the caller knows a request; it is used again at the earliest
    when that has ended.
    """

    def __init__(self, limits: SemaphoreLimits) -> None:
        self._limits = limits
        self._held = 0
        self._queue: OrderedDict[int, _Request] = OrderedDict()  # the head can go in O(1)
        self._closed = False

    # --- questions ----------------------------------------------------------------------

    @property
    def limits(self) -> SemaphoreLimits:
        """Those that hold now."""
        return self._limits

    @property
    def acquired(self) -> int:
        """Permits that are held; 0 while there is no maximum."""
        return self._held if self._limits.is_bounded else 0

    @property
    def available(self) -> int:
        """Permits that could be given; 0 also while more are held than there should be."""
        return max(0, self._limits.permits_max - self._held) if self._limits.is_bounded else LARGEST

    @property
    def queue_size(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    @property
    def due_ns(self) -> int | None:
        """The time of the next time-out; `time_out` must be called then. None while no request
        waits.
        """
        if not self._queue:
            return None
        return next(iter(self._queue.values())).asked_ns + self._limits.timeout_ns

    # --- events -------------------------------------------------------------------------

    def acquire(
        self, request: int, permits: int, now_ns: int, is_cancelled: CancelFlag = _never
    ) -> list[Effect]:
        """A caller asks for permits."""
        return self._ask(_Request(request, permits, None, now_ns, is_cancelled), now_ns)

    def update(
        self,
        request: int,
        permit: Permit,
        permits: int,
        now_ns: int,
        is_cancelled: CancelFlag = _never,
    ) -> list[Effect]:
        """A caller wants another number of permits than those that `permit` holds.

        Fewer are given at once, more when the difference is there. `permit` is empty from then on,
        and untouched until then. Raises InvalidPermitsError for a permit of something else.
        """
        self._check(permit)
        asked = _Request(request, permits, permit, now_ns, is_cancelled)
        if not 0 <= permits <= permit.permits:
            return self._ask(asked, now_ns)
        is_surplus = permits < permit.permits
        granted = self._granted(asked, None)
        return [granted, *self.look(now_ns)] if is_surplus else [granted]

    def release(self, permit: Permit, now_ns: int) -> list[Effect]:
        """Takes back the permits that are still held. Raises InvalidPermitsError for a
        strange one.
        """
        self._check(permit)
        self._held -= permit._held
        permit._held = 0
        return self.look(now_ns)

    def withdraw(self, request: int, now_ns: int) -> list[Effect]:
        """The caller no longer waits for that; nothing happens if it has ended."""
        if self._queue.pop(request, None) is None:
            return []
        return self.look(now_ns)

    def time_out(self, now_ns: int) -> list[Effect]:
        """Time has passed: refuses the requests that have waited for too long."""
        effects: list[Effect] = []
        while (due_ns := self.due_ns) is not None and due_ns <= now_ns:
            _, request = self._queue.popitem(last=False)
            effects.append(_refused(request, Refusal.TIMED_OUT, now_ns))
            effects += self.look(now_ns)
        return effects

    def look(self, now_ns: int) -> list[Effect]:
        """Serves the head of the queue as long as that is possible.

        With nothing available nothing is looked at, not even who asks for 0, or has cancelled.
        """
        effects: list[Effect] = []
        while self._queue and self.available > 0:
            request = next(iter(self._queue.values()))
            if request.is_cancelled():
                effects.append(_refused(request, Refusal.CANCELLED, now_ns))
            elif request.needed <= self.available:
                effects.append(self._granted(request, now_ns - request.asked_ns))
            else:
                break
            del self._queue[request.number]
        return effects

    def configure(self, limits: SemaphoreLimits, now_ns: int) -> list[Effect]:
        """Sets other limits from now on; the module's docstring says the effects."""
        self._limits = limits
        if not limits.is_bounded:
            waiting = self._take_all()
            return [self._granted(each, now_ns - each.asked_ns) for each in waiting]
        effects: list[Effect] = []
        for each in [each for each in self._queue.values() if each.permits > limits.permits_max]:
            del self._queue[each.number]
            effects.append(self._more_than_all(each, now_ns))
        return [*effects, *self.look(now_ns), *self.time_out(now_ns)]

    def close(self, now_ns: int) -> list[Effect]:
        """Gives no more permits, and refuses the waiting requests. Permits may still come back."""
        self._closed = True
        return [_refused(each, Refusal.CLOSED, now_ns) for each in self._take_all()]

    # --- inside -------------------------------------------------------------------------

    def _ask(self, request: _Request, now_ns: int) -> list[Effect]:
        limits = self._limits
        if request.permits < 0:
            text = f"Invalid negative permits value: {request.permits}"
            return [PermitRefused(request.number, Refusal.NEGATIVE, text, 0)]
        if not limits.is_bounded:
            return [self._granted(request, None)]
        if request.permits > limits.permits_max:
            return [self._more_than_all(request, now_ns)]
        if self._closed:
            return [_refused(request, Refusal.CLOSED, now_ns)]
        if 0 < limits.queue_max <= len(self._queue):
            return [_refused(request, Refusal.QUEUE_FULL, now_ns)]
        self._queue[request.number] = request
        return self.look(now_ns)

    def _granted(self, request: _Request, queued_ns: int | None) -> PermitGranted:
        self._held += request.needed
        if request.old is not None:
            request.old._held = 0
        return PermitGranted(request.number, Permit(self, request.permits), queued_ns)

    def _more_than_all(self, request: _Request, now_ns: int) -> PermitRefused:
        text = (
            f"Requested permits={request.permits} is larger than "
            f"maxPermits={self._limits.permits_max}"
        )
        queued_ns = now_ns - request.asked_ns
        return PermitRefused(request.number, Refusal.MORE_THAN_ALL, text, queued_ns)

    def _take_all(self) -> list[_Request]:
        waiting = list(self._queue.values())
        self._queue.clear()
        return waiting

    def _check(self, permit: object) -> None:
        if not isinstance(permit, Permit) or permit._semaphore is not self:
            raise InvalidPermitsError(
                "Invalid permit type: give back what this semaphore itself gave"
            )


def _refused(request: _Request, reason: Refusal, now_ns: int) -> PermitRefused:
    return PermitRefused(request.number, reason, _MESSAGES[reason], now_ns - request.asked_ns)
