"""A consumer that runs a handler, whose calls end as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from anabranch import client as sdk
from support.lone_consumers import Filled, consuming
from support.memory_cluster import until


class Handling:
    """A handler whose every call waits until the test lets its message go on."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.attempts: list[int] = []
        self.waits: dict[int, asyncio.Future[BaseException | None]] = {}

    async def __call__(self, message: sdk.Message, work: sdk.Work) -> None:
        offset = message.offset
        self.begun.append(offset)
        self.attempts.append(work.attempt)
        wait = self.waits[offset] = asyncio.get_running_loop().create_future()
        try:
            error = await wait
        finally:
            self.ended.append(offset)
        if error is not None:
            raise error

    @property
    def running(self) -> set[int]:
        return {offset for offset, wait in self.waits.items() if not wait.done()}

    async def end(self, offset: int, error: BaseException | None = None) -> None:
        await until(lambda: offset in self.running)
        self.waits[offset].set_result(error)
        await asyncio.sleep(0)


@asynccontextmanager
async def running(
    handler: Callable[..., Any], end: int = 100, **options: Any
) -> AsyncIterator[tuple[sdk.StreamConsumer, Filled, asyncio.Task[None]]]:
    async with consuming(end, settle_timeout_s=60.0) as (consumer, plane):
        run = asyncio.create_task(consumer.run(handler, **options))
        await asyncio.sleep(0)
        try:
            yield consumer, plane, run
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


def read(consumer: sdk.StreamConsumer, plane: Filled, keys: str, first: int = 0) -> None:
    """A message for each letter; `-` has no key, `_` an empty one."""
    known: dict[str, bytes | None] = {"-": None, "_": b""}
    offsets = range(first, first + len(keys))
    plane.read(offsets, [known.get(key, key.encode()) for key in keys])
    consumer._readable.set()
