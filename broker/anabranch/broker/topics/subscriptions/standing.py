"""`StandingPositions`: a controller's knowledge of positions beside the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final

from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions.instances import Bucket
from anabranch.core.subscriptions.known_positions import KnownPositions

_NOTHING: Final[Mapping[Bucket, int]] = {}


class StandingPositions:
    """One node's, for use in its event loop."""

    def __init__(self, view: Callable[[], StateReader]) -> None:
        self._view = view
        self._known: dict[str, dict[str, KnownPositions]] = {}  # by topic

    def of(self, topic: str, subscription: str) -> Mapping[Bucket, int]:
        """The positions that are known, of the subscription as it is now."""
        found = self._known.get(topic, {}).get(subscription)
        known = self._view().subscription(topic, subscription) if found is not None else None
        if found is None or known is None or found.created_offset != known.created_offset:
            return _NOTHING
        return found.at

    def told(
        self, topic: str, subscription: str, begun_at: int, committed: Mapping[Bucket, int]
    ) -> None:
        """A consumer of that life of the subscription has committed so far."""
        known = self._view().subscription(topic, subscription) if committed else None
        if known is None or known.kind is not SubscriptionKind.STREAM:
            return
        if known.created_offset == begun_at:
            self.known(topic, subscription, known).told(committed)

    def known(self, topic: str, subscription: str, now: Subscription) -> KnownPositions:
        """All that is known of it, which may be nothing yet."""
        others = self._known.setdefault(topic, {})
        found = others.get(subscription)
        if found is None or found.created_offset != now.created_offset:
            found = others[subscription] = KnownPositions(now.created_offset)
        return found

    def forget(self, mine: Set[str]) -> None:
        """Topics that are not among these are another node's by now, or are no more."""
        for topic in self._known.keys() - mine:
            del self._known[topic]

    def forget_others(self, topic: str, streams: Set[str]) -> None:
        """The topic has no other streams than these any more."""
        known = self._known.get(topic, {})
        for subscription in known.keys() - streams:
            del known[subscription]
