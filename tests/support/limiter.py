"""Limiters of two kinds of memory for tests."""

from __future__ import annotations

from typing import Final

from anabranch.core.topic_lists.semaphore import SemaphoreLimits
from anabranch.wire.memory.limiter import (
    AsyncDualMemoryLimiter,
    DualLatency,
    DualMemoryLimits,
    LimitType,
)
from support.waiting import WAIT_S

MS: Final = 1_000_000
LONG: Final = 1_000 * int(WAIT_S) * MS
HEAP, DIRECT = LimitType.HEAP_MEMORY, LimitType.DIRECT_MEMORY


def limiter_of(
    permits_max: int = 10,
    queue_max: int = 0,
    timeout_ns: int = LONG,
    latency: DualLatency | None = None,
) -> AsyncDualMemoryLimiter:
    """Direct memory has ten times as much."""
    heap = SemaphoreLimits(permits_max, queue_max, timeout_ns)
    direct = SemaphoreLimits(10 * permits_max, queue_max, timeout_ns)
    return AsyncDualMemoryLimiter(DualMemoryLimits(heap, direct), latency)


def acquired(limiter: AsyncDualMemoryLimiter) -> tuple[int, int]:
    """What is held of heap and direct memory."""
    return limiter.side(HEAP).acquired, limiter.side(DIRECT).acquired
