"""`QueueRun`: a queue's messages go to handlers side by side, in no order.

Each message is settled when its handler ends: acknowledged, released for another attempt, or
rejected. Kafka counts the attempts, as deliveries, and locks a message for a time, after which it
gives it to another consumer. So an attempt ends with its lock at the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypedDict

import msgspec

from anabranch.client._consumer.running import cancelled
from anabranch.client._errors import ClosedError
from anabranch.client._queue.messages import QueueMessage
from anabranch.client._stream.retry import Again, Backoff, Reject
from anabranch.client._stream.settings import check_handler
from anabranch.client._stream.work import Work
from anabranch.core.errors import InvalidInputError
from anabranch.wire.logging import EventLog
from anabranch.wire.supervised import supervised

_LOOK_S: Final = 0.5


class QueueRunOptions(TypedDict, total=False):
    """The settings of `QueueRunSettings`, as keyword arguments."""

    concurrency: int
    timeout_s: float | None
    delay_s: Backoff


class QueueRunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue's messages are worked on.

    `concurrency` handlers run at once. `timeout_s` is the longest time of one attempt, which also
    ends when Kafka is to give the message to another consumer. `delay_s` are the waits before the
    next attempt, at most 0.8 of the group's lock.
    """

    concurrency: int = 100
    timeout_s: float | None = None
    delay_s: Backoff = Backoff()

    def check(self, handler: Any) -> None:
        """Raises InvalidInputError."""
        check_handler(handler, self.concurrency)
        if self.timeout_s is not None and self.timeout_s <= 0.0:
            raise InvalidInputError(f"timeout_s is above 0: {self.timeout_s}")
        if not isinstance(self.delay_s, Backoff):
            raise InvalidInputError(f"delay_s must be a Backoff: {self.delay_s!r}")
        self.delay_s.check()


class Jobs(msgspec.Struct, frozen=True):
    """The abilities of a consumer that its run needs."""

    next: Callable[[], Awaitable[QueueMessage]]
    acknowledge: Callable[[QueueMessage], bool]
    release: Callable[..., bool]
    reject: Callable[..., bool]
    incarnation: Callable[[], int]
    longest_delay_s: Callable[[], float]


class QueueRun:
    """One run of a queue consumer, on its event loop."""

    def __init__(
        self,
        jobs: Jobs,
        handler: Callable[..., Awaitable[Any]],
        settings: QueueRunSettings,
        logger: EventLog,
    ) -> None:
        self._jobs = jobs
        self._handler = handler
        self._settings = settings
        self._logger = logger
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_cancelled = False

    async def drive(self) -> None:
        """Works until it is stopped, or raises what ends the consumer."""
        self._taking = supervised(self._take(), "queue run")
        try:
            await asyncio.wait([self._taking])
            while self._tasks and not self._is_cancelled:
                await self.drain(_LOOK_S)
            if not self._taking.cancelled():
                with contextlib.suppress(ClosedError):
                    self._taking.result()
            if self._failure is not None:
                raise self._failure
        finally:
            await self.cancel()

    def begin_drain(self) -> None:
        """Starts nothing more."""
        if self._taking is not None:
            self._taking.cancel()

    @property
    def is_within(self) -> bool:
        """Tells whether one of its handlers asks."""
        return asyncio.current_task() in self._tasks

    async def drain(self, limit_s: float | None) -> None:
        """Waits for what runs, for so many seconds at most."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=limit_s)

    async def cancel(self) -> None:
        """Cancels what runs, and waits a moment for it. It leaves behind what does not end."""
        self.begin_drain()
        self._is_cancelled = True
        await cancelled(list(self._tasks), self._logger)

    async def _take(self) -> None:
        while True:
            await self._slots.acquire()
            try:
                message = await self._jobs.next()
            except BaseException:
                self._slots.release()
                raise
            task = supervised(self._work(message), "handler")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, message: QueueMessage) -> None:
        """Works on one message. A fault of ours, or what ends the process, ends `drive`."""
        try:
            error = await self._attempt(message)
            self._settle(message, error)
        except BaseException as fault:
            self._failure = self._failure or fault
            self.begin_drain()
            if not isinstance(fault, Exception):
                raise
        finally:
            self._slots.release()

    async def _attempt(self, message: QueueMessage) -> BaseException | None:
        """Returns what the handler raised."""
        loop, timeout_s = asyncio.get_running_loop(), self._settings.timeout_s
        left_s = message.delivery.hold_until - time.monotonic()
        deadline = loop.time() + (left_s if timeout_s is None else min(timeout_s, left_s))
        work = Work(message, self._jobs.incarnation(), message.delivery_count, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await self._handler(message, work)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the handler's
            return error
        return None

    def _settle(self, message: QueueMessage, error: BaseException | None) -> None:
        jobs, task = self._jobs, asyncio.current_task()
        if error is None:
            in_time = jobs.acknowledge(message)
        elif isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            in_time = jobs.release(message)
        elif isinstance(error, Reject):
            in_time = jobs.reject(message, error=error)
        elif isinstance(error, Again):
            in_time = jobs.release(message, delay_s=min(error.delay_s, jobs.longest_delay_s()))
        else:
            delay_s = self._settings.delay_s.delay_s(message.delivery_count)
            delay_s = min(delay_s, jobs.longest_delay_s())
            in_time = jobs.release(message, delay_s=delay_s, error=error)
        if not in_time:
            self._logger.warning(
                "handler.too_late",
                segment=message.segment_id,
                bucket=message.bucket,
                offset=message.offset,
                deliveries=message.delivery_count,
            )
