"""`TopicTurns`: the turns of topics that may have messages, as a pure round-robin."""

from __future__ import annotations

from typing import Final

QUANTUM: Final = 100  # messages of one topic, before the next one has its turn


class TopicTurns:
    """Topics take turns of at most `quantum` messages, in the order in which they became ready.

    A topic whose turn is over goes to the end. So every other topic that was ready meanwhile has a
    turn between two turns of one topic.
    """

    def __init__(self, quantum: int = QUANTUM) -> None:
        self._quantum = quantum
        self._ready: dict[str, int] = {}  # the rest of each one's turn, in order

    def __bool__(self) -> bool:
        return bool(self._ready)

    def ready(self, topic: str) -> None:
        """Notes that the topic may have messages. A topic that is ready already keeps its place."""
        self._ready.setdefault(topic, self._quantum)

    def next(self) -> tuple[str, int]:
        """Returns the topic whose turn it is, and the messages that it may give.
        There must be one.
        """
        return next(iter(self._ready.items()))

    def took(self, topic: str, messages: int) -> None:
        """Notes that so many messages were taken of the topic. 0 means that it has nothing until it
        is ready again.
        """
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
        """Notes that the topic gives nothing any more."""
        self._ready.pop(topic, None)
