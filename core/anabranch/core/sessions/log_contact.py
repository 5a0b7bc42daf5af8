"""A broker's contact with the log: the records that it should have read by now, and has not.

Heartbeats alone prove nothing about it, because they go through another partition. A broker may be
unable to read the log, or to append to it. It ends its lease by itself once something has been
outstanding for a lease's length. That is an own record that was not read back, while no other own
record was; or an offset that another broker had folded by then. An idle log leaves nothing
outstanding.

A single lost append is no loss of the log. The broker proposes a record again if it still needs it.
Records that it does not need any more shall not count against it. So it asks half a lease before it
would give up, with a record that changes nothing, and again until it reads one back. It asks in the
same way if it has not read its own heartbeats: all that it reads may be cut off, on a log that
looks idle.
"""

from __future__ import annotations


class LogContact:
    """The outstanding records and their start times, on this broker's clock, in its present
    session.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._unread: dict[str, float] = {}  # keys of own records -> first sent; oldest first
        self._unheard_since: float | None = None  # the oldest own heartbeat that was not read
        self._behind: tuple[int, float] | None = None  # an offset to reach, and since when
        self._ahead = 0  # the furthest that any other has folded

    def renewed(self) -> None:
        """Another session was read back: nothing is outstanding."""
        self._unread.clear()
        self._unheard_since = self._behind = None
        self._ahead = 0

    def proposed(self, key: str, now: float) -> None:
        """An own record for the key is sent."""
        self._unread.setdefault(key, now)

    def decided(self, key: str) -> None:
        """Some record for the key won: an own one that was lost would not be missed."""
        self._unread.pop(key, None)

    def read_back(self) -> None:
        """The broker has read an own record, and so all before it; it proposes lost ones again."""
        self._unread.clear()

    def sent_beat(self, now: float) -> None:
        if self._unheard_since is None:
            self._unheard_since = now

    def read_beat(self) -> None:
        """An own heartbeat was read."""
        self._unheard_since = None

    def heard(self, next_offset: int, own_offset: int, now: float) -> None:
        """Another broker has folded the log up to `next_offset`, this one up to `own_offset`."""
        self._ahead = max(self._ahead, next_offset)
        if self._behind is None and self._ahead > own_offset:
            self._behind = self._ahead, now

    def folded(self, own_offset: int, now: float) -> None:
        """Notes that this broker has folded the log up to `own_offset`."""
        if self._behind is not None and own_offset >= self._behind[0]:
            self._behind = (self._ahead, now) if self._ahead > own_offset else None

    def asks(self, now: float) -> bool:
        """Tells whether the broker should write something for the sake of reading it back."""
        oldest = next(iter(self._unread.values()), self._unheard_since)
        if self._unheard_since is not None and oldest is not None:
            oldest = min(oldest, self._unheard_since)
        return oldest is not None and now - oldest >= self._patience_s / 2

    def lost(self, now: float) -> bool:
        """Tells whether the broker must give up its lease."""
        oldest = next(iter(self._unread.values()), now)
        since = min(oldest, self._behind[1]) if self._behind else oldest
        return now - since >= self._patience_s
