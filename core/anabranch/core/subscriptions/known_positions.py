"""`KnownPositions`: the points at which a subscription goes on, as its controller knows them.

Kafka lets anybody move or delete the positions of a group that has no members, and a subscription's
group never has any. So a position counts by its mark (`marks`). If Kafka has none of this mark, the
log's position counts, or a newer one. Newer ones are Kafka's at the controller's last look, and
those that consumers told as they came or let go of a bucket. None of these is ever beyond the
committed one, so that no choice passes over a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, unique

from anabranch.core.entities.subscription import Subscription
from anabranch.core.subscriptions.instances import Bucket
from anabranch.core.subscriptions.marks import MARK, CommittedPosition, kept_mark, mark_of


@unique
class PositionFinding(Enum):
    """The fault of a position that Kafka has; all but the first are somebody else's doing."""

    UNSAID = "Kafka has not been told yet, or has forgotten it"
    OVERWRITTEN = "something else was committed"
    GONE = "it was deleted"
    BACK = "it went back"


class KnownPositions:
    """The positions of one life of one subscription: until it is put somewhere else."""

    __slots__ = ("_at", "_mark", "_seen", "_told", "created_offset")

    def __init__(self, created_offset: int) -> None:
        self.created_offset = created_offset
        self._mark = mark_of(created_offset)
        self._at: dict[Bucket, int] = {}
        self._seen: set[Bucket] = set()  # those that Kafka has had
        self._told: set[Bucket] = set()  # told by consumers since a look was begun

    @property
    def at(self) -> Mapping[Bucket, int]:
        """The next offset of each bucket that something is known of."""
        return self._at

    def told(self, at: Mapping[Bucket, int]) -> None:
        """A consumer has committed so far; a read from Kafka just now may be older."""
        self._at.update(at)
        self._seen.update(at)
        self._told.update(at)

    def begin_look(self) -> None:
        """Kafka is being asked."""
        self._told.clear()

    def look(
        self,
        known: Subscription,
        buckets: Iterable[Bucket],
        found: Mapping[Bucket, CommittedPosition],
    ) -> dict[Bucket, PositionFinding]:
        """Takes in Kafka's positions of those buckets; returns the wrong ones."""
        noted = {each.segment_id: each.offsets for each in known.positions}
        wrong: dict[Bucket, PositionFinding] = {}
        buckets = set(buckets)
        for each in self._at.keys() - buckets - self._told:
            del self._at[each]  # its segment is drained
        self._seen &= buckets | self._told
        for each in buckets:
            if each in self._told:
                continue
            logged = noted.get(each[0])
            right = max(self._at.get(each, 0), logged[each[1]] if logged is not None else 0)
            finding = self._judge(each, right, found.get(each))
            if finding is not None:
                wrong[each] = finding
        return wrong

    def _judge(
        self, bucket: Bucket, right: int, told: CommittedPosition | None
    ) -> PositionFinding | None:
        was_seen = bucket in self._seen
        if told is None:
            return PositionFinding.GONE if was_seen else PositionFinding.UNSAID if right else None
        if told.mark == self._mark:
            self._at[bucket] = told.offset
            self._seen.add(bucket)
            return PositionFinding.BACK if was_seen and told.offset < right else None
        if told.mark == kept_mark(self.created_offset) and told.offset == right:
            return None
        is_former = told.mark.startswith(MARK) and not was_seen
        return PositionFinding.UNSAID if is_former else PositionFinding.OVERWRITTEN
