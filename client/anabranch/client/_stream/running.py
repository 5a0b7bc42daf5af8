"""`RunsByKey`: what stream consumers share, of one topic and of many."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Unpack

from anabranch.client._consumer.messages import Message
from anabranch.client._consumer.running import RunsHandlers
from anabranch.client._errors import ClosedError
from anabranch.client._settings import ConsumerSettings
from anabranch.client._stream.handler_threads import as_async
from anabranch.client._stream.part import BlockedKey, RunPart
from anabranch.client._stream.run import Run
from anabranch.client._stream.settings import (
    BatchHandler,
    BatchOf,
    BatchSettings,
    Handler,
    RunOptions,
    RunSettings,
)
from anabranch.client._stream.stats import WorkStats
from anabranch.wire.logging import EventLog


class RunsByKey(RunsHandlers[Message]):
    """A stream consumer that runs a handler: messages of a key in order, keys side by side."""

    _run: Run | None = None
    _settings: ConsumerSettings
    _now: Callable[[], float]
    _logger: EventLog

    async def run(self, handler: Handler, **options: Unpack[RunOptions]) -> None:
        """Works on messages side by side, the messages of each key one after the other.

        `handler(message, work)` is an async function, or a plain one, which then runs on threads.
        When it returns, the message is acknowledged. When it raises, the key waits for the next
        attempt, and other keys go on (`Retry`). `RunSettings` has the options. Returns once the
        consumer is closed, or `stop` is called.

        Raises InvalidInputError, also after `receive`; HandlerError if a failure is to stop it; and
        the error of a consumer that has failed.
        """
        await self._work(handler, RunSettings(**options), None)

    async def run_batches(
        self,
        handler: BatchHandler,
        *,
        batch_max: int = 100,
        wait_s: float = 0.05,
        of: BatchOf = "key",
        **options: Unpack[RunOptions],
    ) -> None:
        """Works as `run`, on several messages in one call: `handler([(message, work), ...])`.

        `BatchSettings` has the first options. When the handler raises BatchFailed, the messages
        that it names have failed. After any other error all come again in halves, down to the one
        that fails alone, and only that counts as an attempt.
        """
        batches = BatchSettings(batch_max=batch_max, wait_s=wait_s, of=of)
        settings = RunSettings(**options)
        batches.check(settings.ordering)
        await self._work(handler, settings, batches)

    async def _work(
        self,
        handler: Handler | BatchHandler,
        settings: RunSettings,
        batches: BatchSettings | None,
    ) -> None:
        self._home.check()
        settings.check(handler, self._settings.settle_s)
        self._may_run(settings)
        self._begins_run(self._has_received)
        with as_async(handler, settings.concurrency) as called, contextlib.suppress(ClosedError):
            self._run = run = Run(
                called, settings, batches, self._now, self._logger, self._check, self._part_failed
            )
            self._join_run(run)
            await run.drive()
            await self.close()

    def blocked(self) -> list[BlockedKey]:
        """The messages that have failed in `run`, and for which their keys wait."""
        return [] if self._run is None else list(self._run.blocked())

    def stats(self) -> WorkStats | None:
        """Tells what `run` does now, and has done so far; None if it does not run."""
        return None if self._run is None else self._run.stats()

    @property
    @abstractmethod
    def _has_received(self) -> bool:
        """Tells whether messages were given out."""

    @abstractmethod
    def _check(self) -> None:
        """Raises what ends the consumer."""

    @abstractmethod
    def _may_run(self, settings: RunSettings) -> None:
        """Raises InvalidInputError if it lacks something that a run needs."""

    @abstractmethod
    def _join_run(self, run: Run) -> None:
        """Has its topics take part in a run."""

    @abstractmethod
    def _part_failed(self, part: RunPart, error: Exception) -> None:
        """Takes the failure of a topic's consumer in a run, or raises it."""
