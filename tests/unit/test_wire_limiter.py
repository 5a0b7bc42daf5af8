"""The memory of topic lists: two kinds, given back on every path, also by who does not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.settings import SETTING_NAMES
from anabranch.core.topic_lists.errors import (
    InvalidPermitsError,
    PermitAcquireAlreadyClosedError,
    PermitAcquireCancelledError,
    PermitAcquireError,
    PermitAcquireQueueFullError,
    PermitAcquireTimeoutError,
)
from anabranch.core.topic_lists.semaphore import LARGEST, SemaphoreLimits
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import encode_frame
from anabranch.wire.limiter import (
    AsyncDualMemoryLimiter,
    DualLatency,
    DualMemoryLimits,
    LimitType,
    send_within,
    write_within,
)
from anabranch.wire.server import Peer
from support.waiting import WAIT_S, until
from support.wire import Raw, raw, run, serving

MS = 1_000_000
LONG = 1_000 * int(WAIT_S) * MS
HEAP, DIRECT = LimitType.HEAP_MEMORY, LimitType.DIRECT_MEMORY
OTHER = {HEAP: DIRECT, DIRECT: HEAP}
UNREAD = 3_000_000  # bytes: more than sockets keep by themselves, in two messages


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
    return limiter.side(HEAP).acquired, limiter.side(DIRECT).acquired


# --- two kinds ------------------------------------------------------------------------------


def test_the_two_kinds_do_not_affect_each_other() -> None:
    async def test() -> None:
        limiter = limiter_of(10)
        heap = await limiter.acquire(10, HEAP)
        direct = await limiter.acquire(90, DIRECT)
        assert acquired(limiter) == (10, 90)
        waits = asyncio.create_task(limiter.acquire(1, HEAP))
        await until(lambda: limiter.side(HEAP).queue_size == 1)
        direct = await limiter.update(direct, 100)
        assert (direct.size, direct.limit_type) == (100, DIRECT)
        limiter.release(direct)
        assert not waits.done()
        limiter.release(heap)
        assert (await waits).limit_type is HEAP
        assert acquired(limiter) == (1, 0)

    run(test)


@pytest.mark.parametrize("kind", LimitType)
def test_errors_name_the_settings_of_their_kind(kind: LimitType) -> None:
    async def test() -> None:
        size = f"maxTopicListInFlight{kind.value}MemSize"
        limiter = limiter_of(10, queue_max=1, timeout_ns=50 * MS)
        most = limiter.side(kind).limits.permits_max
        refusals: list[PermitAcquireError] = []
        with pytest.raises(InvalidPermitsError) as too_large:
            await limiter.acquire(most + 1, kind)
        await limiter.acquire(most, kind)
        waits = asyncio.create_task(limiter.acquire(1, kind))
        await until(lambda: limiter.side(kind).queue_size == 1)
        with pytest.raises(PermitAcquireQueueFullError) as full:
            await limiter.acquire(1, kind)
        with pytest.raises(PermitAcquireTimeoutError) as late:
            await waits
        refusals += [too_large.value, full.value, late.value]
        wanted = (
            ("MB",),
            ("PermitsAcquireQueueSize", "MB"),
            ("MB", "PermitsAcquireTimeoutMillis"),
        )
        for error, ends in zip(refusals, wanted, strict=True):
            for end in ends:
                assert size + end in str(error)
                assert size + end in SETTING_NAMES

    run(test)


def test_closing_closes_both_kinds_and_permits_may_still_come_back() -> None:
    async def test() -> None:
        limiter = limiter_of(10)
        held = {kind: await limiter.acquire(10, kind) for kind in LimitType}
        limiter.close()
        for kind in LimitType:
            with pytest.raises(PermitAcquireAlreadyClosedError, match=r"^Semaphore is closed: "):
                await limiter.acquire(1, kind)
            limiter.release(held[kind])
        assert acquired(limiter) == (0, 0)

    run(test)


def test_a_permit_that_is_none_is_refused() -> None:
    async def test() -> None:
        limiter, other = limiter_of(), limiter_of()
        theirs = await other.acquire(3, HEAP)
        inner = await limiter.side(HEAP).acquire(1)
        for strange in (theirs, inner, None):
            with pytest.raises(InvalidPermitsError, match=r"^Invalid permit type"):
                limiter.release(strange)  # type: ignore[arg-type]
            with pytest.raises(InvalidPermitsError, match=r"^Invalid permit type"):
                await limiter.update(strange, 1)  # type: ignore[arg-type]
        assert theirs.size == 3

    run(test)


def test_limits_of_each_kind_change_by_themselves() -> None:
    async def test() -> None:
        limiter = limiter_of(10)
        for each in range(1, 20):
            limits = DualMemoryLimits(
                SemaphoreLimits(each, each, each), SemaphoreLimits(2 * each, each, each)
            )
            limiter.configure(limits)
            assert limiter.side(HEAP).limits == limits.heap
            assert limiter.side(DIRECT).limits == limits.direct

    run(test)


def test_latency_is_told_with_its_kind() -> None:
    async def test() -> None:
        told: list[tuple[LimitType, int]] = []
        limiter = limiter_of(10, timeout_ns=20 * MS, latency=lambda *each: told.append(each))
        await limiter.acquire(10, HEAP)
        await limiter.acquire(100, DIRECT)
        with pytest.raises(PermitAcquireTimeoutError):
            await limiter.acquire(1, DIRECT)
        assert told[:3] == [(HEAP, 0), (DIRECT, 0), (DIRECT, LARGEST)]
        assert told[3][0] is DIRECT
        assert 20 * MS <= told[3][1] < LARGEST

    run(test)


# --- held memory ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LimitType)
def test_held_memory_follows_its_size_and_comes_back(kind: LimitType) -> None:
    async def test() -> None:
        limiter = limiter_of(10)
        async with limiter.held(3, kind) as memory:
            for size in (3, 9, 0, 10, 4):
                await memory.resize(size)
                assert memory.size == limiter.side(kind).acquired == size
                assert limiter.side(OTHER[kind]).acquired == 0
        assert memory.size == 0
        assert acquired(limiter) == (0, 0)

    run(test)


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError, GeneratorExit])
def test_held_memory_comes_back_however_it_ends(error: type[BaseException]) -> None:
    async def test() -> None:
        limiter = limiter_of(10)

        async def use() -> None:
            async with limiter.held(3, HEAP) as memory:
                await memory.resize(7)
                raise error

        with pytest.raises(error):
            await use()
        assert acquired(limiter) == (0, 0)

    run(test)


def test_a_resize_that_fails_keeps_what_is_held_until_the_end() -> None:
    async def test() -> None:
        limiter = limiter_of(10, timeout_ns=20 * MS)
        async with limiter.held(3, HEAP) as memory, limiter.held(7, HEAP):
            for size, error in (
                (4, PermitAcquireTimeoutError),
                (11, InvalidPermitsError),
                (-1, InvalidPermitsError),
            ):
                with pytest.raises(error):
                    await memory.resize(size)
                assert memory.size == 3
        assert acquired(limiter) == (0, 0)

    run(test)


def test_memory_that_is_not_there_is_not_entered() -> None:
    async def test() -> None:
        limiter = limiter_of(10, timeout_ns=20 * MS)
        async with limiter.held(10, HEAP):
            with pytest.raises(PermitAcquireTimeoutError):
                async with limiter.held(1, HEAP):
                    raise AssertionError("entered")
            with pytest.raises(PermitAcquireTimeoutError):
                async with limiter.held(1, HEAP, lambda: True):
                    raise AssertionError("entered")  # nothing is looked at while nothing is there
        with pytest.raises(PermitAcquireCancelledError):
            async with limiter.held(1, HEAP, lambda: True):
                raise AssertionError("entered")
        assert acquired(limiter) == (0, 0)

    run(test)


@pytest.mark.parametrize("after", range(12))
def test_whenever_its_task_is_cancelled_held_memory_comes_back(after: int) -> None:
    async def test() -> None:
        # Who holds and wants more waits behind who wants what it holds, until the time is over.
        limiter = limiter_of(10, timeout_ns=30 * MS)

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

    run(test)


def test_memory_is_not_resized_outside_nor_by_two_at_once() -> None:
    async def test() -> None:
        limiter = limiter_of(10)
        async with limiter.held(3, HEAP) as memory, limiter.held(7, HEAP) as other:
            resizes = [asyncio.create_task(memory.resize(5)) for _ in range(2)]
            await until(lambda: limiter.side(HEAP).queue_size == 2)
            await other.resize(0)
            ends = await asyncio.gather(*resizes, return_exceptions=True)
            assert [type(each) for each in ends] == [type(None), InvalidPermitsError]
            assert memory.size == limiter.side(HEAP).acquired == 5
            late = asyncio.create_task(memory.resize(9))
            blocked = await limiter.acquire(2, HEAP)
            await until(lambda: limiter.side(HEAP).queue_size == 1)
        limiter.release(blocked)
        with pytest.raises(InvalidPermitsError):
            await late  # granted when nobody was there any more
        with pytest.raises(InvalidPermitsError, match="not held any more"):
            await memory.resize(1)
        with pytest.raises(InvalidPermitsError, match="not held any more"):
            memory.hand_over()
        async with memory:
            with pytest.raises(InvalidPermitsError, match="held already"):
                await memory.__aenter__()
        assert acquired(limiter) == (0, 0)

    run(test)


# --- what is written ------------------------------------------------------------------------


def update_of(size: int) -> pb.CommandScalableTopicUpdate:
    return pb.CommandScalableTopicUpdate(session_id=1, message="x" * size)


@asynccontextmanager
async def peer_and_client(
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[tuple[Peer, Raw]]:
    async with serving(limits=limits) as server, raw(server.port) as client:
        await client.handshake()
        (peer,) = server.peers
        yield peer, client


def test_direct_memory_is_held_until_the_other_side_has_taken_the_message() -> None:
    async def test() -> None:
        limiter = limiter_of(10 * UNREAD)
        async with peer_and_client() as (peer, client):
            sends = [
                asyncio.create_task(send_within(limiter, peer, update_of(UNREAD))) for _ in range(3)
            ]
            await until(lambda: limiter.side(DIRECT).acquired > 0)
            await asyncio.sleep(0.05)
            assert not sends[-1].done()
            before = limiter.side(DIRECT).acquired
            assert before >= UNREAD
            for _ in range(3):
                answer = await client.answer()
                assert answer is not None
                assert len(answer.scalableTopicUpdate.message) == UNREAD
                assert limiter.side(DIRECT).acquired <= before
            assert await asyncio.gather(*sends) == [True] * 3
            assert acquired(limiter) == (0, 0)
            assert peer.is_drained

    run(test)


def test_never_does_more_wait_on_a_connection_than_is_held_for_it() -> None:
    async def test() -> None:
        limiter = limiter_of(10 * UNREAD)
        async with peer_and_client() as (peer, client):
            transport = peer._transport
            assert transport is not None
            sizes = [400_000, 3, 1_000_000, 70_000, 2_500_000, 1, 65_536, 900_000] * 2
            sends = [
                asyncio.create_task(send_within(limiter, peer, update_of(each))) for each in sizes
            ]
            taken = 0
            while taken < len(sizes):
                assert await client.answer() is not None
                taken += 1
                unsent = transport.get_write_buffer_size()
                assert limiter.side(DIRECT).acquired + 8 * len(sizes) >= unsent
            assert await asyncio.gather(*sends) == [True] * len(sizes)
            assert acquired(limiter) == (0, 0)

    run(test)


def test_what_is_written_behind_a_message_does_not_keep_its_memory() -> None:
    """However much follows: who is watched by others all the time would never be done."""

    async def test() -> None:
        limiter = limiter_of(10 * UNREAD)
        async with peer_and_client() as (peer, client):
            before = 0
            while peer.is_drained:  # sockets have taken all so far
                peer.send(update_of(1_000_000))
                before += 1
                await asyncio.sleep(0)
            first = asyncio.create_task(send_within(limiter, peer, update_of(UNREAD)))
            await until(lambda: limiter.side(DIRECT).acquired > 0)
            for _ in range(before + 1 + 20):
                peer.send(update_of(1_000_000))
                assert await client.answer() is not None
                await asyncio.sleep(0.01)
            assert await first
            assert acquired(limiter) == (0, 0)
            assert not peer.is_drained

    run(test)


def test_who_does_not_read_holds_memory_until_the_time_is_over_and_others_go_on() -> None:
    async def test() -> None:
        limiter = limiter_of(UNREAD)
        limits = ConnectionLimits(unread_s_max=0.2)
        async with peer_and_client(limits) as (peer, _), peer_and_client() as (other, reader):
            sends = [
                asyncio.create_task(send_within(limiter, peer, update_of(UNREAD))) for _ in range(3)
            ]
            await until(lambda: limiter.side(DIRECT).acquired >= UNREAD)
            assert await send_within(limiter, other, update_of(1_000))
            assert await reader.answer() is not None
            assert peer.is_open
            ends = await asyncio.gather(*sends)
            assert not ends[-1]
            assert "does not read" in await peer.closed
            assert acquired(limiter) == (0, 0)
            assert not await send_within(limiter, other, update_of(1)) or other.is_open

    run(test)


def test_a_message_too_small_to_fill_the_connection_is_taken_in_time_or_it_ends() -> None:
    """Below the mark from which a connection counts as not read, memory is not free either."""

    async def test() -> None:
        limiter = limiter_of(UNREAD)
        async with peer_and_client(ConnectionLimits(unread_s_max=0.3)) as (peer, _):
            transport = peer._transport
            assert transport is not None
            while not transport.get_write_buffer_size():
                peer.send(update_of(10_000))
                await asyncio.sleep(0.01)
            await until(lambda: peer.is_drained)
            assert not await send_within(limiter, peer, update_of(1_000))
            assert "does not read" in await peer.closed
            assert acquired(limiter) == (0, 0)

    run(test)


def test_a_client_that_goes_away_gives_back_what_it_held() -> None:
    async def test() -> None:
        limiter = limiter_of(UNREAD)
        async with peer_and_client() as (peer, client):
            sends = [
                asyncio.create_task(send_within(limiter, peer, update_of(UNREAD))) for _ in range(3)
            ]
            await until(lambda: limiter.side(DIRECT).acquired >= UNREAD)
            client.writer.transport.abort()
            ends = await asyncio.gather(*sends)
            assert not ends[-1]
            assert acquired(limiter) == (0, 0)

    run(test)


def test_who_no_longer_waits_for_a_write_holds_its_memory_until_the_bytes_are_gone() -> None:
    async def test() -> None:
        limiter = limiter_of(UNREAD)
        async with peer_and_client() as (peer, client):
            sends = [
                asyncio.create_task(send_within(limiter, peer, update_of(UNREAD))) for _ in range(3)
            ]
            await until(lambda: limiter.side(DIRECT).acquired >= UNREAD)
            await asyncio.sleep(0.02)
            held = limiter.side(DIRECT).acquired
            for send in sends:
                send.cancel()
            await asyncio.wait(sends)
            assert limiter.side(DIRECT).acquired == held
            for _ in range(3):
                assert await client.answer() is not None
            await until(lambda: acquired(limiter) == (0, 0))

    run(test)


def test_a_connection_that_is_over_takes_nothing_and_holds_nothing() -> None:
    async def test() -> None:
        limiter = limiter_of(UNREAD)
        async with peer_and_client() as (peer, _):
            peer.abort("the test")
            with pytest.raises(PermitAcquireCancelledError):
                await send_within(limiter, peer, update_of(10))
            assert not await peer.taken()
            assert acquired(limiter) == (0, 0)

    run(test)


def test_a_message_that_fits_no_frame_takes_no_memory() -> None:
    async def test() -> None:
        limiter = limiter_of(UNREAD)
        async with peer_and_client(ConnectionLimits(frame_bytes_max=1_000)) as (peer, _):
            with pytest.raises(FrameError):
                await send_within(limiter, peer, update_of(2_000))
            assert acquired(limiter) == (0, 0)
            assert await send_within(limiter, peer, update_of(900))

    run(test)


def test_a_frame_is_made_when_there_is_memory_for_it_and_sent_as_it_is() -> None:
    async def test() -> None:
        limiter = limiter_of(10)
        made: list[bool] = []
        frame = encode_frame(commands.envelope(update_of(50)).SerializeToString())

        def make() -> bytes:
            made.append(True)
            return frame

        async with peer_and_client() as (peer, client):
            blocked = await limiter.acquire(100, DIRECT)
            write = asyncio.create_task(write_within(limiter, peer, len(frame), make))
            await until(lambda: limiter.side(DIRECT).queue_size == 1)
            assert made == []
            limiter.release(blocked)
            assert await write
            answer = await client.answer()
            assert answer is not None
            assert answer.scalableTopicUpdate.message == "x" * 50

    run(test)


def test_a_connection_that_lets_too_much_pile_up_ends_what_waits_for_it() -> None:
    async def test() -> None:
        limiter = limiter_of(10 * UNREAD)
        limits = ConnectionLimits(unsent_bytes_max=2 * UNREAD)
        async with peer_and_client(limits) as (peer, _):
            sends = [
                asyncio.create_task(send_within(limiter, peer, update_of(UNREAD))) for _ in range(6)
            ]
            ends = await asyncio.gather(*sends, return_exceptions=True)
            assert False in ends
            assert "does not read" in await peer.closed
            assert acquired(limiter) == (0, 0)

    run(test)
