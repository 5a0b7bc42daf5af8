"""`Beginnings`: which topics of many begin where the application says, and which at their first
message, because they came later. Pure decisions.
"""

from __future__ import annotations

from collections.abc import Iterable


class Beginnings:
    """`first`: the topics of the first list, which were there before the application asked."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self._first = dict.fromkeys(first, 0)  # with the incarnation that was seen first

    def gone(self, topic: str) -> None:
        """The list has it no more: what comes under its name came later."""
        self._first.pop(topic, None)

    def is_late(self, topic: str, incarnation: int) -> bool:
        """Whether it came after the first list; it is about to be subscribed to.

        A topic may be deleted and made again without a list that lacks it, as while no node could
        be reached: its incarnation tells.
        """
        before = self._first.get(topic)
        if before is not None and before not in (0, incarnation):
            self.gone(topic)
            return True
        if before is not None:
            self._first[topic] = incarnation
        return before is None
