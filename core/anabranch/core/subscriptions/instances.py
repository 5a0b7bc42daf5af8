"""A controller's knowledge of the processes that serve under consumers' names (`coordinator`)."""

from __future__ import annotations

from anabranch.core.entities.subscription import NOBODY
from anabranch.core.subscriptions.assignor import Buckets
from anabranch.core.subscriptions.draining import Bucket


class Instance:
    """One process under a consumer's name, as far as the controller knows of it."""

    __slots__ = (
        "commits_again",
        "connection",
        "drained",
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
        self.drained: set[Bucket] = set()
        self.opened_at: float | None = None  # the time of its last connection, here
        self.has_hung_up = False  # its process ended: nothing else ends a connection so
        self.is_ending = False  # the log is to say that it has ended: it must be registered anew
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
