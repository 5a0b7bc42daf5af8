"""`Intake`: which buckets are read, so that what is queued has a bound. No I/O, no clock, no tasks.

All topics of a run share the bound. Each bucket of which something is queued has an equal part of
it, and one part is for the next bucket that comes. A bucket that has more than its part of what is
nearly full stops being read, until it has half of that. If all is full and nothing can start, those
with more than their part give the rest back, which is read again later. So messages that cannot
start hold up no other bucket for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from anabranch.client._consumer.assignment import Fetch
from anabranch.client._consumer.core import ConsumerCore
from anabranch.client._consumer.gaps import Gaps
from anabranch.client._consumer.holding import Holding
from anabranch.client._stream.lanes import Item, Lanes, Queued
from anabranch.client._stream.sealed import SealedWaits
from anabranch.client._stream.settings import RunSettings

_AHEAD: Final = 4

_MessageT = TypeVar("_MessageT")


class TopicWork:
    """The part of one topic's consumer in a run. `late`: its messages that could not be put aside
    so far. `at_work`: those that handlers have. `is_over`: nothing of it starts any more.
    """

    __slots__ = ("at_work", "core", "is_over", "late", "numbers", "sealed", "topic")

    def __init__(self, core: ConsumerCore, topic: str, sealed: SealedWaits) -> None:
        self.core = core
        self.topic = topic
        self.numbers: dict[int, None] = {}  # fetches of which something is or was queued
        self.late: set[Item[Any]] = set()
        self.at_work: dict[Item[Any], Holding] = {}
        self.sealed = sealed
        self.is_over = False


class HeldBack(NamedTuple):
    """A bucket that is to be read no more for now: by `former`, and later by its fetch."""

    part: TopicWork
    former: int
    holding: Holding


class Resumed(NamedTuple):
    """A bucket whose fetch is to begin."""

    part: TopicWork
    fetch: Fetch


class Intake(Generic[_MessageT]):
    """The parts of a run, and what is read of them into `lanes`."""

    def __init__(self, lanes: Lanes[_MessageT], settings: RunSettings) -> None:
        self.parts: dict[TopicWork, None] = {}
        self._lanes = lanes
        self._retry = settings.retry
        self._messages_max = settings.queued_max
        self._bytes_max = settings.queued_bytes_max
        self._stopped: dict[int, None] = {}  # fetches that have not begun, of buckets that stopped

    # Topics come and go.

    def join(self, core: ConsumerCore, topic: str) -> TopicWork:
        """Has a topic's consumer take part."""
        part = TopicWork(core, topic, SealedWaits(self._retry))
        self.parts[part] = None
        return part

    def leave(self, part: TopicWork) -> None:
        """Starts nothing more of a part. What runs of it goes on."""
        part.is_over = True
        self.parts.pop(part, None)
        for number in list(part.numbers):
            self._drop(part, number)

    def tend(self, part: TopicWork) -> None:
        """Notes that a part has changed: a bucket was given or taken away, or a commit is done."""
        fetches = part.core.fetches
        over = [each for each in part.numbers if each not in fetches]
        for number in over:
            self._drop(part, number)
        if over:
            part.late = {item for item in part.late if not item.is_dropped}
        self._lanes.look_again(part.numbers)

    def _drop(self, part: TopicWork, number: int) -> None:
        self._lanes.drop(number)
        del part.numbers[number]
        self._stopped.pop(number, None)

    # Messages.

    def served(self, part: TopicWork, number: int) -> tuple[Holding, Gaps] | None:
        """Returns the bucket of a fetch, None if it was taken away."""
        holding = None if part.is_over else part.core.fetches.get(number)
        gaps = None if holding is None else holding.work_apart()
        if holding is None or gaps is None:
            return None
        self.open(part, number)
        return holding, gaps

    def open(self, part: TopicWork, number: int) -> None:
        """Has messages of a fetch be queued."""
        part.numbers[number] = None
        self._lanes.open(number, part)

    def part_of(self, queued: Queued) -> TopicWork:
        """Returns the part to which messages of a bucket belong."""
        part = queued.group
        if not isinstance(part, TopicWork):
            raise AssertionError(f"messages of no topic are queued: {part!r}")
        return part

    # The bound.

    @property
    def has_room(self) -> bool:
        """Tells whether more may be queued."""
        lanes = self._lanes
        return lanes.messages < self._messages_max and lanes.bytes < self._bytes_max

    @property
    def share(self) -> tuple[int, int]:
        """The messages and bytes that each bucket may have queued while nearly all is full. One
        part more is free, so that a bucket that comes waits for nobody's queued work.
        """
        parts = 1 + self._lanes.buckets
        return max(1, self._messages_max // parts), max(1, self._bytes_max // parts)

    @property
    def _half(self) -> tuple[int, int]:
        messages, size = self.share
        return messages // 2, size // 2

    @property
    def ahead(self) -> int:
        """The messages of a topic that may wait to be taken, as one bucket may have them all."""
        return max(1, self._messages_max // (_AHEAD * max(1, self._lanes.buckets)))

    def stops(self, part: TopicWork, numbers: Collection[int]) -> Iterator[HeldBack]:
        """Stops those of these fetches, of which something was read, that have too much."""
        lanes, (messages, size) = self._lanes, self.share
        is_many = lanes.messages > self._messages_max // 2
        is_large = lanes.bytes > self._bytes_max // 2
        for number in numbers if is_many or is_large else ():
            queued = lanes.queued.get(number)
            if queued is None or queued.goes_on_at is not None:
                continue
            if (is_many and queued.messages > messages) or (is_large and queued.bytes > size):
                yield from self._stop(part, number, queued)

    def sheds(self) -> Iterator[HeldBack]:
        """Makes room, if there is none and nothing can start: each bucket with more than its part
        gives the rest back. A message that has failed stays, with those before it.
        """
        lanes, (messages, size) = self._lanes, self.share
        if self.has_room or lanes.is_any_ready:
            return
        for number, queued in list(lanes.queued.items()):
            if queued.messages <= messages and queued.bytes <= size:
                continue
            part = self.part_of(queued)
            holding = part.core.fetches.get(number)
            if holding is None or holding.gaps is None or holding.gaps.waits:
                continue  # it was taken away, or a commit lets it start soon
            start = lanes.cut(number, messages, size)
            if start is not None:
                holding.gaps.unread(start)
                yield from self._stop(part, number, queued)

    def _stop(self, part: TopicWork, former: int, queued: Queued) -> Iterator[HeldBack]:
        """Gives the bucket another fetch, which begins later: what is on its way does not count."""
        holding = part.core.fetches.get(former)
        if holding is None or holding.gaps is None:
            return
        number = part.core.serve(holding, holding.gaps.read_end)
        self._lanes.renumber(former, number)
        self._stopped.pop(former, None)
        del part.numbers[former]
        part.numbers[number] = self._stopped[number] = None
        queued.goes_on_at = self._half
        yield HeldBack(part, former, holding)

    def is_stopped(self, number: int) -> bool:
        """Tells whether a fetch is not to begin yet."""
        return number in self._stopped

    def look_at_stopped(self) -> None:
        """Notes that the parts of buckets have changed with the number of those that have one."""
        for number in self._stopped:
            queued = self._lanes.queued[number]
            queued.goes_on_at = self._half
            if queued.has_eased:
                self._lanes.eased[number] = None

    def resumes(self) -> Iterator[Resumed]:
        """Has the buckets read again that have eased."""
        eased = self._lanes.eased
        while eased:
            number = next(reversed(eased))
            del eased[number]
            self._stopped.pop(number, None)
            queued = self._lanes.queued[number]
            part = self.part_of(queued)
            queued.goes_on_at = None
            holding = part.core.fetches.get(number)
            if holding is not None and holding.fetch is not None:
                yield Resumed(part, holding.fetch)
