"""The alarm that two nodes' states differ (DESIGN section 3, "State digests")."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.leases import Heartbeat

_REMEMBERED_MAX: Final = 4_096


class Mismatch(msgspec.Struct, frozen=True):
    """Two brokers' digests at one offset, which must be equal."""

    next_offset: int
    broker: str
    digest: str
    other: str
    other_digest: str


class DigestWatch:
    """Remembers the digests last reported, by offset, and compares each new one."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, str]] = {}

    def own(self, broker: str, next_offset: int, digest: str) -> Mismatch | None:
        """This node has folded up to `next_offset`."""
        return self._compare(broker, next_offset, digest)

    def heard(self, beat: Heartbeat) -> Mismatch | None:
        """A heartbeat was read; None means that nothing contradicts it."""
        return self._compare(beat.broker, beat.next_offset, beat.digest)

    def _compare(self, broker: str, next_offset: int, digest: str) -> Mismatch | None:
        seen = self._seen.get(next_offset)
        if seen is None:
            self._seen[next_offset] = (broker, digest)
            if len(self._seen) > _REMEMBERED_MAX:
                del self._seen[next(iter(self._seen))]
            return None
        other, known = seen
        if known == digest:
            return None
        return Mismatch(next_offset, broker, digest, other, known)
