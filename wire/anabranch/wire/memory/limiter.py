"""`AsyncDualMemoryLimiter`: limits the memory that topic lists take at once (PIP-442).

*Heap* is lists that are being assembled, *direct* is bytes that wait on connections until they are
written. Each has its own limits and its own queue. Nodes and proxies have one limiter each.

    async with limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY) as memory:
        topics = await assemble()
        await memory.resize(bytes_of(topics))
        await write_within(limiter, connection, size, lambda: answer(topics))

The way out gives the memory back in every case. `write_within` gives its memory back once the bytes
are off the connection, also if nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

import msgspec

from anabranch.core.topic_lists.errors import InvalidPermitsError
from anabranch.core.topic_lists.semaphore import CancelFlag, Permit, Refusal, SemaphoreLimits
from anabranch.wire.connection import Connection
from anabranch.wire.memory.semaphore import AsyncSemaphore


class LimitType(enum.Enum):
    """The kind of memory. The value is its name in settings and metrics."""

    HEAP_MEMORY = "Heap"
    DIRECT_MEMORY = "Direct"


class DualMemoryLimits(msgspec.Struct, frozen=True):
    """The limits of both kinds. Permits are bytes."""

    heap: SemaphoreLimits
    direct: SemaphoreLimits

    def of(self, limit_type: LimitType) -> SemaphoreLimits:
        """Returns the limits of one kind."""
        return self.heap if limit_type is LimitType.HEAP_MEMORY else self.direct


class AsyncDualMemoryLimiterPermit(msgspec.Struct, frozen=True):
    """Memory that is held, until it is released or replaced by an update."""

    limit_type: LimitType
    permit: Permit

    @property
    def size(self) -> int:
        """The bytes that it still holds."""
        return self.permit.permits


# Takes the kind that has queued, and the ns: the largest 64-bit number before that of a time-out.
DualLatency = Callable[[LimitType, int], None]


def _remedies(limit_type: LimitType) -> Mapping[Refusal, str]:
    size = f"maxTopicListInFlight{limit_type.value}MemSize"
    return {
        Refusal.MORE_THAN_ALL: f"ask for fewer topics at once, or raise {size}MB",
        Refusal.QUEUE_FULL: f"ask again later, or raise {size}PermitsAcquireQueueSize or {size}MB",
        Refusal.TIMED_OUT: (
            f"ask again later, or raise {size}MB or {size}PermitsAcquireTimeoutMillis"
        ),
        Refusal.CANCELLED: "nobody waits for the answer any more",
        Refusal.CLOSED: "this server is stopping; ask another one",
    }


def _never() -> bool:
    return False


class AsyncDualMemoryLimiter:
    """Two semaphores that know nothing of each other, on one event loop."""

    def __init__(self, limits: DualMemoryLimits, latency: DualLatency | None = None) -> None:
        def told(limit_type: LimitType) -> Callable[[int], None] | None:
            return None if latency is None else lambda ns: latency(limit_type, ns)

        self._sides: Final = {
            each: AsyncSemaphore(limits.of(each), told(each), _remedies(each)) for each in LimitType
        }

    async def acquire(
        self, memory_size: int, limit_type: LimitType, is_cancelled: CancelFlag = _never
    ) -> AsyncDualMemoryLimiterPermit:
        """Returns a permit of that many bytes, once they are free. Raises PermitAcquireError.
        Prefer `held`.
        """
        permit = await self._sides[limit_type].acquire(memory_size, is_cancelled)
        return AsyncDualMemoryLimiterPermit(limit_type, permit)

    async def update(
        self,
        permit: AsyncDualMemoryLimiterPermit,
        new_memory_size: int,
        is_cancelled: CancelFlag = _never,
    ) -> AsyncDualMemoryLimiterPermit:
        """Returns a permit of another size and the same kind. The old one is empty from then on.

        Raises PermitAcquireError, and then the old one is unchanged.
        """
        side = self._side_of(permit)
        updated = await side.update(permit.permit, new_memory_size, is_cancelled)
        return AsyncDualMemoryLimiterPermit(permit.limit_type, updated)

    def release(self, permit: AsyncDualMemoryLimiterPermit) -> None:
        """Gives back what the permit still holds. Raises InvalidPermitsError for a strange one."""
        self._side_of(permit).release(permit.permit)

    def held(
        self, memory_size: int, limit_type: LimitType, is_cancelled: CancelFlag = _never
    ) -> HeldMemory:
        """Returns memory for the time of an `async with`."""
        return HeldMemory(self, memory_size, limit_type, is_cancelled)

    def side(self, limit_type: LimitType) -> AsyncSemaphore:
        """Returns the semaphore of one kind, to look at."""
        return self._sides[limit_type]

    def configure(self, limits: DualMemoryLimits) -> None:
        """Sets other limits from now on.
        `core.topic_lists.semaphore` describes the effect on waiting requests.
        """
        for limit_type, side in self._sides.items():
            side.configure(limits.of(limit_type))

    def close(self) -> None:
        """Refuses all waiting and later requests. Permits may still be released."""
        for side in self._sides.values():
            side.close()

    def _side_of(self, permit: AsyncDualMemoryLimiterPermit) -> AsyncSemaphore:
        if not isinstance(permit, AsyncDualMemoryLimiterPermit):
            raise InvalidPermitsError(
                "Invalid permit type: give back what this limiter itself gave"
            )
        return self._sides[permit.limit_type]


class HeldMemory:
    """Memory between the two ends of an `async with`. `AsyncDualMemoryLimiter.held` makes it."""

    def __init__(
        self,
        limiter: AsyncDualMemoryLimiter,
        memory_size: int,
        limit_type: LimitType,
        is_cancelled: CancelFlag,
    ) -> None:
        self._limiter = limiter
        self._first_size = memory_size
        self._limit_type = limit_type
        self._is_cancelled = is_cancelled
        self._permit: AsyncDualMemoryLimiterPermit | None = None  # None: outside

    @property
    def size(self) -> int:
        """The bytes that are held."""
        return 0 if self._permit is None else self._permit.size

    async def resize(self, memory_size: int) -> None:
        """Holds another number of bytes instead, once they are free.

        Raises PermitAcquireError, and then its size is unchanged. That is an InvalidPermitsError
        outside of the `async with`, or with another resize under way.
        """
        before = self._permit
        if before is None:
            raise InvalidPermitsError("Invalid permit type: this memory is not held any more")
        after = await self._limiter.update(before, memory_size, self._is_cancelled)
        if self._permit is not before:
            self._limiter.release(after)
            raise InvalidPermitsError(
                "Invalid permit type: this memory was released or resized meanwhile"
            )
        self._permit = after

    def hand_over(self) -> Callable[[object], None]:
        """Returns a function that gives the memory back, in place of the way out of the `async
        with`.
        """
        permit, self._permit = self._permit, None
        if permit is None:
            raise InvalidPermitsError("Invalid permit type: this memory is not held any more")
        return lambda _: self._limiter.release(permit)

    async def __aenter__(self) -> HeldMemory:
        if self._permit is not None:
            raise InvalidPermitsError("Invalid permit type: this memory is held already")
        self._permit = await self._limiter.acquire(
            self._first_size, self._limit_type, self._is_cancelled
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        permit, self._permit = self._permit, None
        if permit is not None:
            self._limiter.release(permit)


async def write_within(
    limiter: AsyncDualMemoryLimiter, connection: Connection, size: int, frame: Callable[[], bytes]
) -> bool:
    """Sends a frame that `frame` encodes, once direct memory of `size` bytes is there.

    Returns once the memory is back: True if the other side's socket took all of it. Raises
    PermitAcquireError and the errors of `frame`; nothing is sent then.
    """

    def is_gone() -> bool:
        return not connection.is_open

    async with limiter.held(size, LimitType.DIRECT_MEMORY, is_gone) as memory:
        if is_gone():
            return False
        connection.send_frame(frame())
        taken = connection.taken()
        if not taken.done():
            # A cancelled caller leaves bytes behind, which take memory still.
            taken.add_done_callback(memory.hand_over())
        return await asyncio.shield(taken)
