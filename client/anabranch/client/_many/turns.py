"""`TopicTurns`: whose turn it is of the topics that may have messages; a pure round-robin."""

from __future__ import annotations

from typing import Final

QUANTUM: Final = 100  # messages of one topic, before the next one has its turn


class TopicTurns:
    """Topics take turns of at most `quantum` messages, in the order in which they became ready.

    A topic whose turn is over goes to the end, so between two turns of a topic every other one
    that was ready meanwhile has one.
    """

    def __init__(self, quantum: int = QUANTUM) -> None:
        self._quantum = quantum
        self._ready: dict[str, int] = {}  # what is left of each one's turn, in order

    def __bool__(self) -> bool:
        return bool(self._ready)

    def ready(self, topic: str) -> None:
        """It may have messages; a topic that is ready already keeps its place."""
        self._ready.setdefault(topic, self._quantum)

    def next(self) -> tuple[str, int]:
        """The topic whose turn it is, and how many messages it may give; there must be one."""
        return next(iter(self._ready.items()))

    def took(self, topic: str, messages: int) -> None:
        """So many were taken of it; none: it has nothing more, until it is ready again."""
        left = self._ready.get(topic)
        if left is None:
            return
        if 0 < messages < left:
            self._ready[topic] = left - messages  # it keeps its place
            return
        del self._ready[topic]
        if messages:
            self._ready[topic] = self._quantum

    def leave(self, topic: str) -> None:
        """It gives nothing any more."""
        self._ready.pop(topic, None)
