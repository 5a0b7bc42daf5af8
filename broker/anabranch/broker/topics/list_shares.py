"""`ListShares`: bounds each sharer's part of the lists of selections that a node follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

from anabranch.broker.errors import OverloadedError
from anabranch.core.names import Namespace
from anabranch.core.topic_lists.selection import Selection

SELECTED_MAX: Final = 1_000  # lists of patterns and properties: each change is held against all
SELECTED_BYTES_MAX: Final = 128 << 20  # of them
_SHARE: Final = 10  # each address and each role has a tenth

Key = tuple[Namespace, Selection]
Sharers = tuple[Hashable, ...]  # for whom a list counts that a client follows


class ListShares:
    """The sharers' parts. `size_of`: a list's bytes.

    A list that several clients of one sharer follow counts once.
    """

    def __init__(self, size_of: Callable[[Key], int]) -> None:
        self._size_of = size_of
        self._followed: dict[Hashable, Counter[Key]] = {}

    def check(self, sharers: Sharers, key: Key) -> None:
        """Raises OverloadedError where one of them may not follow one more list."""
        for each in sharers:
            followed = self._followed.get(each, ())
            size = 0 if key in followed else sum(map(self._size_of, followed))
            if key not in followed and (
                len(followed) >= SELECTED_MAX // _SHARE or size > SELECTED_BYTES_MAX // _SHARE
            ):
                raise OverloadedError(
                    f"your address or role follows {len(followed)} patterns and property filters "
                    f"of {size >> 20} MB here, and may follow {SELECTED_MAX // _SHARE} of "
                    f"{SELECTED_BYTES_MAX // _SHARE >> 20} MB: close some, or watch the whole "
                    "namespace"
                )

    def take(self, sharers: Sharers, key: Key) -> None:
        """A client follows the list."""
        for each in sharers:
            self._followed.setdefault(each, Counter())[key] += 1

    def give_back(self, sharers: Sharers, key: Key) -> None:
        """It does no more."""
        for each in sharers:
            followed = self._followed[each]
            followed[key] -= 1
            if not followed[key]:
                del followed[key]
            if not followed:
                del self._followed[each]
