"""`CatchingUp`: matches changed topics with the patterns and properties that somebody follows.

Nearly always that is done at once. Strangers' patterns may take long, all of them together: then
others have their turn after each slice of time. A list is behind by the topics that have changed
since it was exact last, each counted once, however often it changes.

A list catches up with those topics by itself, and is never one that the log has not had. It waits
for no other list, and no list waits for it longer than a round (`core.topic_lists.matching`), the
cheap ones first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Final

from anabranch.broker.topics.kept_list import KeptList
from anabranch.core.names import Namespace, full_name
from anabranch.core.topic_lists.matching import MatchingRound

SLICE_S: Final = 0.005  # before others have their turn
_STATES_MAX: Final = 512  # that are kept at hand; properties may be long
Clock = Callable[[], float]
_State = tuple[bool, tuple[str, ...]]  # of a topic: whether it is open, and its properties


class Slices:
    """Slices of time, between which others have their turn."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._until = now() + SLICE_S

    def over(self) -> bool:
        """Returns whether others should have their turn."""
        return self._now() >= self._until

    async def rest(self) -> None:
        """Others have their turn."""
        await asyncio.sleep(0)
        self._until = self._now() + SLICE_S


class CatchingUp:
    """The lists of selections that are behind, and the topics that they have yet to match.

    `state_of`: a topic's state of now. `least_seen`: the least `has_seen` of a namespace's lists.
    `give_up`: ends a list that takes too long. `used`: the processor's time of this thread.
    """

    def __init__(
        self,
        state_of: Callable[[str], _State],
        least_seen: Callable[[Namespace], int],
        give_up: Callable[[KeptList], None],
        used: Clock,
    ) -> None:
        self.used = used
        self.number = 0  # of changes so far
        self._find_state = state_of
        self._least_seen = least_seen
        self._give_up = give_up
        # The number of each topic's last change; the newest is last.
        self._changes: dict[Namespace, dict[str, int]] = {}
        self._behind: dict[KeptList, None] = {}
        self._states: dict[str, _State] = {}  # looked up lately, and not changed since
        self._is_over: Callable[[], bool] = lambda: False  # the slice of time
        self._used_s = 0.0  # the time at which the present match began
        self._last_asked: tuple[tuple[Namespace, int, int], list[str]] = ((Namespace(""), 0, 0), [])
        self._steps: Iterator[None] = iter(())

    @property
    def is_done(self) -> bool:
        """True if no list is behind."""
        return not self._behind

    def awaits(self, kept: KeptList, number: int) -> bool:
        """Returns whether the list lacks some of so many changes, or is one that the log has not
        had.
        """
        return kept in self._behind and not (kept.is_exact and kept.has_seen >= number)

    def changed(self, home: Namespace, name: str, lists: Iterable[KeptList]) -> None:
        """A topic has changed, and with it, maybe, these lists of its namespace."""
        self.number += 1
        changes = self._changes.setdefault(home, {})
        changes.pop(name, None)
        changes[name] = self.number
        self._states.pop(name, None)
        for kept in lists:
            if kept.selector is not None and kept.making is None:
                self._behind[kept] = None

    def made(self, kept: KeptList) -> None:
        """The list is there, as its topics were at some moment since `has_seen`."""
        if self._since(kept.home, kept.has_seen):
            self._behind[kept] = None
        else:
            kept.has_seen, kept.is_exact = self.number, True

    def dropped(self, kept: KeptList, *, is_last: bool) -> None:
        """The list is not kept any more; `is_last`: nor is any other one of its namespace."""
        self._behind.pop(kept, None)
        if is_last:
            self._changes.pop(kept.home, None)

    def go_on(self, slices: Slices) -> None:
        """Catches up as far as the slice goes."""
        self._is_over = slices.over
        self._used_s = self.used()
        if next(self._steps, self) is self and self._behind:
            self._steps = self._rounds()
            next(self._steps, None)

    def _rounds(self) -> Iterator[None]:
        """One step for each slice of time."""
        while self._behind:
            spent = MatchingRound()
            for kept in sorted(self._behind, key=lambda each: each.effort.mean_s):
                yield from self._caught_up(kept, spent)
            for home in list(self._changes):
                self._forget_seen(home)
        self._states.clear()

    def _forget_seen(self, home: Namespace) -> None:
        """Forgets the changes that all of a namespace's lists have: they are not needed again."""
        changes, seen = self._changes[home], self._least_seen(home)
        for name in list(takewhile(lambda each: changes[each] <= seen, changes)):
            del changes[name]
        if not changes:
            del self._changes[home]

    def _caught_up(self, kept: KeptList, spent: MatchingRound) -> Iterator[None]:
        found: dict[str, bool] = {}
        seen = kept.has_seen
        names = self._since(kept.home, seen)
        while names and kept in self._behind:
            seen = self.number
            yield from self._held_against(kept, names, found, spent)
            names = self._since(kept.home, seen) if self.number > seen else []
        if self._behind.pop(kept, self) is self:
            return  # it is not kept any more
        kept.has_seen, kept.is_exact = seen, True
        if sum(kept.note(name, present) for name, present in found.items()):
            kept.wake()

    def _held_against(
        self, kept: KeptList, names: list[str], found: dict[str, bool], spent: MatchingRound
    ) -> Iterator[None]:
        """Until it is done, or the list is not behind any more."""
        selector, done = kept.selector, 0
        if selector is None:
            return
        for name in names:
            is_open, properties = self._states.get(name) or self._state_of(name)
            found[full_name(name)] = is_open and selector.takes(name, properties)
            done += 1
            if self._is_over():
                if not self._goes_on(kept, done, spent):
                    return
                yield
                if kept not in self._behind:
                    return
                done = 0
        self._goes_on(kept, done, spent)

    def _goes_on(self, kept: KeptList, topics: int, spent: MatchingRound) -> bool:
        """Returns whether the list may take more time, after so many more topics."""
        before, self._used_s = self._used_s, self.used()
        if spent.goes_on(kept.effort, topics, self._used_s - before):
            return True
        self._give_up(kept)
        return False

    def _since(self, home: Namespace, number: int) -> list[str]:
        """The topics that have changed after so many changes."""
        asked = home, number, self.number
        if self._last_asked[0] != asked:  # most lists have seen the same
            changes = self._changes.get(home, {})
            names = list(takewhile(lambda name: changes[name] > number, reversed(changes)))
            self._last_asked = asked, names
        return self._last_asked[1]

    def _state_of(self, name: str) -> _State:
        state = self._states.get(name)
        if state is None:
            if len(self._states) >= _STATES_MAX:
                self._states.clear()
            state = self._states[name] = self._find_state(name)
        return state
