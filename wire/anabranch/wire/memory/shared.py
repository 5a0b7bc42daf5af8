"""Answers that many connections send: made once, kept once, and counted once by the limiter.

A list of topics is the same for all requests at the same place in the log, except for their ids.
The ids are in a frame's head. Behind it comes the *payload*, one object of bytes that all of their
transports refer to. Two serialized messages of one type, one behind the other, are the message with
the fields of both.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from google.protobuf.message import Message

from anabranch.wire import commands
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.errors import FrameError
from anabranch.wire.memory.limiter import (
    AsyncDualMemoryLimiter,
    AsyncDualMemoryLimiterPermit,
    LimitType,
)
from anabranch.wire.varint import before_nested

_SIZES: Final = struct.Struct(">II")


def frame_head(message: Message, payload_bytes: int, frame_bytes_max: int) -> bytes:
    """Returns the head that makes a frame of a payload behind it: sizes, envelope, and this
    message.

    `message` is one of the .proto file's Command... messages, with the fields that the payload
    lacks. Raises FrameError if the frame is larger than it may be.
    """
    own = message.SerializePartialToString()
    size = len(own) + payload_bytes
    number = commands.number_of(message)
    envelope = BaseCommand(type=commands.name_of(number)).SerializeToString()
    envelope += before_nested(number, size)
    command_size = len(envelope) + size
    total = 4 + command_size
    if total > frame_bytes_max:
        raise FrameError(f"a command of {command_size} bytes: a frame holds {frame_bytes_max}")
    return _SIZES.pack(total, command_size) + envelope + own


class SharedMemory:
    """Memory of the limiter that is held as long as anybody uses it, on one event loop."""

    def __init__(self, limiter: AsyncDualMemoryLimiter, limit_type: LimitType) -> None:
        self._limiter = limiter
        self._limit_type = limit_type
        self._users = 0
        self._acquired: asyncio.Task[AsyncDualMemoryLimiterPermit] | None = None

    @asynccontextmanager
    async def used(self, size: int) -> AsyncIterator[None]:
        """Holds the memory within the context. The first user waits for it, and the others with
        that one. All give the same size. Raises PermitAcquireError.
        """
        self._users += 1
        try:
            if self._acquired is None or _has_failed(self._acquired):
                self._acquired = asyncio.create_task(
                    self._limiter.acquire(size, self._limit_type), name="shared memory"
                )
            if not self._acquired.done():
                await asyncio.shield(self._acquired)
            self._acquired.result()
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._give_back()

    def _give_back(self) -> None:
        acquired, self._acquired = self._acquired, None
        if acquired is None:
            return
        if not acquired.done():
            acquired.cancel()  # the semaphore sees to what it had given already
            acquired.add_done_callback(_look_at)
        elif not _has_failed(acquired):
            self._limiter.release(acquired.result())


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _look_at(task: asyncio.Task[Any]) -> None:
    """Retrieves the exception, because the loop would warn of one that nobody retrieves."""
    if not task.cancelled():
        task.exception()


class SharedPayload:
    """A payload that its first user assembles, within heap memory of `heap_bytes`. It is held until
    the last user's socket has taken it, within direct memory of its size.

    `make` is called on the event loop. It is called again if it failed, or if its result was not
    kept while nobody used it. Then it makes the same. `is_kept` is called with the size when nobody
    uses it any more. A payload that is only kept holds no permits.
    """

    def __init__(
        self,
        limiter: AsyncDualMemoryLimiter,
        heap_bytes: int,
        make: Callable[[], Awaitable[bytes]],
        is_kept: Callable[[SharedPayload, int], bool] = lambda _payload, _size: False,
    ) -> None:
        self._heap_bytes = heap_bytes
        self._heap = SharedMemory(limiter, LimitType.HEAP_MEMORY)
        self._direct = SharedMemory(limiter, LimitType.DIRECT_MEMORY)
        self._make = make
        self._is_kept = is_kept
        self._made: bytes | None = None
        self._making = asyncio.Lock()
        self._users = 0

    @asynccontextmanager
    async def used(self) -> AsyncIterator[bytes]:
        """Returns the bytes, within a context that lasts until they are sent.
        Raises PermitAcquireError.
        """
        self._users += 1
        try:
            async with self._heap.used(self._heap_bytes):
                async with self._making:
                    if self._made is None:
                        self._made = await self._make()
                made = self._made
                async with self._direct.used(len(made)):
                    yield made
        finally:
            self._users -= 1
            if not self._users and self._made and not self._is_kept(self, len(self._made)):
                self._made = None

    def forget(self) -> None:
        """Ends the keeping as soon as nobody uses it."""
        if not self._users:
            self._made = None
