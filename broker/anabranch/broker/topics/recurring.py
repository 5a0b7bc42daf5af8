"""`Recurring`: a node's work for its topics that is repeated, one round at a time."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from anabranch.broker.errors import OperationError
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.service import TopicService


class Recurring(ABC):
    """Begins a round each time that one is due, with the ticks of the service.

    One that takes long is begun again after as long at least: others need Kafka, too. `what`: for
    the sentence on a fault, which the node tells, since it would silently miss something else.
    """

    def __init__(
        self, service: TopicService, what: str, interval_s: float, now: Callable[[], float]
    ) -> None:
        self._service = service
        self._runtime = service.runtime
        self._what = what
        self._interval_s = interval_s
        self._now = now
        self._next_at = now() + interval_s
        self._round: asyncio.Task[None] | None = None
        self._troubles: set[tuple[str, str]] = set()  # of this round: topic, and why
        self._told: set[tuple[str, str]] = set()  # those of the one before
        self._log = get_logger(broker=service.runtime.core.me)
        service.tickers.append(self._ticked)

    @abstractmethod
    async def round(self) -> None:
        """Does the work once. Raises OperationError if Kafka does not do its part."""

    @abstractmethod
    def _tell(self, why: str, topic: str) -> None:
        """Logs why something was not done, for a topic or for all ("")."""

    async def stop(self) -> None:
        """Ends work under way, and begins nothing more."""
        self._next_at = math.inf
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    def _ticked(self) -> None:
        if self._round is None and self._now() >= self._next_at:
            self._round = asyncio.create_task(self._run(), name=self._what)

    async def _run(self) -> None:
        began = self._now()
        self._told, self._troubles = self._troubles, set()
        try:
            await self.round()
        except OperationError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on and tells it
            self._log.error("node.fault", exc_info=error)
            self._runtime.fail(f"a fault while {self._what}: {error}")
        now = self._now()
        self._next_at = max(began + self._interval_s, 2 * now - began)
        self._round = None

    def _failed(self, error: OperationError, topic: str = "") -> None:
        """Tells it, unless it was told for the same; the next round tries again."""
        trouble = topic, error.reason
        if trouble not in self._troubles | self._told:
            self._tell(error.reason, topic)
        self._troubles.add(trouble)
