"""`KeptList`: one list of topics that a node keeps up to date for those who ask, or watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from anabranch.broker.topics.list_shares import Sharers
from anabranch.core.names import Namespace
from anabranch.core.topic_lists.matching import Effort
from anabranch.core.topic_lists.selection import Selection, Selector
from anabranch.core.topic_lists.topic_list import TopicList

Wake = Callable[[], None]


class KeptList:
    """A list of a namespace's open topics, all or some. Only its `TopicLists` changes it."""

    def __init__(self, home: Namespace, selection: Selection) -> None:
        self.home = home
        self.selection = selection
        self.selector = None if selection.is_all else Selector(selection)
        self.list = TopicList()
        self.is_over = False  # it is not kept up to date any more: ask for it anew
        self.refusal = ""  # why it is over for good, for who follows it
        self.watchers: dict[Wake, Sharers] = {}
        self.making: asyncio.Task[None] | None = None
        self.askers = 0  # those that wait until it is made
        # A selection's list has so many changes, maybe a part of some more. If it is exact, the log
        # has had it.
        self.has_seen = 0
        self.is_exact = selection.is_all
        self.effort = Effort()
        self._meanwhile: dict[str, bool] = {}  # changes while it was made

    @property
    def size_bytes(self) -> int:
        """The bytes of the names and of the selection, which may be large and select none."""
        return self.list.names.names_bytes + self.selection.length

    def note(self, name: str, present: bool) -> bool:
        """Notes that the topic of this full name belongs to the list, or does not; returns if that
        is new.
        """
        if self.making is not None:
            self._meanwhile[name] = present
            return False
        return self.list.note(name, present)

    def made(self, names: Iterable[str]) -> None:
        """Takes the names found, each at some moment since the start; later changes count."""
        found = {name for name in names if self._meanwhile.get(name, True)}
        found.update(name for name, present in self._meanwhile.items() if present)
        self.list = TopicList(found)
        self._meanwhile.clear()
        self.making = None

    def wake(self) -> None:
        """There is something new for those who watch it."""
        for each in list(self.watchers):
            each()
