"""The time at which a bucket changes hands: no other consumer may be serving it (PIP-486,
"blocked-hash").

Its former holder has said that it released it, after its messages in flight were settled, or has
lapsed. A consumer stops by itself if the controller has not answered it for the session time,
counted from its request. The controller counts the same time from the last report that it heard.
That report came later, so the controller waits longer. A margin allows for clocks that run at
different rates (PIP-468, "Consumer Session Lifecycle").
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import NOBODY
from anabranch.core.subscriptions.assignor import Buckets, Shares
from anabranch.core.subscriptions.draining import Bucket

Granted = tuple[tuple[int, Buckets], ...]  # segment ids and buckets


class Instance:
    """One process under a consumer's name, as far as the controller knows of it."""

    __slots__ = (
        "commits_again",
        "connection",
        "drained",
        "fences",
        "fresh",
        "has_hung_up",
        "heard_at",
        "holdings",
        "is_ending",
        "leaving",
        "number",
        "opened_at",
        "sent",
        "sequence",
    )

    def __init__(self, number: int, now: float, *, known: bool) -> None:
        self.number = number
        self.connection: int | None = None
        self.heard_at = now
        self.holdings: set[Bucket] | None = set() if known else None  # None: could be anything
        self.leaving: set[Bucket] = set()  # holdings until it has heard that it begins anew
        self.fresh: set[Bucket] = set()  # holdings granted since it was heard last
        self.fences: dict[Bucket, int] = {}  # of the holdings that it was granted last
        self.drained: set[Bucket] = set()
        self.opened_at: float | None = None  # the time of its last connection, here
        self.has_hung_up = False  # its process ended: nothing else ends a connection so
        self.is_ending = False  # the log is to end it: it must be registered anew
        self.sequence = 0
        self.commits_again = False  # its holdings, once it is told
        self.sent: tuple[int, tuple[tuple[int, Buckets], ...]] | None = None

    @property
    def is_idle(self) -> bool:
        """Tells whether it certainly serves nothing."""
        return self.holdings is not None and not self.holdings

    @property
    def is_over(self) -> bool:
        """Tells whether another process may serve under its name."""
        return self.is_idle or self.has_hung_up

    def confirmed(self) -> set[Bucket]:
        """Returns the buckets granted since its last report that it still has at the
        present one.
        """
        shares = self.sent[1] if self.sent is not None else ()
        fresh, self.fresh = self.fresh, set()
        if not fresh:
            return fresh
        return fresh & {(segment_id, b) for segment_id, buckets in shares for b in buckets}

    def has_ended(self, limit: float) -> bool:
        """Tells whether it certainly serves nothing, which the log does not know yet."""
        silent = self.connection is None and self.heard_at < limit
        return silent and self.is_idle and self.number != NOBODY

    def begun(self) -> bool:
        """Notes that it knows its present holdings; returns True if it held more before."""
        left, self.leaving = self.leaving, set()
        self.holdings = (self.holdings or set()) - left
        return bool(left)


class BucketsInUse:
    """The buckets that consumers may be serving now: one look at all instances for many buckets.

    A subscription that begins anew may call a segment drained that a consumer works on, or go back
    to a segment above that. So nothing above or below the holdings of a former life is given to
    others, a former holder of it included. A segment that was pruned may have been above any other
    one.
    """

    def __init__(self, instances: Iterable[Instance], layout: SegmentLayout | None = None) -> None:
        self._buckets: set[Bucket] = set()
        self._unknown: list[Instance] = []
        self._layout = layout
        self._left: list[tuple[Instance, set[int]]] = []  # segments of a former life
        self._beside: dict[int, list[Instance]] = {}  # instances with holdings above or below
        for each in instances:
            if each.holdings is None:
                self._unknown.append(each)
            else:
                self._buckets |= each.holdings
            if each.leaving:
                self._left.append((each, {segment_id for segment_id, _ in each.leaving}))

    def allows(self, bucket: Bucket, asker: Instance | None) -> bool:
        """Tells whether the asker may serve the bucket: it does already, or no other may."""
        is_its = asker is not None and bucket in (asker.holdings or ())
        if asker is not None and is_its and bucket not in asker.leaving:
            return True
        others = (*self._unknown, *self._former_beside(bucket[0]))
        return (is_its or bucket not in self._buckets) and all(each is asker for each in others)

    def _former_beside(self, segment_id: int) -> list[Instance]:
        layout, known = self._layout, self._beside.get(segment_id)
        if not self._left or layout is None:
            return []
        if known is None:
            above = layout.ancestors(segment_id)
            known = self._beside[segment_id] = [
                instance
                for instance, left in self._left
                if left & above
                or left - layout.segments.keys()
                or any(segment_id in layout.ancestors(each) for each in left)
            ]
        return known

    def grantable(self, shares: Shares, asker: Instance) -> Granted:
        """Returns what of its target the asker may serve now."""
        free = (
            (segment_id, tuple(b for b in buckets if self.allows((segment_id, b), asker)))
            for segment_id, buckets in shares.items()
        )
        return tuple(share for share in free if share[1])

    def take(self, buckets: Iterable[Bucket]) -> None:
        """Notes that these are served from now on."""
        self._buckets.update(buckets)
