"""`PushPace`: keeps pushes to many clients out of the way of a node's other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_SLICE_S: Final = 0.005  # of pushes, before others have their turn: heartbeats above all


class PushPace:
    """Lets the clients of a node be told one after the other, a slice of time each.

    A change that 100,000 watches are to hear of is seconds of work: without a pause the node would
    lose its lease meanwhile.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.turn = asyncio.Lock()
        self._now = now
        self._until = 0.0

    def begin(self) -> None:
        """A slice begins."""
        self._until = self._now() + _SLICE_S

    @property
    def is_over(self) -> bool:
        """True once the slice is over."""
        return self._now() >= self._until
