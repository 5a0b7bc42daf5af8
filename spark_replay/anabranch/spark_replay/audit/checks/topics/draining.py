"""Draining: a segment counts as drained only after all that is above it, and is pruned only then.

Ordered consumers are given a segment once their subscription has drained all its ancestors. So the
order of "drained" in the log is the order in which keys were consumed across splits and merges. The
module follows it from the accepted records alone, and compares it with the fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.core.entities.subscription import Subscription, SubscriptionOp
from anabranch.core.entities.topic import ScalableTopic, TopicMove
from anabranch.core.log.records import SubscriptionChange, TopicChange
from anabranch.core.log.state import Change
from anabranch.spark_replay.audit.tally import CheckTally

# A subscription that is put behind a sealed segment's end has nothing to read of it either.
_TELLS_DRAINED: Final = (SubscriptionOp.DRAINED, SubscriptionOp.CREATE, SubscriptionOp.RESET)


class Draining:
    """Follows the drained segments of every subscription of every topic."""

    def __init__(self) -> None:
        self.tally = CheckTally()
        self._drained: dict[str, dict[str, set[int]]] = {}  # topic -> subscription -> segments

    def start(self, topic: str, name: str, subscription: Subscription) -> None:
        """Begins a replay from a snapshot with this subscription."""
        self._drained.setdefault(topic, {})[name] = set(subscription.drained)

    def topic_changed(
        self,
        offset: int,
        record: TopicChange,
        changes: tuple[Change, ...],
        before: ScalableTopic | None = None,
    ) -> None:
        """Checks an accepted move of a topic, which was `before`."""
        known = self._drained.get(record.topic, {})
        gone = set(record.segment_ids) if record.move is TopicMove.PRUNE else set()
        if record.move is TopicMove.COMMIT and before is not None and before.continued is not None:
            gone = {before.continued.segment_id}
        if gone:
            self.tally.examined += len(known)
            for name in sorted(known):
                missing = sorted(gone - known[name])
                if missing:
                    what = f"{_words(missing)}, which {record.move.name} took away"
                    text = f"{name} had not drained {what}"
                    self.tally.violate(offset, f"{record.topic}: {text}")
                known[name] -= gone
            for key, entity in changes:
                name = key.rpartition("/")[2]
                if isinstance(entity, Subscription) and name in known:
                    self._compare(offset, record.topic, name, entity)
        elif record.move in (TopicMove.CREATE, TopicMove.REMOVE):
            self._drained.pop(record.topic, None)

    def subscription_changed(
        self,
        offset: int,
        record: SubscriptionChange,
        topic: ScalableTopic | None,
        after: Subscription | None,
    ) -> None:
        """Checks an accepted change of a subscription of `topic` in its present state."""
        self.tally.examined += 1
        known = self._drained.setdefault(record.topic, {})
        if record.op is SubscriptionOp.DELETE:
            known.pop(record.subscription, None)
            return
        drained = known.setdefault(record.subscription, set())
        if record.op is SubscriptionOp.RESET:
            drained.clear()
        if record.op in _TELLS_DRAINED and topic is not None:
            for fault in _faults(record, topic, drained):
                where = f"{record.topic}/{record.subscription}"
                self.tally.violate(offset, f"{where}: {fault}")
            drained |= set(record.segment_ids)
        self._compare(offset, record.topic, record.subscription, after)

    def _compare(self, offset: int, topic: str, name: str, after: Subscription | None) -> None:
        derived = self._drained[topic][name]
        claimed = set(after.drained) if after is not None else set()
        if claimed != derived:
            self.tally.violate(
                offset,
                f"{topic}/{name}: by its accepted records it has drained {_words(derived)}, by "
                f"the fold {_words(claimed)}",
            )
            self._drained[topic][name] = claimed  # go on from what the cluster believed


def _faults(record: SubscriptionChange, topic: ScalableTopic, drained: set[int]) -> Iterator[str]:
    parts = {part.segment_id: part for part in topic.segments}
    done = drained | set(record.segment_ids)
    for each in sorted(record.segment_ids):
        part = parts.get(each)
        if part is None or part.is_active:
            yield f"segment {each} is called drained, but it is not sealed"
            continue
        above = list(part.parent_ids)
        seen: set[int] = set()
        while above:
            up = above.pop()
            if up not in parts or up in seen:
                continue
            seen.add(up)
            above += parts[up].parent_ids
        if not seen <= done:
            yield f"segment {each} is called drained before {_words(seen - done)} above it"


def _words(ids: set[int] | list[int]) -> str:
    return f"segments {sorted(ids)}" if ids else "none"
