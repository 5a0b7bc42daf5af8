"""Which sealed segments several consumers drain at once (seed 002, use case 1)."""

from __future__ import annotations

import math

from anabranch.core.assignment import drainable
from anabranch.core.layout import SegmentLayout
from anabranch.core.subscriptions import Subscription


class Backlog:
    """Of one subscription. `after_s`: how long after its seal a segment that is not drained counts
    as one with a backlog; None: never. Readers that keep up are through with it before that.
    """

    def __init__(self, after_s: float | None) -> None:
        self.draining: frozenset[int] = frozenset()
        self._after_s = after_s
        self._since: dict[int, float] = {}
        self._has_looked = False

    def changed(self, layout: SegmentLayout, subscription: Subscription, now: float) -> None:
        """The layout or the subscription may have changed."""
        if self._after_s is None:
            return
        # What a former controller may have dealt out stays so.
        new = now if self._has_looked else -math.inf
        self._has_looked = True
        found = drainable(layout, subscription)
        self._since = {each: self._since.get(each, new) for each in found}

    def look(self, now: float) -> bool:
        """Whether there is another set of them now."""
        after_s = math.inf if self._after_s is None else self._after_s
        late = frozenset(e for e, since in self._since.items() if now - since >= after_s)
        before, self.draining = self.draining, late
        return late != before
