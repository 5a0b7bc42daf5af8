"""`Router`: selects the partition writer of a producer that takes a message now. Pure, no I/O.

Keys keep their order over any number of splits and merges in flight. A key has one place in each
segment. At any time at most one writer takes it, the oldest one that has not been left yet.
Messages pass from a writer to the next in their order, and only after the former one has settled
everything older of the same key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from anabranch.client._producer.batch import PendingMessage
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._topics.layout import Segment, TopicLayout
from anabranch.core.entities.layout import uncovered
from anabranch.core.hashing import bucket_of, hash32, segment_hash

_RING_END: Final = 0xFFFF
_ROUTES_MAX: Final = 200_000  # keys remembered; then all are forgotten, which costs little

_Place = tuple[int, int, int]  # incarnation, segment, bucket
WriterT = TypeVar("WriterT", bound=PartitionWriter)
MakeWriter = Callable[[int, Segment, int], WriterT]


class Router(Generic[WriterT]):
    """All writers of one producer. `routes` remembers the places of keys, for the hot path.

    An entry of `routes` counts only while its writer is open.
    """

    def __init__(self, layout: TopicLayout, make: MakeWriter[WriterT]) -> None:
        self.layout = layout
        self.routes: dict[str | bytes, WriterT] = {}
        self.leaving: list[WriterT] = []  # the oldest first
        self._make = make
        self._writers: dict[_Place, WriterT] = {}
        self._left: set[_Place] = set()  # refuse appends, though their segments are not sealed yet
        self._rotation: list[WriterT] = []
        self._turn = -1  # the first one is next
        # While no writer leaves: the writers of each segment by bucket, and where segments start.
        self._table: list[list[WriterT | None]] = []
        self._starts: list[int] = []

    def writers(self) -> list[WriterT]:
        """Returns all writers that have not been left."""
        return list(self._writers.values())

    def update(self, layout: TopicLayout) -> list[WriterT]:
        """Takes a newer layout. Returns the writers that begin to leave for it."""
        self.layout = layout
        self._rotation, self._table = [], []
        self._left = {place for place in self._left if not self._is_sealed(place)}
        begun = [
            writer
            for place, writer in self._writers.items()
            if writer.open and self._is_sealed(place)
        ]
        for writer in begun:
            self.close(writer)
        return begun

    def close(self, writer: WriterT) -> None:
        """Has the writer begin to leave. Does nothing if it has begun."""
        if writer.open:
            writer.open = False
            self._table = []
            self.leaving.append(writer)
            self.leaving.sort(key=_age)

    def reopen(self, writer: WriterT) -> list[PendingMessage]:
        """Lets a writer go on that closed for no reason.
        Returns its held messages, to be sent again.
        """
        writer.open = True
        self.leaving.remove(writer)
        return self._emptied(writer)

    def leave(self, writer: WriterT) -> list[PendingMessage]:
        """Leaves the writer for ever. Returns the messages to send on, in their order."""
        self.leaving.remove(writer)
        self._rotation = []
        place = (writer.incarnation, writer.segment.segment_id, writer.bucket)
        del self._writers[place]
        if not self._is_sealed(place):
            self._left.add(place)
        return self._emptied(writer)

    def known(self, key: bytes) -> WriterT | None:
        """Returns the writer that takes a message now, if that is easily found.
        None means: ask `route`.
        """
        if not self._table and not self._lay_table():
            return None
        position = hash32(key)
        row = self._table[bisect_right(self._starts, position >> 16) - 1]
        writer = row[bucket_of(position, len(row))]
        if writer is not None and len(self.routes) < _ROUTES_MAX:
            self.routes[key] = writer
        return writer

    def _lay_table(self) -> bool:
        if self.leaving or self._left:  # at once, as it is asked for each new key then
            return False
        layout = self.layout
        infos = [part.info for part in layout.active]
        follow = zip([-1, *[info.end for info in infos]], infos, strict=False)
        is_whole = all(end + 1 == info.start for end, info in follow)
        if not infos or not is_whole or infos[-1].end != _RING_END or layout.is_adopted:
            return False
        self._starts = [info.start for info in infos]
        self._table = [
            [
                self._writers.get((layout.incarnation, info.segment_id, bucket))
                for bucket in range(info.buckets)
            ]
            for info in infos
        ]
        return True

    def route(self, key: str | bytes | None) -> WriterT:
        """Returns the writer that takes a message now. A writer that is not open holds the message.

        Raises UncoveredHashError if the layout has no segment for it.
        """
        if key is None:
            return self._next_in_rotation()
        position = hash32(key)
        part, bucket = self._place_at(key, position)
        # A child may refuse before we hear what became of its parent, which others' keys had left:
        # the older of both takes it, also if nothing was sent there so far.
        leaving = next((each for each in self.leaving if each.covers(key, position)), None)
        if leaving is not None and _age(leaving) < (self.layout.incarnation, part.segment_id):
            return leaving
        writer = self._writer(part, bucket)
        if len(self.routes) >= _ROUTES_MAX:
            self.routes.clear()
        self.routes[key] = writer
        return writer

    def _place_at(self, key: str | bytes, position: int) -> tuple[Segment, int]:
        """Returns the place of a key at that position: a child only once its parent refuses."""
        hash16 = segment_hash(position)
        part = self.layout.active_at(hash16)
        bucket = part.bucket(key, position)
        if self._has_left(part, bucket):
            part = self.layout.child_at(hash16) or part
            bucket = part.bucket(key, position)
        return part, bucket

    def _has_left(self, part: Segment, bucket: int) -> bool:
        return (self.layout.incarnation, part.segment_id, bucket) in self._left

    def _is_sealed(self, place: _Place) -> bool:
        incarnation, segment_id, _ = place
        return incarnation != self.layout.incarnation or self.layout.is_sealed(segment_id)

    def _writer(self, part: Segment, bucket: int) -> WriterT:
        number = (self.layout.incarnation, part.segment_id, bucket)
        writer = self._writers.get(number)
        if writer is None:
            writer = self._writers[number] = self._make(self.layout.incarnation, part, bucket)
            if self._table:
                place = bisect_right(self._starts, part.info.start) - 1
                if self.layout.active[place] is part:
                    self._table[place][bucket] = writer
        return writer

    def _next_in_rotation(self) -> WriterT:
        """Returns the next writer for messages without a key.
        They go round over all segments, and over the buckets of each. Raises UncoveredHashError.
        """
        for _ in range(2):
            for _ in range(len(self._rotation)):
                self._turn = (self._turn + 1) % len(self._rotation)
                writer = self._rotation[self._turn]
                if writer.open and not writer.lost:
                    return writer
            self._rotation = self._targets()
        taking = self.leaving or self._rotation  # all are leaving, or lost
        if not taking:
            raise uncovered(None, ())
        return taking[-1]

    def _targets(self) -> list[WriterT]:
        """Returns the buckets that may take a message, and those that leave.
        Those of a child are among them once its parents take none.
        """
        layout = self.layout
        for part in layout.active:
            part.bucket(b"", 0)  # where nobody knows how keys are placed, none of ours writes
        places = [
            (part, bucket)
            for part in layout.active
            for bucket in range(part.info.buckets)
            if not self._has_left(part, bucket)
        ]
        taking = {part.segment_id for part, _ in places}
        places += [
            (child, bucket)
            for child in layout.children
            if layout.sealing and taking.isdisjoint(child.info.parent_ids)
            for bucket in range(child.info.buckets)
        ]
        writers = (self._writer(part, bucket) for part, bucket in places)
        # From segment to segment, from the ring's first on, and at each to its next bucket.
        return sorted(writers, key=lambda writer: writer.bucket)

    @staticmethod
    def _emptied(writer: WriterT) -> list[PendingMessage]:
        messages = [*writer.refused, *writer.held]
        writer.refused = []
        writer.held.clear()
        return messages


def _age(writer: PartitionWriter) -> tuple[int, int]:
    """Returns the order of the writers of a key: a child's number is higher than its parents'."""
    return writer.incarnation, writer.segment.segment_id
