"""The choice of a broker for a unit: fewest units first, rendezvous hashing among equals."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from anabranch.core.log.grounds import Grounds

_HARDLY_MORE: Final = 16  # one in so many: nothing where there are few units, which shall be even

Chosen = tuple[str, tuple[Grounds, ...]]  # a broker, "" for none, and what the choice rested on


class Chooser(Protocol):
    """Chooses a unit's broker among those that take units; `counts` has the number of units of
    each.
    """

    def __call__(
        self, unit: str, counts: Mapping[str, int], excluded: Iterable[str] = ()
    ) -> Chosen: ...


def by_count(unit: str, counts: Mapping[str, int], excluded: Iterable[str] = ()) -> Chosen:
    """Chooses as `choose_broker`, because the brokers' loads are unknown."""
    return choose_broker(unit, counts, excluded), ()


def choose_broker(
    unit: str, counts: Mapping[str, int], excluded: Iterable[str] = (), at_hand: str = ""
) -> str:
    """The candidate with the fewest units; "" if there is none.

    `at_hand` is the broker that needs fewer writes and reads. It is chosen if it has hardly more
    units than the candidate with the fewest.

    >>> choose_broker("a/b/0x00000000_0xffffffff", {"x:1": 3, "y:1": 2})
    'y:1'
    >>> choose_broker("a/b/0x00000000_0xffffffff", {"x:1": 34, "y:1": 32}, at_hand="x:1")
    'x:1'
    """
    barred = frozenset(excluded)
    candidates = [broker for broker in counts if broker not in barred]
    if not candidates:
        return ""
    if at_hand in candidates:
        fewest = min(counts[broker] for broker in candidates)
        if counts[at_hand] <= fewest + fewest // _HARDLY_MORE:
            return at_hand
    return min(candidates, key=lambda broker: (counts[broker], _weight(unit, broker), broker))


def _weight(unit: str, broker: str) -> int:
    return zlib.crc32(f"{unit}@{broker}".encode())
