"""`RunsHandlers`: what consumers share that have a handler work on their messages."""

from __future__ import annotations

import math
from typing import Protocol

from anabranch.client._aio import MessageT
from anabranch.client._consumer.consumer import Consumer
from anabranch.core.errors import InvalidInputError


class HandlerRun(Protocol):
    """One run of a handler."""

    def begin_drain(self) -> None: ...
    @property
    def is_within(self) -> bool: ...
    async def drain(self, limit_s: float | None) -> None: ...
    async def cancel(self) -> None: ...


class RunsHandlers(Consumer[MessageT]):
    """A consumer either runs a handler, once, or receives."""

    _run: HandlerRun | None = None
    _drain_s: float = math.inf

    async def stop(self, drain_s: float | None = None) -> None:
        """Ends `run`: starts nothing more, waits for what runs, then closes the consumer. In a
        handler it returns at once, and the rest follows.

        After `drain_s` seconds it cancels what still runs; unless given, after `settle_timeout_s`
        of a stream, and never of a queue.
        """
        self._home.check()
        run = self._run
        if run is not None:
            limit_s = self._drain_s if drain_s is None else drain_s
            run.begin_drain()
            if run.is_within:
                return  # `run` closes it, once this handler has ended, too
            await run.drain(None if math.isinf(limit_s) else limit_s)
        await self.close()

    def _begins_run(self, has_received: bool) -> None:
        """Raises InvalidInputError if it may not begin to run."""
        if self._run is not None or has_received:
            raise InvalidInputError(
                f"consumer {self.consumer_name} of {self.topic} has received messages, or runs "
                "already: one either receives or runs, once"
            )

    def _must_not_run(self) -> None:
        if self._run is not None:
            raise InvalidInputError(
                f"consumer {self.consumer_name} of {self.topic} gives its messages to the handler "
                "of run, whose end settles them: make another consumer to receive"
            )
