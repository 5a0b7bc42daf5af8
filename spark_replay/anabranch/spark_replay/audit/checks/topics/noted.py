"""`NotedPositions`: the logged positions of each subscription, including those in segments drained
since.

The fold forgets those, because nobody begins there any more. The audit needs them: a group never
commits messages that its subscription need not read by the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.entities.subscription import (
    SegmentPositions,
    Subscription,
    SubscriptionOp,
)
from anabranch.core.log.records import SubscriptionChange

_BEGINS = (SubscriptionOp.CREATE, SubscriptionOp.RESET)


class NotedPositions:
    """Follows the logged positions of every subscription of every topic."""

    def __init__(self) -> None:
        # Positions by topic, subscription, segment; None: it was drained before the replay began.
        self._known: dict[str, dict[str, dict[int, tuple[int, ...] | None]]] = {}

    def start(self, topic: str, name: str, subscription: Subscription) -> None:
        """Begins a replay from a snapshot with this subscription."""
        before = dict.fromkeys(subscription.drained)
        noted = {**before, **_by_segment(subscription.positions)}
        self._known.setdefault(topic, {})[name] = noted

    def changed(self, record: SubscriptionChange, after: Subscription | None) -> None:
        """Takes the subscription after an accepted record."""
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
        """Notes that the topic was deleted, with its subscriptions."""
        self._known.pop(topic, None)

    def drained(self, topic: str, name: str, subscription: Subscription) -> list[SegmentPositions]:
        """Returns the segments drained since the replay began, with their logged positions. A
        segment without one has no offsets.
        """
        noted = self._known.get(topic, {}).get(name, {})
        found = ((each, noted.get(each, ())) for each in subscription.drained)
        return [SegmentPositions(each, offsets) for each, offsets in found if offsets is not None]


def _by_segment(positions: Iterable[SegmentPositions]) -> dict[int, tuple[int, ...]]:
    return {each.segment_id: each.offsets for each in positions}
