"""`NotedPositions`: where the log has put each subscription, also in what it has drained since.

The fold forgets that, as nobody begins there any more. The audit needs it: what the log says that a
subscription need not read, its group never commits.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.log.records import SubscriptionChange
from anabranch.core.subscriptions.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionOp,
)

_BEGINS = (SubscriptionOp.CREATE, SubscriptionOp.RESET)


class NotedPositions:
    """Follows what the accepted records say of every subscription of every topic."""

    def __init__(self) -> None:
        # By topic and subscription: of each segment; None: it was drained before the replay began.
        self._known: dict[str, dict[str, dict[int, tuple[int, ...] | None]]] = {}

    def start(self, topic: str, name: str, subscription: Subscription) -> None:
        """A replay from a snapshot starts with this."""
        before = dict.fromkeys(subscription.drained)
        noted = {**before, **_by_segment(subscription.positions)}
        self._known.setdefault(topic, {})[name] = noted

    def changed(self, record: SubscriptionChange, after: Subscription | None) -> None:
        """An accepted record has made this of the subscription."""
        known = self._known.setdefault(record.topic, {})
        if after is None:
            known.pop(record.subscription, None)
            return
        kept = known.get(record.subscription, {})
        if record.op in _BEGINS:
            kept = {}
        elif record.op is SubscriptionOp.POSITIONS:
            kept = {each: kept[each] for each in after.drained if each in kept}
        known[record.subscription] = {**kept, **_by_segment(record.positions)}

    def topic_ended(self, topic: str) -> None:
        """It was deleted, with its subscriptions."""
        self._known.pop(topic, None)

    def drained(self, topic: str, name: str, subscription: Subscription) -> list[SegmentPositions]:
        """Returns what it has drained since the replay began, and where the log had put it there:
        no offsets where the log had said nothing.
        """
        noted = self._known.get(topic, {}).get(name, {})
        found = ((each, noted.get(each, ())) for each in subscription.drained)
        return [SegmentPositions(each, offsets) for each, offsets in found if offsets is not None]


def _by_segment(positions: Iterable[SegmentPositions]) -> dict[int, tuple[int, ...]]:
    return {each.segment_id: each.offsets for each in positions}
