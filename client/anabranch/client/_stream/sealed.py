"""`SealedWaits`: keys that hold up a sealed segment, and so all keys of its children.

The children begin when the segment is drained. So once nothing else of a sealed bucket is left, a
message that waits for its next attempt has `Retry.sealed_wait_s` for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from anabranch.client._consumer.holding import Holding
from anabranch.client._stream.lanes import Item, KeyLane, Lanes
from anabranch.client._stream.retry import ComesAgain, Retry

_LOOK_S: Final = 0.5


class SealedWaits:
    """The messages for which sealed buckets wait, and for nothing else. Pure: times come in.

    `keys`: that wait, by the number of the fetch. `blocked`: the keys of a bucket whose time is
    over, and which wait on.
    """

    def __init__(self, retry: Retry) -> None:
        self._wait_s = retry.sealed_wait_s
        self._ends = retry.then == "dead_letter"
        self._look_at = 0.0
        self.keys: dict[int, int] = {}
        self.blocked: dict[Holding, int] = {}

    def look_soon(self) -> None:
        """Has the next look not wait for its turn, because a message waits from now on."""
        self._look_at = 0.0

    def look(
        self,
        fetches: Mapping[int, Holding],
        lanes: Lanes[Any],
        at_work: Mapping[Item[Any], Holding],
        now: float,
    ) -> list[Item[Any]]:
        """Returns the messages whose wait is to end now. `at_work`: what handlers have."""
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_S
        self.keys, self.blocked, found = {}, {}, list[Item[Any]]()
        for number, holding in fetches.items():
            queued = lanes.queued.get(number)
            if queued is None or not _is_read(holding):
                continue
            firsts = [*_firsts({item.lane for item in queued.items})]
            works = (item for item, its in at_work.items() if its is holding)
            if all(map(_waits, firsts)) and all(map(_waits, works)):
                for item in firsts:
                    item.held_from = item.held_from or now
                self.keys[number] = len(firsts)
            late = [item for item in firsts if item.number == number and self._is_late(item, now)]
            ends = [item for item in late if self._ends and not item.is_over]
            if len(late) > len(ends):
                self.blocked[holding] = len(late) - len(ends)
            found += ends
        return found

    def _is_late(self, item: Item[Any], now: float) -> bool:
        is_held = item.lane.due is not None and item.held_from > 0.0
        return is_held and now >= item.held_from + self._wait_s


def _is_read(holding: Holding) -> bool:
    """Tells whether all messages of a bucket were taken up to its sealed end."""
    gaps, end = holding.gaps, holding.end_offset
    return gaps is not None and end is not None and max(gaps.read_end, holding.reached) >= end


def _firsts(lanes: Iterable[KeyLane[Any]]) -> Iterable[Item[Any]]:
    return (lane.items[0] for lane in lanes if not lane.running)


def _waits(item: Item[Any]) -> bool:
    """Tells whether a message waits for an attempt, or has. Healthy ones wait where a batch is
    halved, which is over soon.
    """
    return item.error is not None and not isinstance(item.error, ComesAgain)
