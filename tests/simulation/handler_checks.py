"""Who works on which key of a subscription: never two at once, seen with true time.

An application works on a message from its delivery until it acknowledges that, is told that the
bucket is taken away, or dies. A process that stands still does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.client._consumer.holding import Holding
from simulation.scheduler import ViolationError

if TYPE_CHECKING:
    from simulation.consumers import Consumer


class _Handler:
    """Of one message, which ends before `end`."""

    __slots__ = ("consumer", "end", "holding", "life")

    def __init__(self, consumer: Consumer, holding: Holding, end: int) -> None:
        self.consumer = consumer
        self.life = consumer.life
        self.holding = holding
        self.end = end


class HandlerChecks:
    """The observer of all handlers."""

    def __init__(self) -> None:
        self._at_work: dict[tuple[str, str], list[_Handler]] = {}  # by subscription and key
        self._heard_of: set[Holding] = set()
        self._told: set[Holding] = set()
        self.stopped = 0  # holdings that were taken away from somebody at work

    def begins(
        self, subscription: str, key: str, consumer: Consumer, holding: Holding, end: int
    ) -> None:
        """A handler begins: no other one, of another holding, is at work on the key."""
        if holding not in self._heard_of:
            self._heard_of.add(holding)
            holding.listeners.append(lambda: self._stop(holding))
        others = [h for h in self._at_work.get((subscription, key), ()) if self._is_at_work(h)]
        for other in others:
            if other.holding is not holding:
                raise ViolationError(
                    f"{consumer} begins to work on {key} while {other.consumer} works on it: "
                    f"{other.holding.place} below {other.end}, {other.holding.phase.name}"
                )
        self._at_work[subscription, key] = [*others, _Handler(consumer, holding, end)]

    def _stop(self, holding: Holding) -> None:
        self._told.add(holding)
        self.stopped += holding.in_flight

    def _is_at_work(self, handler: _Handler) -> bool:
        consumer, holding = handler.consumer, handler.holding
        if not consumer.alive or consumer.life != handler.life or consumer.is_paused:
            return False
        return holding not in self._told and (holding.acknowledged or 0) < handler.end
