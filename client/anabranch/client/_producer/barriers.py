"""`Barrier`: what was sent before a moment and is not settled, for `flush`. Pure, no I/O.

What is stored is reported in the order of the appends. So of what is under way a count for each
writer tells, and the hot path has nothing to note. What is held or refused is known one by one; it
is followed to the writer that it is appended to. What is refused, or given up, is reported in any
order, but then the writer is closed, or paused: nothing new comes after it, and all that it has
under way is waited for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from anabranch.client._producer.partition_writer import PartitionWriter, PendingMessage


class Barrier:
    """Made at that moment, of all writers that have not been left."""

    def __init__(self, writers: Iterable[PartitionWriter]) -> None:
        writers = list(writers)
        self._before = {writer: writer.appended for writer in writers if writer.outstanding}
        self._held = {held for writer in writers for held in (*writer.refused, *writer.held)}
        # Of what was held then, the numbers of its appends, ascending.
        self._followed: defaultdict[PartitionWriter, deque[int]] = defaultdict(deque)
        self._closing: set[PartitionWriter] = set()  # writers of these that refuse

    @property
    def left(self) -> int:
        """How many are not settled."""
        return len(self._held) + sum(
            self._left(writer) for writer in {**self._before, **self._followed}
        )

    def appended(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """A message that was in our hands is the newest append of that writer."""
        if held in self._held:
            self._held.remove(held)
            if writer in self._closing:  # it was opened again, with nothing under way
                self._closing.remove(writer)
                self._before.pop(writer, None)
                self._followed[writer].clear()
            self._followed[writer].append(writer.appended)

    def refused(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """The newest report of that writer refused a message, which is in our hands again."""
        followed = self._followed[writer]
        newest = max(self._before.get(writer, 0), followed[-1] if followed else 0)
        if writer.settled <= newest:
            self._closing.add(writer)
        if writer in self._closing or (writer.paused and newest):
            self._held.add(held)

    def settled(self, held: PendingMessage) -> None:
        """What was in our hands needs no append any more."""
        self._held.discard(held)

    def _left(self, writer: PartitionWriter) -> int:
        if writer.paused or writer in self._closing:
            return writer.outstanding
        followed = self._followed[writer]
        while followed and followed[0] <= writer.settled:
            followed.popleft()
        return max(0, self._before.get(writer, 0) - writer.settled) + len(followed)


class Barriers:
    """Those that somebody waits at."""

    def __init__(self) -> None:
        self._open: list[Barrier] = []

    @contextmanager
    def opened(self, writers: Iterable[PartitionWriter]) -> Iterator[Barrier]:
        """A new one, as long as somebody waits."""
        barrier = Barrier(writers)
        self._open.append(barrier)
        try:
            yield barrier
        finally:
            self._open.remove(barrier)

    def appended(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """See `Barrier`."""
        for each in self._open:
            each.appended(held, writer)

    def refused(self, held: PendingMessage, writer: PartitionWriter) -> None:
        """See `Barrier`."""
        for each in self._open:
            each.refused(held, writer)

    def settled(self, held: PendingMessage) -> None:
        """See `Barrier`."""
        for each in self._open:
            each.settled(held)
