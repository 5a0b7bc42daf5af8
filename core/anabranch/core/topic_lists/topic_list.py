"""`TopicList`: the names that a watcher follows, in order, with their hash and their changes.

Each change is a *generation*. A watcher remembers the generation that it was told last, and nothing
else. The journal of changes, with its last `JOURNAL_MAX` entries, gives the next difference for it.
Watchers at the same generation are told the same object.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import google_crc32c
import msgspec

JOURNAL_MAX: Final = 10_000
_DIFFERENCES_MAX: Final = 64  # for watchers at so many generations; others are made anew each time


def topics_hash(names: Iterable[str]) -> str:
    """Pulsar's hash of a list (its `TopicList.calculateHash`): CRC32C over the names in order, with
    commas between them, as the hex digits of its four bytes, the lowest first.

    >>> topics_hash(["topic://a/b/d", "topic://a/b/c"])
    'a3d129ef'
    """
    crc: int = google_crc32c.value(",".join(sorted(names)).encode())
    return crc.to_bytes(4, "little").hex()


class Difference(msgspec.Struct, frozen=True):
    """The step from one generation to a later one; `topics_hash`: that of the resulting list."""

    generation: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    topics_hash: str

    @property
    def is_empty(self) -> bool:
        """Tells whether the names are the same: added names have gone again."""
        return not self.added and not self.removed


class TopicList:
    """A list of full names, as it is now, with the last steps that led to it."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = sorted(set(names))
        self.names_bytes = sum(map(len, self.names))
        self.generation = 0
        self._journal: deque[tuple[str, bool]] = deque(maxlen=JOURNAL_MAX)
        self._hash = ""
        self._differences: dict[int, Difference] = {}  # to this generation, by the former one

    @property
    def topics_hash(self) -> str:
        """The hash that clients compare."""
        if not self._hash:
            self._hash = topics_hash(self.names)
        return self._hash

    def note(self, name: str, present: bool) -> bool:
        """The name is there, or is not; tells whether that is new."""
        at = bisect_left(self.names, name)
        if (at < len(self.names) and self.names[at] == name) is present:
            return False
        if present:
            self.names.insert(at, name)
        else:
            del self.names[at]
        self.names_bytes += len(name) if present else -len(name)
        self.generation += 1
        self._journal.append((name, present))
        self._hash = ""
        self._differences.clear()
        return True

    def since(self, generation: int) -> Difference | None:
        """The changes since that generation; None if the journal does not reach back to it.

        A watcher applies it to its list of that generation, removals first, and then has this list.
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
        # A name whose first and last step are opposite leaves no change.
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
