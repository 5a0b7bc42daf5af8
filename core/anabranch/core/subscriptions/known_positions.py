"""`KnownPositions`: the points at which a subscription goes on, as its controller knows them.

A group keeps its name after its subscription is put somewhere else, and Kafka lets anybody commit
to a group without members, which a subscription's group never has. So each position names the life
of the subscription in its metadata, its *mark*: the log offset that created it, or reset it last. A
commit with another mark, or none, is a late one from before a reset, or a stranger's, and is not
believed.

If Kafka has no position of the mark, the log's counts, or a newer one. Newer ones are Kafka's at
the controller's last look, and those that consumers told as they came or let go of a bucket. None
of these is ever beyond the committed one, so that no choice passes over a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum, unique
from typing import Final, NamedTuple

from anabranch.core.entities.subscription import Subscription, SubscriptionKind
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions.draining import Bucket

MARK: Final = "anabranch "
MAP: Final = "ab1"  # begins the map of what is done above a position, behind its mark
_KEPT: Final = " kept"


class CommittedPosition(NamedTuple):
    """Kafka's position of a group in one partition; `mark`: its metadata, without a map."""

    offset: int
    mark: str = ""


def mark_of(created_offset: int) -> str:
    """The mark that a consumer writes with its positions.

    >>> mark_of(57)
    'anabranch 57'
    """
    return f"{MARK}{created_offset}"


def parts_of(metadata: str) -> tuple[str, str]:
    """The mark in the metadata of a commit, and the map behind it, "" for none.

    >>> parts_of("anabranch 57 ab1AQID"), parts_of("anabranch 57 kept")
    (('anabranch 57', 'ab1AQID'), ('anabranch 57 kept', ''))
    """
    mark, _, last = metadata.rpartition(" ")
    return (mark, last) if last.startswith(MAP) else (metadata, "")


def kept_mark(created_offset: int) -> str:
    """The mark that a controller writes with a position from the log, for others to see.

    No consumer begins at it, so a late one does no lasting harm.

    >>> kept_mark(57)
    'anabranch 57 kept'
    """
    return f"{mark_of(created_offset)}{_KEPT}"


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
