"""`RunsHandlers`: what consumers share that have a handler work on their messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from anabranch.client._aio import MessageT, Receiving
from anabranch.core.errors import InvalidInputError
from anabranch.wire.logging import EventLog
from anabranch.wire.supervised import supervised

LEFT_S: Final = 1.0  # for handlers that do not end when they are cancelled


def cancel(running: Iterable[asyncio.Task[None]]) -> None:
    """Cancels what runs, once: it may be cleaning up."""
    for task in running:
        if not task.cancelling():
            task.cancel()


async def cancelled(running: Collection[asyncio.Task[None]], logger: EventLog) -> int:
    """Cancels what runs, and waits a moment for it. Returns how many it leaves behind."""
    cancel(running)
    if not running:
        return 0
    _, left = await asyncio.wait(running, timeout=LEFT_S)
    if left:
        logger.warning("handler.left_behind", count=len(left))
    return len(left)


class HandlerRun(Protocol):
    """One run of a handler."""

    def begin_drain(self) -> None: ...
    @property
    def is_within(self) -> bool: ...
    async def drain(self, limit_s: float | None) -> None: ...
    async def cancel(self) -> None: ...


class RunsHandlers(Receiving[MessageT]):
    """A consumer either runs a handler, once, or receives."""

    _run: HandlerRun | None = None
    _drain_s: float = math.inf
    _stopping: asyncio.Task[None] | None = None

    async def stop(self, drain_s: float | None = None) -> None:
        """Ends `run`: starts nothing more, waits for what runs, then closes the consumer. In a
        handler it returns at once, and the rest follows.

        After `drain_s` seconds it cancels what still runs; unless given, after `settle_timeout_s`
        of a stream, and never of a queue.
        """
        begin_stop(self, drain_s)
        if self._stopping is not None and not (self._run is not None and self._run.is_within):
            await asyncio.shield(self._stopping)

    async def _end(self, limit_s: float | None) -> None:
        if self._run is not None:
            await self._run.drain(limit_s)
        await self.close()

    def _begins_run(self, has_received: bool) -> None:
        """Raises InvalidInputError if it may not begin to run."""
        if self._run is not None or has_received:
            raise InvalidInputError(
                f"{self._home.what} has received messages, or runs "
                "already: one either receives or runs, once"
            )

    def _must_not_run(self) -> None:
        if self._run is not None:
            raise InvalidInputError(
                f"{self._home.what} gives its messages to the handler "
                "of run, whose end settles them: make another consumer to receive"
            )


def begin_stop(consumer: RunsHandlers[MessageT], drain_s: float | None = None) -> None:
    """Does as `stop`, and waits for nothing. Call it on the consumer's event loop."""
    consumer._home.check()
    if consumer._run is not None:
        consumer._run.begin_drain()
    limit_s = consumer._drain_s if drain_s is None else drain_s
    end = consumer._end(None if math.isinf(limit_s) else limit_s)
    consumer._stopping = supervised(end, "stop")
