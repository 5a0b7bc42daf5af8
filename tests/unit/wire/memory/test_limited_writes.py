"""The memory of what is written: held until the bytes are gone, however the other side behaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.core.topic_lists.errors import PermitAcquireCancelledError
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire import commands
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import FrameError
from anabranch.wire.framing import encode_frame
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, write_within
from anabranch.wire.server.server import Peer
from support.limiter import DIRECT, acquired, limiter_of
from support.there import there
from support.waiting import until
from support.wire import Raw, on_both_loops, raw, serving

pytestmark = on_both_loops

UNREAD = 3_000_000  # bytes: more than sockets keep by themselves, in two messages


def update_of(size: int) -> pb.CommandScalableTopicUpdate:
    return pb.CommandScalableTopicUpdate(session_id=1, message="x" * size)


async def send_within(
    limiter: AsyncDualMemoryLimiter, peer: Peer, message: pb.CommandScalableTopicUpdate
) -> bool:
    """As nodes and proxies write lists: with memory of the serialized size."""
    command = commands.envelope(message)
    most = peer.limits.frame_bytes_max
    return await write_within(
        limiter, peer, command.ByteSize(), lambda: encode_frame(command.SerializeToString(), most)
    )


def sent(limiter: AsyncDualMemoryLimiter, peer: Peer, count: int = 3) -> list[asyncio.Task[bool]]:
    """So many messages on their way, each larger than what sockets keep."""
    return [
        asyncio.create_task(send_within(limiter, peer, update_of(UNREAD))) for _ in range(count)
    ]


@asynccontextmanager
async def peer_and_client(
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[tuple[Peer, Raw]]:
    async with serving(limits=limits) as server, raw(server.port) as client:
        await client.handshake()
        (peer,) = server.peers
        yield peer, client


async def test_never_does_more_wait_on_a_connection_than_is_held_for_it() -> None:
    limiter = limiter_of(10 * UNREAD)
    async with peer_and_client() as (peer, client):
        transport = there(peer._transport)
        sizes = [400_000, 3, 1_000_000, 70_000, 2_500_000, 1, 65_536, 900_000] * 2
        sends = [asyncio.create_task(send_within(limiter, peer, update_of(each))) for each in sizes]
        taken = 0
        while taken < len(sizes):
            assert await client.answer() is not None
            taken += 1
            unsent = transport.get_write_buffer_size()
            assert limiter.side(DIRECT).acquired + 8 * len(sizes) >= unsent
        assert await asyncio.gather(*sends) == [True] * len(sizes)
        assert acquired(limiter) == (0, 0)


async def test_what_is_written_behind_a_message_does_not_keep_its_memory() -> None:
    """However much follows: who is watched by others all the time would never be done."""

    limiter = limiter_of(10 * UNREAD)
    async with peer_and_client(ConnectionLimits(unsent_bytes_max=1 << 28)) as (peer, client):
        before = 0
        while peer.is_drained:  # sockets have taken all so far
            peer.send(update_of(1_000_000))
            before += 1
            await asyncio.sleep(0)
        first = asyncio.create_task(send_within(limiter, peer, update_of(UNREAD)))
        await until(lambda: limiter.side(DIRECT).acquired > 0)
        for _ in range(before + 1 + 20):
            for _ in range(2):  # more than is read: sockets come to keep more than at first
                peer.send(update_of(1_000_000))
            assert await client.answer() is not None
            await asyncio.sleep(0.01)
        assert await first
        assert acquired(limiter) == (0, 0)
        assert not peer.is_drained


async def test_who_does_not_read_holds_memory_until_the_time_is_over_and_others_go_on() -> None:
    limiter = limiter_of(UNREAD)
    limits = ConnectionLimits(unread_s_max=0.2)
    async with peer_and_client(limits) as (peer, _), peer_and_client() as (other, reader):
        sends = sent(limiter, peer)
        await until(lambda: limiter.side(DIRECT).acquired >= UNREAD)
        assert await send_within(limiter, other, update_of(1_000))
        assert await reader.answer() is not None
        assert peer.is_open
        ends = await asyncio.gather(*sends)
        assert not ends[-1]
        assert "does not read" in await peer.closed
        assert acquired(limiter) == (0, 0)
        assert not await send_within(limiter, other, update_of(1)) or other.is_open


async def test_a_message_too_small_to_fill_the_connection_is_taken_in_time_or_it_ends() -> None:
    """Below the mark from which a connection counts as not read, memory is not free either."""

    limiter = limiter_of(UNREAD)
    async with peer_and_client(ConnectionLimits(unread_s_max=0.3)) as (peer, _):
        transport = there(peer._transport)
        while not transport.get_write_buffer_size():
            peer.send(update_of(40_000))
            await asyncio.sleep(0.01)
        await until(lambda: peer.is_drained)
        assert not await send_within(limiter, peer, update_of(1_000))
        assert "does not read" in await peer.closed
        assert acquired(limiter) == (0, 0)


async def test_who_no_longer_waits_for_a_write_holds_its_memory_until_the_bytes_are_gone() -> None:
    limiter = limiter_of(UNREAD)
    async with peer_and_client() as (peer, client):
        sends = sent(limiter, peer)
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


async def test_a_connection_that_is_over_takes_nothing_and_holds_nothing() -> None:
    limiter = limiter_of(UNREAD)
    async with peer_and_client() as (peer, _):
        peer.abort("the test")
        with pytest.raises(PermitAcquireCancelledError):
            await send_within(limiter, peer, update_of(10))
        assert not await peer.taken()
        assert acquired(limiter) == (0, 0)


async def test_a_message_that_fits_no_frame_takes_no_memory() -> None:
    limiter = limiter_of(UNREAD)
    async with peer_and_client(ConnectionLimits(frame_bytes_max=1_000)) as (peer, _):
        with pytest.raises(FrameError, match="a frame holds 1000"):
            await send_within(limiter, peer, update_of(2_000))
        assert acquired(limiter) == (0, 0)
        assert await send_within(limiter, peer, update_of(900))


async def test_a_frame_is_made_when_there_is_memory_for_it_and_sent_as_it_is() -> None:
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
        answer = await client.told()
        assert answer.scalableTopicUpdate.message == "x" * 50


@pytest.mark.parametrize("is_gone", [True, False])
async def test_what_writes_held_comes_back_when_their_connection_ends(is_gone: bool) -> None:
    """As a client that goes away does, and one for which too much has piled up."""

    limiter = limiter_of(UNREAD if is_gone else 10 * UNREAD)
    limits = ConnectionLimits() if is_gone else ConnectionLimits(unsent_bytes_max=2 * UNREAD)
    async with peer_and_client(limits) as (peer, client):
        sends = sent(limiter, peer, 3 if is_gone else 6)
        if is_gone:
            await until(lambda: limiter.side(DIRECT).acquired >= UNREAD)
            client.writer.transport.abort()
        assert False in await asyncio.gather(*sends, return_exceptions=True)
        assert is_gone or "does not read" in await peer.closed
        assert acquired(limiter) == (0, 0)
