"""What a controller knows of the processes that serve under consumers' names (`coordinator`)."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.assignment import Buckets

Bucket = tuple[int, int]  # segment id, bucket


class Instance:
    """One process under a consumer's name, as far as the controller knows of it."""

    __slots__ = (
        "connection",
        "drained",
        "heard_at",
        "holdings",
        "leaving",
        "number",
        "sent",
        "sequence",
    )

    def __init__(self, number: int, now: float, *, known: bool) -> None:
        self.number = number
        self.connection: int | None = None
        self.heard_at = now
        self.holdings: set[Bucket] | None = set() if known else None  # None: could be anything
        self.leaving: set[Bucket] = set()  # of the holdings: until it has heard that it begins anew
        self.drained: set[Bucket] = set()
        self.sequence = 0
        self.sent: tuple[int, tuple[tuple[int, Buckets], ...]] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it serves nothing for certain."""
        return self.holdings is not None and not self.holdings

    def begun(self) -> bool:
        """It knows what it has now; whether it held more before."""
        left, self.leaving = self.leaving, set()
        self.holdings = (self.holdings or set()) - left
        return bool(left)


class Held:
    """What may be served now, by anybody: one look at all instances for many buckets."""

    def __init__(self, instances: Iterable[Instance]) -> None:
        self._buckets: set[Bucket] = set()
        self._unknown: list[Instance] = []
        for each in instances:
            if each.holdings is None:
                self._unknown.append(each)
            else:
                self._buckets |= each.holdings

    def allows(self, bucket: Bucket, asker: Instance | None) -> bool:
        """Whether the asker may serve the bucket: it does already, or nobody else may."""
        if asker is not None and asker.holdings is not None and bucket in asker.holdings:
            return True
        return bucket not in self._buckets and all(each is asker for each in self._unknown)

    def take(self, buckets: Iterable[Bucket]) -> None:
        """These are served from now on."""
        self._buckets.update(buckets)
