"""The target of one subscription's buckets: the deal of `assignor`, with regard to the absent.

The target is KIP-848's: the final share of each consumer. `handover` says when it may have it.

A bucket must never wait for longer than `Timing.unserved_s` while a consumer of the subscription is
there to serve it. If one does, a rule is broken, or a consumer does not settle its messages of it:
somebody must look. Consumers that die just as they are given a bucket add a lapse each to its wait.
So a bucket that has waited for longer than one loss explains is *urgent*, and goes to the consumer
that has been there for longest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import Subscription
from anabranch.core.subscriptions.absence import Absence
from anabranch.core.subscriptions.assignor import (
    Shares,
    taken_over,
    target,
)
from anabranch.core.subscriptions.draining import (
    Bucket,
    assignable,
    drainable,
)
from anabranch.core.subscriptions.handover import BucketsInUse, Instance
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


class ParallelDrain:
    """The sealed segments of a subscription that several consumers drain at once (PIP-486, use case
    1). `after_s`: the time after its seal at which an undrained segment counts as one with a
    backlog; None: never. Readers that keep up finish it before that.
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
        # The buckets that a former controller may have dealt out stay so.
        new = now if self._has_looked else -math.inf
        self._has_looked = True
        found = drainable(layout, subscription)
        self._since = {each: self._since.get(each, new) for each in found}

    def look(self, now: float) -> bool:
        """Tells whether there is another set of them now."""
        after_s = math.inf if self._after_s is None else self._after_s
        late = frozenset(e for e, since in self._since.items() if now - since >= after_s)
        before, self.draining = self.draining, late
        return late != before


class TargetAssignment:
    """The target of one ordered subscription (a queue has none); its coordinator calls it."""

    def __init__(self, timing: Timing) -> None:
        self.absence = Absence()
        self.unserved = UnservedBuckets(timing)
        self.backlog = ParallelDrain(timing.drain_after_s)
        self._eldest = ""  # the consumer that has been there for longest
        self._hurried: frozenset[Bucket] = frozenset()  # the buckets that go to that one
        self.moved: Counter[int] = Counter()  # by segment: granted to another than before
        self._owners: dict[Bucket, str] = {}  # the last consumer that each was granted to
        self._layout: SegmentLayout | None = None
        self._subscription: Subscription | None = None

    def changed(self, layout: SegmentLayout, subscription: Subscription) -> None:
        """Takes over a layout and a subscription that were folded anew."""
        self._layout, self._subscription = layout, subscription
        self._owners = {b: who for b, who in self._owners.items() if b[0] in layout.segments}
        for segment_id in self.moved.keys() - layout.segments.keys():
            del self.moved[segment_id]

    def wanted(self) -> dict[str, Shares]:
        """Returns the final share of each; withheld buckets included."""
        if self._layout is None or self._subscription is None:
            return {}
        draining, absent = self.backlog.draining, self.absence.kept
        wanted = target(self._layout, self._subscription, draining, absent)
        return taken_over(wanted, self._eldest, self._hurried) if self._hurried else wanted

    def hurry(self, there: Mapping[str, Instance], held: BucketsInUse) -> None:
        """Gives the urgent buckets that no consumer may be serving to the eldest of the present
        ones.
        """
        self._hurried = frozenset()
        if there and self.unserved.urgent:
            self._eldest = min(there, key=lambda name: (there[name].opened_at or 0.0, name))
            fresh = there[self._eldest].fresh  # until it has been heard with them
            self._hurried = frozenset(
                b for b in self.unserved.urgent if b in fresh or held.allows(b, None)
            )

    def look(self, now: float) -> bool:
        """Says whether, as time has passed, there is another target now."""
        grown = self.backlog.look(now)
        return self.unserved.hurries(now) or grown

    def granted(self, name: str, buckets: Iterable[Bucket]) -> None:
        """Notes that these buckets go to that consumer, which did not have them."""
        for bucket in buckets:
            if self._owners.get(bucket, name) != name:
                self.moved[bucket[0]] += 1
            self._owners[bucket] = name

    def served(self, buckets: set[Bucket], is_anybody_there: bool, now: float) -> None:
        """Notes that the present consumers serve these buckets, and no others."""
        if self._layout is None or self._subscription is None or not is_anybody_there:
            self.unserved.nobody()
            return
        parts = assignable(self._layout, self._subscription.drained)
        everything = ((part.segment_id, b) for part in parts for b in range(part.buckets))
        self.unserved.look(everything, buckets, now)

    def existing(self, buckets: Iterable[Bucket]) -> set[Bucket]:
        """Returns those buckets that the layout has: a consumer may name others."""
        segments = self._layout.segments if self._layout is not None else {}
        return {
            (segment_id, bucket)
            for segment_id, bucket in buckets
            if segment_id in segments and 0 <= bucket < segments[segment_id].buckets
        }
