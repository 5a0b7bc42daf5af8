"""`Recurring`: repeats a node's work for its topics, one round at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.service import TopicService


class Recurring:
    """Begins a round each time that one is due, with the ticks of the service.

    One that takes long is begun again after as long at least: others need Kafka, too. `what`: for
    the sentence on a fault, which the node tells, since it would silently miss something else.
    """

    def __init__(
        self,
        service: TopicService,
        what: str,
        work: Callable[[], Awaitable[None]],
        interval_s: float,
        now: Callable[[], float],
    ) -> None:
        self._runtime = service.runtime
        self._what = what
        self._work = work
        self._interval_s = interval_s
        self._now = now
        self._next_at = now() + interval_s
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger(broker=service.runtime.core.me)
        service.tickers.append(self._ticked)

    def _ticked(self) -> None:
        if self._task is None and self._now() >= self._next_at:
            self._task = asyncio.create_task(self._round(), name=self._what)

    async def _round(self) -> None:
        began = self._now()
        try:
            await self._work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on and tells it
            self._log.error("node.fault", exc_info=error)
            self._runtime.fail(f"a fault while {self._what}: {error}")
        now = self._now()
        self._next_at = max(began + self._interval_s, 2 * now - began)
        self._task = None

    async def stop(self) -> None:
        """Ends work under way, and begins nothing more."""
        self._next_at = math.inf
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
