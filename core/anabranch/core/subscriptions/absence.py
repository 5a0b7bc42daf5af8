"""The consumers of one subscription that are away, and what each keeps meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core.subscriptions.assignor import Kept, Shares
from anabranch.core.subscriptions.draining import Bucket


class Absence:
    """The absent consumers of a subscription, since when, and the buckets that wait for each.

    A consumer is away from its registration until it subscribes. One that went away keeps the
    buckets that it served, for its grace, so that a restart moves nothing (PIP-468, "Consumer
    Session Lifecycle"). It is dealt nothing new, because such a bucket would wait for a consumer
    that may be dead, and for the next dead one after that. So its share only ever shrinks.
    Consumers that a former controller knew keep their first deal here, which is what they were
    dealt there. They keep nothing if the log says that they had ended.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}  # by name: the waiting part of its share; None: all
        self._since: dict[str, float] = {}

    def gone(self, name: str, kept: Kept, now: float) -> None:
        """Notes that the consumer is away from now on, and the buckets it keeps."""
        self.kept[name], self._since[name] = kept, now

    def registered(self, name: str, kept: Kept, now: float) -> None:
        """Notes that a process of the name is registered; the name's waiting buckets still wait."""
        self.kept.setdefault(name, kept)
        self._since[name] = now

    def ended(self, name: str) -> None:
        """Forgets the absence of a consumer that is there, or whose registration has ended."""
        self.kept.pop(name, None)
        self._since.pop(name, None)

    def dealt(self, wanted: Mapping[str, Shares]) -> None:
        """Takes from the absent the buckets that were dealt to others."""
        for name in self.kept:  # such a name is dealt no more than it keeps
            due: set[Bucket] = {(s, b) for s, each in wanted.get(name, {}).items() for b in each}
            self.kept[name] = due

    def since_before(self, limit: float) -> list[str]:
        """Returns the names of consumers that have been away since before that time."""
        return [name for name, since in self._since.items() if since < limit]
