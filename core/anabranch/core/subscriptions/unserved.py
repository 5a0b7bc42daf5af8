"""`UnservedBuckets`: a watchdog for buckets that no present consumer may serve.

A bucket must never wait for longer than `Timing.unserved_s` while a consumer of the subscription is
there to serve it. If one does, a rule is broken, or a consumer does not settle its messages of it:
somebody must look. The assigner keeps the watch, from its own assignments.

Consumers that die just as they are given a bucket add a lapse each to its wait. So a bucket that
has waited for longer than one loss explains is *urgent*, and goes to the consumer that has been
there for longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from anabranch.core.subscriptions.instances import Bucket
from anabranch.core.subscriptions.timing import Timing


class UnservedBuckets:
    """Watches the buckets of one subscription, since its controller took over."""

    def __init__(self, timing: Timing) -> None:
        self._bound_s = timing.unserved_s
        self._urgent_s = timing.urgent_s
        self.urgent: frozenset[Bucket] = frozenset()
        self._since: dict[Bucket, float] = {}
        self._told: set[Bucket] = set()

    def look(self, assignable: Iterable[Bucket], served: Set[Bucket], now: float) -> None:
        """Compares the buckets that may be served with those that are served now."""
        self._since = {b: self._since.get(b, now) for b in assignable if b not in served}
        self._told &= self._since.keys()

    def served(self, buckets: Iterable[Bucket]) -> None:
        """Ends the wait of these, because a present consumer was heard with them."""
        for bucket in buckets:
            self._since.pop(bucket, None)
        self.urgent = self.urgent & self._since.keys()

    def nobody(self) -> None:
        """Forgets all waits: no consumer is there, so none is to blame."""
        self._since.clear()
        self._told.clear()

    def hurries(self, now: float) -> bool:
        """Says whether other buckets are urgent now."""
        before, limit = self.urgent, now - self._urgent_s
        self.urgent = frozenset(b for b, since in self._since.items() if since < limit)
        return self.urgent != before

    def overdue(self, now: float) -> Counter[int]:
        """Counts by segment the buckets that have waited for longer than the bound."""
        limit = now - self._bound_s
        return Counter(bucket[0] for bucket, since in self._since.items() if since < limit)

    def news(self, now: float) -> list[Bucket]:
        """Returns the buckets that have waited for too long by now, each of them once."""
        limit = now - self._bound_s
        found = [b for b, since in self._since.items() if since < limit and b not in self._told]
        self._told.update(found)
        return found
