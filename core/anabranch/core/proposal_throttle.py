"""The pace at which a node proposes the same thing again."""

from __future__ import annotations

from anabranch.core.log.records import Record


class ProposalThrottle:
    """Proposals that wait for their verdict: none is repeated before its retry time.

    A rejection does not lift the wait. If the state has moved on, the next proposal is for another
    version and goes out at once. If it has not, the log would reject the same proposal again.
    Without the wait, a node and its log could spin on it as fast as the log can answer.
    """

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._waiting: dict[str, tuple[int, float]] = {}

    def admits(self, record: Record, now: float) -> bool:
        """Tells whether to append the record now; if so, counts it as appended."""
        key, version = record.key, record.version
        waiting = self._waiting.get(key)
        if waiting is not None and waiting[0] == version and now < waiting[1]:
            return False
        self._waiting[key] = (version, now + self._retry_s)
        return True

    def accepted(self, key: str, version: int) -> None:
        """Some proposal for the key won, which made that version; a later one may still wait."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting[0] <= version:
            del self._waiting[key]

    def forget(self, now: float) -> None:
        """Drops what may be proposed again anyway."""
        due = [key for key, (_, until) in self._waiting.items() if now >= until]
        for key in due:
            del self._waiting[key]
