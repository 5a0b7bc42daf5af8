"""`Width`: how many handlers may run, which shrinks while nearly everything fails.

A database that is down fails every message. To try them all at full width would only load it, so
the width is halved each second down to one, and grows again with successes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import Final

_LOOK: Final = 100  # attempts that count
_FAILED: Final = 0.5  # a part of them, and
_KEYS: Final = 10  # of so many keys: a few poisonous keys are no broad failure
_HALVING_S: Final = 1.0


class Width:
    """The width in force, from 1 to `most`. Times are seconds of one clock."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.now = most
        self._last: deque[Hashable | None] = deque(maxlen=_LOOK)  # the failed key; None: succeeded
        self._failed: Counter[Hashable] = Counter()
        self._halved_at = float("-inf")

    @property
    def is_narrowed(self) -> bool:
        return self.now < self.most

    def succeeded(self) -> None:
        if not self._failed and not self.is_narrowed:
            return  # as most of the time: with no failure to forget it says nothing
        self._note(None)
        if self.is_narrowed:
            self.now = min(self.most, self.now + max(1, self.now // 10))

    def failed(self, key: Hashable, now: float) -> None:
        self._note(key)
        is_broad = len(self._failed) >= _KEYS and self._failed.total() >= _FAILED * _LOOK
        if is_broad and now - self._halved_at >= _HALVING_S:
            self._halved_at = now
            self.now = max(1, self.now // 2)

    def _note(self, failed: Hashable | None) -> None:
        if len(self._last) == _LOOK:
            first = self._last[0]
            if first is not None:
                self._failed[first] -= 1
                if not self._failed[first]:
                    del self._failed[first]
        self._last.append(failed)
        if failed is not None:
            self._failed[failed] += 1
