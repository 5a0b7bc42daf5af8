"""`Beginnings`: tells topics that begin at the application's `start` from later ones, which begin
at their first message.

The module holds pure decisions.
"""

from __future__ import annotations

from collections.abc import Iterable


class Beginnings:
    """`first` has the topics of the first list, which existed before the application asked."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self._first = dict.fromkeys(first, 0)  # with the incarnation that was seen first

    def gone(self, topic: str) -> None:
        """Notes that the list has lost the topic. A topic that takes its name comes later."""
        self._first.pop(topic, None)

    def is_late(self, topic: str, incarnation: int) -> bool:
        """Returns True if the topic came after the first list. The caller is about to subscribe to
        it.

        A topic may be deleted and created again without a list that lacks it, for example while no
        node could be reached. Its incarnation tells.
        """
        before = self._first.get(topic)
        if before is not None and before not in (0, incarnation):
            self.gone(topic)
            return True
        if before is not None:
            self._first[topic] = incarnation
        return before is None
