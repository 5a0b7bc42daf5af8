"""`Lanes`: which message may start next. No I/O, no clock, no tasks.

A lane holds the messages of one key, and only its first ones may run, in one call of a handler.
Lanes outlive buckets: a bucket that is taken away and comes back finds what still runs, and its key
waits for that.

A free slot goes to the topics in turn, within a topic to the buckets in turn, and within a bucket
to the lane whose first message has the lowest offset. So a long backlog does not starve the others,
and what could hold a position back is worked on first. A bucket whose first message may not start
has no turns until something of it has changed: no slot costs a look at all buckets.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from anabranch.client._stream.turns import Turns

_MessageT = TypeVar("_MessageT")


@dataclass(slots=True, eq=False)
class Item(Generic[_MessageT]):
    """A message in a lane. `number` is that of the fetch which read it.

    `start` is the offset at which its part of the bucket begins: Kafka has none from there to it.
    """

    message: _MessageT
    number: int
    start: int
    offset: int
    size: int
    lane: KeyLane[_MessageT]
    failures: int = 0
    error: BaseException | None = None  # of the last attempt
    failed_at: float = 0.0  # the first time
    held_from: float = 0.0  # since when its sealed bucket waits for nothing but such
    batch_max: int = sys.maxsize  # messages of a batch with it
    is_over: bool = False  # no handler gets it again: it waits to be put aside
    is_dropped: bool = False


@dataclass(slots=True, eq=False)
class KeyLane(Generic[_MessageT]):
    """The messages of one key. `running` run; else the first waits for its next attempt, or is
    ready.
    """

    key: Hashable
    items: deque[Item[_MessageT]] = field(default_factory=deque)
    running: int = 0
    due: float | None = None  # of the next attempt at its first message


Heads = list[tuple[int, int, KeyLane[_MessageT]]]  # by offset


class Queued:
    """Messages of a bucket that do not run. `ready`: lanes by the offset of their first.

    `group` has turns with the others. `goes_on_at`: messages and bytes at which the bucket, which
    has stopped being read, is read again; None while it is read.
    """

    __slots__ = ("bytes", "goes_on_at", "group", "items", "messages", "ready")

    def __init__(self, group: Hashable) -> None:
        self.group = group
        self.items: dict[Item[Any], None] = {}
        self.ready: list[tuple[int, int, KeyLane[Any]]] = []
        self.messages = 0
        self.bytes = 0
        self.goes_on_at: tuple[int, int] | None = None

    @property
    def has_eased(self) -> bool:
        """Tells whether it has stopped being read, and is to be read again."""
        at = self.goes_on_at
        if at is None:
            return False
        return self.messages <= 1 or (self.messages <= at[0] and self.bytes <= at[1])


class Lanes(Generic[_MessageT]):
    """The messages that were read and are not done. `may_start` tells whether an item may start."""

    def __init__(self, may_start: Callable[[Item[_MessageT]], bool]) -> None:
        self.queued: dict[int, Queued] = {}  # by the number of the fetch
        self.messages = self.bytes = 0  # of all that is queued
        self.buckets = 0  # of which something is queued
        self.running = 0  # calls of handlers
        self.eased: dict[int, None] = {}  # fetches that have stopped, and are to go on
        self._may_start = may_start
        self._lanes: dict[Hashable, KeyLane[_MessageT]] = {}
        self._turns: Turns[int] = Turns()  # fetches with ready lanes
        self._waiting: list[tuple[float, int, KeyLane[_MessageT]]] = []
        self._count = 0  # breaks ties, first come first served

    def __len__(self) -> int:
        """The number of keys with a message."""
        return len(self._lanes)

    @property
    def deepest(self) -> int:
        """The number of messages of the key that has most."""
        return max((len(each.items) + each.running for each in self._lanes.values()), default=0)

    def blocked(self) -> Iterator[Item[_MessageT]]:
        """The messages that wait for their next attempt."""
        return (lane.items[0] for lane in self._lanes.values() if lane.due is not None)

    def add(
        self, key: Hashable, number: int, message: _MessageT, start: int, offset: int, size: int
    ) -> None:
        """Puts a message behind those of its key."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = KeyLane(key)
        item = Item(message, number, start, offset, size, lane)
        lane.items.append(item)
        self._note(item)
        if len(lane.items) == 1 and not lane.running:
            self._make_ready(lane)

    @property
    def is_any_ready(self) -> bool:
        """Tells whether a message may perhaps start."""
        return bool(self._turns)

    def take(self) -> Item[_MessageT] | None:
        """Returns the next message to start, None if none may. It counts as running then, in a call
        of its own.
        """
        while self._turns:
            number = self._turns.take()
            queued = self.queued[number]
            lane = queued.ready[0][2]
            if not self._may_start(lane.items[0]):
                self._turns.discard(queued.group, number)  # nor may what lies behind it
                continue
            heapq.heappop(queued.ready)
            if not queued.ready:
                self._turns.discard(queued.group, number)
            self.running += 1
            return self._taken(lane)
        return None

    def look_again(self, numbers: Collection[int] | None = None) -> None:
        """Notes that what may start of these fetches may have changed. None: of all."""
        for number in self.queued if numbers is None else numbers:
            queued = self.queued.get(number)
            if queued is not None and queued.ready:
                self._turns.add(queued.group, number)

    def join(
        self, call: list[Item[_MessageT]], heads: Heads[_MessageT], *, others: bool
    ) -> Item[_MessageT] | None:
        """Returns a further message for a call of a handler, None if none may join it. It counts as
        running then.

        It is the next one in the bucket, of the keys of the call (`heads`) or, with `others`, of
        any that is ready.
        """
        number = call[0].number
        queued = self.queued.get(number)
        ready = queued.ready if queued is not None and others else []
        source = ready if ready and (not heads or ready[0] < heads[0]) else heads
        if not source:
            return None
        lane = source[0][2]
        first = lane.items[0]
        if first.is_over or len(call) >= first.batch_max or not self._may_start(first):
            return None
        heapq.heappop(source)
        if queued is not None and not queued.ready:
            self._turns.discard(queued.group, number)
        item = self._taken(lane)
        self._note_head(heads, lane, number)
        return item

    def heads(self, call: list[Item[_MessageT]]) -> Heads[_MessageT]:
        """Returns the next messages of a call's keys, for `join`."""
        found: Heads[_MessageT] = []
        for lane in {item.lane for item in call}:
            self._note_head(found, lane, call[0].number)
        return found

    def _note_head(self, heads: Heads[_MessageT], lane: KeyLane[_MessageT], number: int) -> None:
        if lane.items and lane.items[0].number == number:
            self._count += 1
            heapq.heappush(heads, (lane.items[0].offset, self._count, lane))

    def _taken(self, lane: KeyLane[_MessageT]) -> Item[_MessageT]:
        item = lane.items.popleft()
        lane.running += 1
        self._forget(item)
        return item

    def done(self, item: Item[_MessageT]) -> None:
        """Notes that a message runs no more, and is not to start again."""
        item.lane.running -= 1
        self._go_on(item.lane)

    def again(self, item: Item[_MessageT], due: float) -> None:
        """Notes that a message runs no more, and is to start again at that time, before all of its
        key. Its bucket may be read by another fetch by now: `number` says which.

        The messages of a call end in the order that puts a key's first one back last.
        """
        lane = item.lane
        lane.running -= 1
        lane.due = due
        lane.items.appendleft(item)
        self._note(item)
        self._go_on(lane)

    def wake(self, now: float) -> None:
        """Makes those ready whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            due, _, lane = heapq.heappop(self._waiting)
            if lane.due == due:
                lane.due = None
                self._make_ready(lane)

    def wake_at(self) -> float | None:
        """Returns the time of the next attempt, None if none waits."""
        while self._waiting and self._waiting[0][2].due != self._waiting[0][0]:
            heapq.heappop(self._waiting)  # it was dropped
        return self._waiting[0][0] if self._waiting else None

    def hasten(self, lane: KeyLane[_MessageT], now: float) -> None:
        """Has the message start now for which a key waits."""
        lane.due = now
        self._go_on(lane)

    def open(self, number: int, group: Hashable) -> None:
        """Has the messages of a fetch take turns in that group."""
        if number not in self.queued:
            self.queued[number] = Queued(group)

    def renumber(self, former: int, number: int) -> None:
        """Notes that a bucket is read by another fetch, which goes on where the former one was."""
        queued = self.queued.pop(former, None)
        if queued is None:
            return
        self._turns.discard(queued.group, former)
        self.queued[number] = queued
        self.eased.pop(former, None)
        for item in queued.items:
            item.number = number
        self.look_again((number,))

    def drop(self, number: int) -> None:
        """Forgets what of a fetch does not run. The rest goes on, and its key waits for it."""
        queued = self.queued.pop(number, None)
        if queued is not None:
            self.eased.pop(number, None)
            self._turns.discard(queued.group, number)
            self._discard(queued, list(queued.items))

    def cut(self, number: int, messages: int, size: int) -> int | None:
        """Forgets the last messages of a fetch that it has beyond these bounds, but the first, and
        but one that has failed, with those before it. Returns the offset to read from again, None
        if there are none.
        """
        queued = self.queued[number]
        items = sorted(queued.items, key=lambda each: each.offset)
        left, last = queued.bytes, len(items)
        while last > 1 and (last > messages or left > size) and items[last - 1].error is None:
            last -= 1
            left -= items[last].size
        gone = items[last:]
        if not gone:
            return None
        self._turns.discard(queued.group, number)
        self._discard(queued, gone)
        self.look_again((number,))
        return gone[0].start

    def _discard(self, queued: Queued, items: list[Item[_MessageT]]) -> None:
        for item in items:
            item.is_dropped = True
            self._forget_in(queued, item)
        queued.ready = [each for each in queued.ready if not each[2].items[0].is_dropped]
        heapq.heapify(queued.ready)
        for lane in dict.fromkeys(item.lane for item in items):
            was_first = lane.items[0]
            lane.items = deque(each for each in lane.items if not each.is_dropped)
            if was_first.is_dropped:
                lane.due = None
                self._go_on(lane)

    def _note(self, item: Item[_MessageT]) -> None:
        queued = self.queued.get(item.number)
        if queued is None:
            queued = self.queued[item.number] = Queued(None)
        self.buckets += not queued.messages
        queued.items[item] = None
        queued.messages += 1
        queued.bytes += item.size
        self.messages += 1
        self.bytes += item.size

    def _forget(self, item: Item[_MessageT]) -> None:
        queued = self.queued[item.number]
        self._forget_in(queued, item)
        if queued.has_eased:
            self.eased[item.number] = None

    def _forget_in(self, queued: Queued, item: Item[_MessageT]) -> None:
        del queued.items[item]
        queued.messages -= 1
        self.buckets -= not queued.messages
        queued.bytes -= item.size
        self.messages -= 1
        self.bytes -= item.size

    def _go_on(self, lane: KeyLane[_MessageT]) -> None:
        if lane.running:
            return
        if lane.items and lane.due is not None:
            self._count += 1
            heapq.heappush(self._waiting, (lane.due, self._count, lane))
        elif lane.items:
            self._make_ready(lane)
        elif self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _make_ready(self, lane: KeyLane[_MessageT]) -> None:
        first = lane.items[0]
        queued = self.queued[first.number]
        self._count += 1
        heapq.heappush(queued.ready, (first.offset, self._count, lane))
        self._turns.add(queued.group, first.number)
