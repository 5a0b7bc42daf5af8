"""Numbers of a run: what it has done so far, and does now. There is never a key among them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

from anabranch.client._consumer.holding import Holding
from anabranch.client._stream.lanes import Queued

HANDLER_BOUNDS_S: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)


class BucketWork(msgspec.Struct, frozen=True):
    """One bucket of a run. `gap_offsets` are those between its position and what was begun last,
    `gap_runs` the runs in them that are done. `oldest_s`: since when its oldest failed message
    waits, 0 for none. `drain_keys` wait in a sealed bucket of which nothing else is left, so that
    all of the children wait for them.
    """

    topic: str
    segment_id: int
    bucket: int
    running: int
    queued: int
    queued_bytes: int
    gap_offsets: int
    gap_runs: int
    oldest_s: float
    drain_keys: int


def bucket_work(
    topic: str, holding: Holding, queued: Queued | None, oldest_s: float, drain_keys: int
) -> BucketWork:
    """Returns what is known of one bucket."""
    gaps = holding.gaps
    return BucketWork(
        topic,
        *holding.place,
        running=0 if gaps is None else len(gaps.running),
        queued=0 if queued is None else queued.messages,
        queued_bytes=0 if queued is None else queued.bytes,
        gap_offsets=0 if gaps is None else gaps.span_end - gaps.watermark,
        gap_runs=0 if gaps is None else len(list(gaps.runs)),
        oldest_s=oldest_s,
        drain_keys=drain_keys,
    )


class WorkStats(msgspec.Struct, frozen=True):
    """A run of a consumer. The first ten say what is now, the others count since it began.

    `keys` have a message here, and `waiting` of these wait for an attempt. `width` handlers may run
    now. `known` messages were done already, by the map of a position. `handler_counts`: of
    attempts, by the seconds they took: up to each of `HANDLER_BOUNDS_S`, and more.
    """

    running: int
    queued: int
    queued_bytes: int
    keys: int
    waiting: int
    deepest_key: int  # messages of the key that has most
    width: int
    letters_waiting: int
    is_draining: bool
    buckets: list[BucketWork]
    attempts: int
    done: int
    failed: int
    put_aside: int
    again: int
    timed_out: int
    cancelled: int
    left_behind: int
    known: int
    maps_refused: int
    handler_s: float
    handler_counts: list[int]


class Counts:
    """Counts of a run, which only grow."""

    __slots__ = (
        "again",
        "attempts",
        "cancelled",
        "done",
        "failed",
        "handler_counts",
        "handler_s",
        "known",
        "left_behind",
        "maps_refused",
        "put_aside",
        "timed_out",
    )

    def __init__(self) -> None:
        self.attempts = self.done = self.failed = self.put_aside = self.again = 0
        self.timed_out = self.cancelled = self.left_behind = self.known = 0
        self.maps_refused = 0
        self.handler_s = 0.0
        self.handler_counts = [0] * (len(HANDLER_BOUNDS_S) + 1)

    def took(self, seconds: float) -> None:
        """Notes the time of an attempt."""
        self.attempts += 1
        self.handler_s += seconds
        self.handler_counts[bisect_left(HANDLER_BOUNDS_S, seconds)] += 1
