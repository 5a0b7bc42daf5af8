"""`Written`: how much a producer's writers have stored, counted once for each poll."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.client.flows import Held
from anabranch.client.segment_writer import Lane, SegmentWriter, Tally
from anabranch.client.traffic import TopicTraffic


class Written:
    """Of one producer; `tally`: what it has under way."""

    def __init__(self, tally: Tally, traffic: TopicTraffic) -> None:
        self._tally = tally
        self._traffic = traffic
        self._given_up = Tally()

    def poll(self, writer: SegmentWriter) -> None:
        """Takes the reports that are there; nothing is sent meanwhile.

        So what is not under way any more is stored, or given up.
        """
        tally, given_up = self._tally, self._given_up
        before = tally.count
        count, size = before + given_up.count, tally.bytes + given_up.bytes
        writer.poll(0)
        if tally.count != before:
            self._traffic.wrote(
                next(iter(writer.lanes)).segment.segment_id,  # the same of all its lanes
                count - tally.count - given_up.count,
                size - tally.bytes - given_up.bytes,
            )

    def gave_up(self, size_bytes: int) -> None:
        """A message is not under way any more, and not stored."""
        self._given_up.count += 1
        self._given_up.bytes += size_bytes

    def found(self, lane: Lane, there: Iterable[Held]) -> None:
        """These had been in doubt, and are stored."""
        sizes = [len(held.value or b"") for held in there]
        self._traffic.wrote(lane.segment.segment_id, len(sizes), sum(sizes))
