"""The limit on a node's time for patterns: `Effort` for one, `MatchingRound` for all.

A node holds changes against each selection that somebody follows, in rounds. While a round has time
left, every selection goes on, at any cost. After that a selection goes on only if it is cheap. A
*dear* one is given up: it has taken longer for each topic, all in all, than any pattern that people
write. So a round takes at most `ROUND_S` plus the time of cheap ones, whatever strangers ask for. A
watcher that waits for the next round waits for two at most.

Times are those of the processor: a node that stands still makes nothing dear.
"""

from __future__ import annotations

from typing import Final

ROUND_S: Final = 1.0
DEAR_S: Final = 0.000_05  # for a topic; people's patterns take a tenth of that
SLACK_S: Final = 0.005  # that a few topics may take besides: a measurement is never exact
_TOPICS_MAX: Final = 10_000  # older efforts count less and less


class Effort:
    """The time that one selection has taken, and the topics that it was lately held against."""

    __slots__ = ("spent_s", "topics")

    def __init__(self) -> None:
        self.topics = 0.0
        self.spent_s = 0.0

    @property
    def mean_s(self) -> float:
        """For a topic."""
        return self.spent_s / self.topics if self.topics else 0.0

    @property
    def is_dear(self) -> bool:
        """Tells whether others need not wait for it."""
        return self.spent_s > SLACK_S + self.topics * DEAR_S

    def add(self, topics: int, spent_s: float) -> None:
        """So many more topics have taken so long."""
        self.topics += topics
        self.spent_s += spent_s
        while self.topics > _TOPICS_MAX:
            self.topics /= 2
            self.spent_s /= 2


class MatchingRound:
    """One round, in which each selection is held against the changes."""

    def __init__(self) -> None:
        self._left_s = ROUND_S

    def goes_on(self, effort: Effort, topics: int, spent_s: float) -> bool:
        """Adds the time to the selection's effort; tells whether to keep the selection."""
        effort.add(topics, spent_s)
        self._left_s -= spent_s
        return self._left_s > 0 or not effort.is_dear
