"""The alarm that two nodes' states differ (docs/architecture.md).

Two nodes' digests can be compared at offsets at which both have stopped to say them. The newest
comparison with each node counts, so an alarm ends by itself once the other node agrees again. A
state that really differs does so at every later offset; the next heartbeat corrects a single wrong
one.

Two digests do not tell which state is wrong. Among several nodes the majority is taken to be right:
one node with a wrong state stops the snapshots of no leader but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from anabranch.core.sessions.lease import Heartbeat

_REMEMBERED_MAX: Final = 4_096  # offsets
_BROKERS_MAX: Final = 1_000  # each offset, and this node for those that left, remembers no more

IsMember = Callable[[str], bool]
"""True if a broker takes part; words of strangers are not even kept."""


class Mismatch(msgspec.Struct, frozen=True):
    """Two brokers' digests at one offset, which must be equal."""

    next_offset: int
    broker: str
    digest: str
    other: str
    other_digest: str


class DigestWatch:
    """Compares what brokers say of their states. `me`: the one whose state this node has."""

    def __init__(self, me: str, is_member: IsMember) -> None:
        self._me = me
        self._is_member = is_member
        self._said: dict[int, dict[str, str]] = {}  # offset -> broker -> digest
        self._newest: dict[str, Mismatch | None] = {}  # by broker; None: it agrees with mine

    def own(self, next_offset: int, digest: str) -> list[Mismatch]:
        """Notes this node's digest at `next_offset`; returns mismatches that begin with it."""
        said = self._note(self._me, next_offset, digest)
        found = [self._judge(broker, next_offset) for broker in tuple(said) if broker != self._me]
        return [mismatch for mismatch in found if mismatch is not None]

    def heard(self, beat: Heartbeat) -> list[Mismatch]:
        """A heartbeat was read; returns what contradicts it, if it is told for the first time."""
        if not self._is_member(beat.broker):
            return []
        before = self._said.get(beat.next_offset, {}).get(beat.broker)
        said = self._note(beat.broker, beat.next_offset, beat.digest)
        if beat.broker == self._me:
            return []
        if self._me in said:
            found = self._judge(beat.broker, beat.next_offset)
            return [] if found is None else [found]
        others = [(other, known) for other, known in said.items() if known != beat.digest]
        if before == beat.digest or not others:
            return []
        return [Mismatch(beat.next_offset, beat.broker, beat.digest, *others[0])]

    def _note(self, broker: str, next_offset: int, digest: str) -> dict[str, str]:
        said = self._said.setdefault(next_offset, {})
        if len(self._said) > _REMEMBERED_MAX:
            del self._said[next(iter(self._said))]
        if broker == self._me or broker in said or len(said) < _BROKERS_MAX:
            said[broker] = digest
        return said

    def _judge(self, broker: str, next_offset: int) -> Mismatch | None:
        """Compares a broker's word with mine; a mismatch if the broker agreed so far."""
        said = self._said[next_offset]
        if broker not in said:
            return None
        mine = said[self._me]
        differs = Mismatch(next_offset, broker, said[broker], self._me, mine)
        found = differs if said[broker] != mine else None
        known = self._newest.get(broker)
        if broker not in self._newest and len(self._newest) >= _BROKERS_MAX:
            self._newest = dict(self._members())  # the others have left
        self._newest[broker] = found
        return found if known is None else None

    def _members(self) -> Iterator[tuple[str, Mismatch | None]]:
        return (each for each in self._newest.items() if self._is_member(each[0]))

    def is_outvoted(self) -> bool:
        """True unless most nodes that could be compared, this one included, agree with it."""
        words = [found for _, found in self._members()]
        agree = words.count(None)
        against = len(words) - agree
        return against > 0 and against >= 1 + agree

    def concerns(self) -> Iterator[str]:
        """Yields sentences that tell people which nodes differ."""
        for broker, found in self._members():
            if found is not None:
                yield (
                    f"the states of this node and of {broker} differ: at offset "
                    f"{found.next_offset} of the log their digests are {found.other_digest} and "
                    f"{found.digest}; delete the dataDir of the one that `anabranch audit` names "
                    "and start it again"
                )
        if self.is_outvoted():
            yield (
                "this node's state is not that of most nodes: while it leads it writes no "
                "snapshots, and the log is not trimmed"
            )
