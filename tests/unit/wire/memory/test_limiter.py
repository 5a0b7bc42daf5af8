"""The memory of topic lists: two kinds, given back on every path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from anabranch.broker.settings import SETTING_NAMES
from anabranch.core.topic_lists import errors
from anabranch.core.topic_lists.semaphore import LARGEST, Permit, SemaphoreLimits
from anabranch.wire.memory.limiter import DualMemoryLimits, LimitType
from anabranch.wire.memory.semaphore import AsyncSemaphore
from support.circles import nothing_left_in_a_circle
from support.limiter import DIRECT, HEAP, MS, acquired, limiter_of
from support.waiting import WAIT_S, until
from support.wire import on_both_loops

pytestmark = on_both_loops

OTHER = {HEAP: DIRECT, DIRECT: HEAP}


# --- two kinds ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LimitType)
async def test_errors_name_the_settings_of_their_kind(kind: LimitType) -> None:
    size = f"maxTopicListInFlight{kind.value}MemSize"
    limiter = limiter_of(10, queue_max=1, timeout_ns=50 * MS)
    most = limiter.side(kind).limits.permits_max
    with pytest.raises(errors.InvalidPermitsError) as too_large:
        await limiter.acquire(most + 1, kind)
    await limiter.acquire(most, kind)
    waits = asyncio.create_task(limiter.acquire(1, kind))
    await until(lambda: limiter.side(kind).queue_size == 1)
    with nothing_left_in_a_circle(), pytest.raises(errors.PermitAcquireQueueFullError) as full:
        await limiter.acquire(1, kind)
    with pytest.raises(errors.PermitAcquireTimeoutError) as late:
        await waits
    for error, ends in (
        (too_large, ("MB",)),
        (full, ("PermitsAcquireQueueSize", "MB")),
        (late, ("MB", "PermitsAcquireTimeoutMillis")),
    ):
        for end in ends:
            assert size + end in str(error.value)
            assert size + end in SETTING_NAMES


async def test_closing_closes_both_kinds_and_permits_may_still_come_back() -> None:
    limiter = limiter_of(10)
    held = {kind: await limiter.acquire(10, kind) for kind in LimitType}
    limiter.close()
    for kind in LimitType:
        with pytest.raises(errors.PermitAcquireAlreadyClosedError, match=r"^Semaphore is closed: "):
            await limiter.acquire(1, kind)
        limiter.release(held[kind])
    assert acquired(limiter) == (0, 0)


async def test_limits_of_each_kind_change_by_themselves() -> None:
    limiter = limiter_of(10)
    limits = DualMemoryLimits(SemaphoreLimits(1, 2, 3), SemaphoreLimits(4, 5, 6))
    limiter.configure(limits)
    assert limiter.side(HEAP).limits == limits.heap
    assert limiter.side(DIRECT).limits == limits.direct


async def test_latency_is_told_with_its_kind() -> None:
    told: list[tuple[LimitType, int]] = []
    limiter = limiter_of(10, timeout_ns=20 * MS, latency=lambda *each: told.append(each))
    await limiter.acquire(10, HEAP)
    await limiter.acquire(100, DIRECT)
    with pytest.raises(errors.PermitAcquireTimeoutError):
        await limiter.acquire(1, DIRECT)
    assert told[:3] == [(HEAP, 0), (DIRECT, 0), (DIRECT, LARGEST)]
    assert told[3][0] is DIRECT
    assert 20 * MS <= told[3][1] < LARGEST


# --- held memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LimitType)
async def test_held_memory_follows_its_size_and_comes_back(kind: LimitType) -> None:
    limiter = limiter_of(10)
    async with limiter.held(3, kind) as memory:
        for size in (3, 9, 0, 10, 4):
            await memory.resize(size)
            assert memory.size == limiter.side(kind).acquired == size
            assert limiter.side(OTHER[kind]).acquired == 0
    assert memory.size == 0
    assert acquired(limiter) == (0, 0)


async def test_a_resize_that_fails_keeps_what_is_held_until_the_end() -> None:
    limiter = limiter_of(10, timeout_ns=20 * MS)
    async with limiter.held(3, HEAP) as memory, limiter.held(7, HEAP):
        for size, error in (
            (4, errors.PermitAcquireTimeoutError),
            (11, errors.InvalidPermitsError),
            (-1, errors.InvalidPermitsError),
        ):
            with pytest.raises(error):
                await memory.resize(size)
            assert memory.size == 3
    assert acquired(limiter) == (0, 0)


async def test_memory_that_is_not_there_is_not_entered() -> None:
    limiter = limiter_of(10, timeout_ns=20 * MS)
    async with limiter.held(10, HEAP):
        with pytest.raises(errors.PermitAcquireTimeoutError):
            async with limiter.held(1, HEAP):
                raise AssertionError("entered")
        with pytest.raises(errors.PermitAcquireTimeoutError):
            async with limiter.held(1, HEAP, lambda: True):
                raise AssertionError("entered")  # nothing is looked at while nothing is there
    with pytest.raises(errors.PermitAcquireCancelledError):
        async with limiter.held(1, HEAP, lambda: True):
            raise AssertionError("entered")
    assert acquired(limiter) == (0, 0)


@pytest.mark.parametrize("after", range(12))
async def test_whenever_its_task_is_cancelled_held_memory_comes_back(after: int) -> None:
    # Who holds and wants more waits behind who wants what it holds, until the time is over.
    limiter = limiter_of(10, timeout_ns=5 * MS)

    async def use() -> None:
        async with limiter.held(6, HEAP) as memory:
            await asyncio.sleep(0)
            await memory.resize(9)
            await asyncio.sleep(0)
            await memory.resize(2)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(use()) for _ in range(4)]
    for _ in range(after):
        await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks[1::2]] == [False, False]
    assert acquired(limiter) == (0, 0)
    assert limiter.side(HEAP).queue_size == 0


async def test_memory_is_not_resized_outside_nor_by_two_at_once() -> None:
    limiter = limiter_of(10)
    async with limiter.held(3, HEAP) as memory, limiter.held(7, HEAP) as other:
        resizes = [asyncio.create_task(memory.resize(5)) for _ in range(2)]
        await until(lambda: limiter.side(HEAP).queue_size == 2)
        await other.resize(0)
        ends = await asyncio.gather(*resizes, return_exceptions=True)
        assert [type(each) for each in ends] == [type(None), errors.InvalidPermitsError]
        assert memory.size == limiter.side(HEAP).acquired == 5
        late = asyncio.create_task(memory.resize(9))
        blocked = await limiter.acquire(2, HEAP)
        await until(lambda: limiter.side(HEAP).queue_size == 1)
    limiter.release(blocked)
    with pytest.raises(errors.InvalidPermitsError):
        await late  # granted when nobody was there any more
    with pytest.raises(errors.InvalidPermitsError, match="not held any more"):
        await memory.resize(1)
    with pytest.raises(errors.InvalidPermitsError, match="not held any more"):
        memory.hand_over()
    async with memory:
        with pytest.raises(errors.InvalidPermitsError, match="held already"):
            await memory.__aenter__()
    assert acquired(limiter) == (0, 0)


# --- coroutines that wait for permits: whoever is cancelled, whenever, nothing is lost ------------


MILLIS = 1_000_000
LONG = 1_000 * int(WAIT_S) * MILLIS


def limits(permits_max: int = 10, queue_max: int = 0, timeout_ns: int = LONG) -> SemaphoreLimits:
    return SemaphoreLimits(permits_max, queue_max, timeout_ns)


async def waiting(semaphore: AsyncSemaphore, *sizes: int) -> list[asyncio.Task[Permit]]:
    """A task for each size, in this order, once all of them wait."""
    before = semaphore.queue_size
    tasks = [asyncio.create_task(semaphore.acquire(each)) for each in sizes]
    await until(lambda: semaphore.queue_size == before + len(sizes))
    return tasks


async def test_time_outs_ring_one_after_the_other_though_there_is_one_timer() -> None:
    told: list[int] = []
    semaphore = AsyncSemaphore(limits(timeout_ns=30 * MILLIS), told.append)
    held = await semaphore.acquire(10)
    tasks: list[asyncio.Task[Permit]] = []
    for _ in range(5):
        tasks.append(asyncio.create_task(semaphore.acquire(1)))
        await asyncio.sleep(0.005)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in ends] == [errors.PermitAcquireTimeoutError] * 5
    semaphore.release(held)
    assert (semaphore.available, told[0], told[1::2]) == (10, 0, [LARGEST] * 5)
    assert min(told[2::2]) >= 30 * MILLIS


async def test_a_cancelled_head_is_noticed_once_half_the_time_out_after_the_beginning() -> None:
    semaphore = AsyncSemaphore(limits(timeout_ns=50 * MILLIS))
    await semaphore.acquire(8)
    flags = [False]
    head = asyncio.create_task(semaphore.acquire(5, lambda: flags[0]))
    await until(lambda: semaphore.queue_size == 1)
    flags[0] = True
    with pytest.raises(errors.PermitAcquireCancelledError):
        await head


# --- cancelled tasks ------------------------------------------------------------------------


async def _use(semaphore: AsyncSemaphore, size: int) -> None:
    """What careful users do without the context manager."""
    permit = await semaphore.acquire(size)
    try:
        await asyncio.sleep(0)
        permit = await semaphore.update(permit, size + 3)
        await asyncio.sleep(0)
        permit = await semaphore.update(permit, 1)
        await asyncio.sleep(0)
    finally:
        semaphore.release(permit)


async def _crowd(after: int, whom: Callable[[int], bool]) -> AsyncSemaphore:
    """Twelve users; `after` so many turns of the loop some of them are cancelled."""
    semaphore = AsyncSemaphore(limits(timeout_ns=5 * MILLIS))
    tasks = [asyncio.create_task(_use(semaphore, 3 + each % 4)) for each in range(12)]
    for _ in range(after):
        await asyncio.sleep(0)
    for each, task in enumerate(tasks):
        if whom(each):
            task.cancel()
    async with asyncio.timeout(WAIT_S):
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    # Who holds and wants more waits behind those who want what it holds: the time-out ends that.
    fine = (type(None), asyncio.CancelledError, errors.PermitAcquireTimeoutError)
    assert [each for each in ends if not isinstance(each, fine)] == []
    return semaphore


@pytest.mark.parametrize("after", range(0, 40, 2))
async def test_whenever_some_are_cancelled_others_are_served_and_all_is_back(after: int) -> None:
    for whom in (lambda _: True, lambda i: i % 2 == 0, lambda i: i % 3 == 1, lambda i: i == 0):
        semaphore = await _crowd(after, whom)
        assert (semaphore.acquired, semaphore.queue_size) == (0, 0)


@pytest.mark.parametrize("after", range(0, 40, 8))
async def test_whenever_it_is_closed_those_who_wait_are_told_and_all_comes_back(after: int) -> None:
    semaphore = AsyncSemaphore(limits())
    tasks = [asyncio.create_task(_use(semaphore, 3 + each % 4)) for each in range(12)]
    for _ in range(after):
        await asyncio.sleep(0)
    semaphore.close()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in ends} <= {type(None), errors.PermitAcquireAlreadyClosedError}
    assert (semaphore.acquired, semaphore.queue_size) == (0, 0)


# --- other limits ---------------------------------------------------------------------------


async def test_other_limits_count_for_those_who_wait_already() -> None:
    semaphore = AsyncSemaphore(limits())
    await semaphore.acquire(10)
    (waits,) = await waiting(semaphore, 5)
    semaphore.configure(limits(15))
    assert (await waits).permits == 5
    (waits,) = await waiting(semaphore, 5)
    semaphore.configure(limits(15, timeout_ns=20 * MILLIS))
    with pytest.raises(errors.PermitAcquireTimeoutError):
        await waits
