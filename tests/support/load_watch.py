"""Reads the load of segments as a node does, and remembers everything that was written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.loads import KafkaLoads, LoadChange, LoadTable
from anabranch.core.autoscale.load import SegmentLoad
from support.waiting import WAIT_S


class LoadWatch:
    """The table, and all changes in order."""

    def __init__(self, servers: str, prefix: str) -> None:
        self.table = LoadTable()
        self.changes: list[LoadChange] = []
        self.loads = KafkaLoads(KafkaConnection(servers), Topics(prefix))

    def poll(self) -> None:
        """Reads what is there."""
        changes = self.loads.poll(0.05)
        self.changes += changes
        self.table.take(changes)

    def of(self, topic: str, segment_id: int = 0) -> SegmentLoad | None:
        """The newest load of a segment, of whichever incarnation."""
        places = [p for p in self.table.places(topic) if p.segment_id == segment_id]
        if not places:
            return None
        return self.table.segments(topic, places[-1].incarnation)[segment_id]

    def written(self, topic: str, segment_id: int = 0) -> list[SegmentLoad | None]:
        """All that was written of a segment."""
        return [
            load
            for place, load in self.changes
            if (place.topic, place.segment_id) == (topic, segment_id)
        ]

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Reads until it is so; fails the test when it is not in time."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what}"
            await asyncio.to_thread(self.poll)

    async def for_s(self, seconds: float) -> None:
        """Reads for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await asyncio.to_thread(self.poll)

    async def until_quiet(self, topic: str, seconds: float) -> None:
        """Reads until nothing of the first segment has been written for so long."""
        loop = asyncio.get_running_loop()
        count, since = -1, 0.0

        def is_quiet() -> bool:
            nonlocal count, since
            if count != len(self.written(topic)):
                count, since = len(self.written(topic)), loop.time()
            return loop.time() - since >= seconds

        await self.until(is_quiet, f"nothing is written for {seconds:g} s")


@contextmanager
def load_watch(servers: str, prefix: str) -> Iterator[LoadWatch]:
    """To be closed at the end."""
    watch = LoadWatch(servers, prefix)
    try:
        yield watch
    finally:
        watch.loads.close()
