"""`TopicList`: the names that somebody follows, and what has changed in them.

Each change is a *generation*. A watcher remembers the generation that it was told last, and nothing
else: what it has to be told next follows from the journal of changes, of which the last
`JOURNAL_MAX` are kept. Many who are at the same generation are told the same object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from anabranch.core.topic_lists.sorted_names import SortedNames, pieces_hash

JOURNAL_MAX: Final = 10_000
_DIFFERENCES_MAX: Final = 64  # of watchers at so many generations; others are made anew each time


class Difference(msgspec.Struct, frozen=True):
    """What leads from one generation to a later one; `topics_hash`: of the list that results."""

    generation: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    topics_hash: str

    @property
    def is_empty(self) -> bool:
        """Whether the names are the same: what came has gone again."""
        return not self.added and not self.removed


class TopicList:
    """A list of full names, as it is now, with the last steps that led to it."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = SortedNames(names)
        self.generation = 0
        self._journal: deque[tuple[str, bool]] = deque(maxlen=JOURNAL_MAX)
        self._hash = ""
        self._differences: dict[int, Difference] = {}  # to this generation, by the former one

    @property
    def topics_hash(self) -> str:
        """The hash that clients compare."""
        if not self._hash:
            self._hash = pieces_hash(self.names.pieces)
        return self._hash

    def note(self, name: str, present: bool) -> bool:
        """The name is there, or is not; whether that is new."""
        if not (self.names.add(name) if present else self.names.discard(name)):
            return False
        self.generation += 1
        self._journal.append((name, present))
        self._hash = ""
        self._differences.clear()
        return True

    def since(self, generation: int) -> Difference | None:
        """What has changed since that generation; None if the journal does not reach back to it.

        Who applies it to the list of that generation, what was removed first, has this one.
        """
        steps = self.generation - generation
        if not 0 <= steps <= len(self._journal):
            return None
        known = self._differences.get(generation)
        if known is None:
            known = self._made(steps)
            if len(self._differences) < _DIFFERENCES_MAX:
                self._differences[generation] = known
        return known

    def _made(self, steps: int) -> Difference:
        # Of a name whose first and last step are opposite, nothing is left.
        firsts: dict[str, bool] = {}
        lasts: dict[str, bool] = {}
        for name, present in islice(reversed(self._journal), steps):  # the newest comes first
            lasts.setdefault(name, present)
            firsts[name] = present
        changed = [name for name, present in lasts.items() if firsts[name] is present]
        return Difference(
            generation=self.generation,
            added=tuple(sorted(name for name in changed if lasts[name])),
            removed=tuple(sorted(name for name in changed if not lasts[name])),
            topics_hash=self.topics_hash,
        )
