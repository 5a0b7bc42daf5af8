"""Watches the archives that the log is kept for, finds those that no longer move, and shows all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.core.entities.archive import Archive

_AGAIN_S: Final = 3_600.0  # between two words on one archive


class ArchiveProgress(msgspec.Struct):
    """An archive as it was last looked at; times in seconds of the node's clock."""

    archive: str
    place: str
    next_offset: int  # the first that it does not hold
    behind: int  # records that the log holds for it
    waiting_since: float  # it has not moved since, though there was something for it
    told_at: float | None = None


class TrimWatch:
    """The leader's knowledge of the archives.

    `stalled_after_s`: the time without a move, with work to do, after which an archive is told.
    """

    def __init__(self, stalled_after_s: float) -> None:
        self._stalled_after_s = stalled_after_s
        self._archives: dict[str, ArchiveProgress] = {}
        self._now = 0.0

    def looked(
        self,
        now: float,
        log_end: int,
        archives: Mapping[str, Archive],
        marks: Mapping[str, int | None],
    ) -> list[ArchiveProgress]:
        """Takes the progress of each registered archive; returns those that people must be told of.

        `marks`: the first offset that each archive does not hold; None if it never said one.
        """
        before, self._archives, self._now = self._archives, {}, now
        for archive, mark in marks.items():
            registered = archives.get(archive)
            if registered is None:
                continue
            next_offset = registered.first_offset if mark is None else mark
            behind = max(0, log_end - next_offset)
            held = before.get(archive)
            if held is None or not behind or held.next_offset != next_offset or not held.behind:
                held = ArchiveProgress(archive, registered.place, next_offset, behind, now)
            held.behind = behind
            self._archives[archive] = held
        return [held for held in self._stalled() if self._is_due(held)]

    def forget(self) -> None:
        """Another node leads."""
        self._archives.clear()

    def archives(self) -> list[ArchiveProgress]:
        """All of them, as they were last looked at."""
        return list(self._archives.values())

    def _stalled(self) -> list[ArchiveProgress]:
        return [
            held
            for held in self._archives.values()
            if held.behind and self._now - held.waiting_since >= self._stalled_after_s
        ]

    def _is_due(self, held: ArchiveProgress) -> bool:
        if held.told_at is not None and self._now - held.told_at < _AGAIN_S:
            return False
        held.told_at = self._now
        return True

    def concerns(self) -> Iterator[str]:
        """Yields sentences that tell people of stalled archives."""
        for held in self._stalled():
            yield (
                f"archive {held.archive} in {held.place} has not moved for "
                f"{self._now - held.waiting_since:,.0f} s and keeps the log from offset "
                f"{held.next_offset} on, {held.behind:,} records: start it again or, if it is gone "
                f"for good, `anabranch archive --retire {held.archive}`"
            )


class ArchiveMetrics(Collector):
    """The progress of each archive, as the leader knows it; other nodes show no archive."""

    def __init__(self, watch: TrimWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterable[Metric]:
        places = GaugeMetricFamily(
            "anabranch_archive_next_offset",
            "The first log offset that an archive does not hold; shown by the leader.",
            None,
            ["archive"],
        )
        behind = GaugeMetricFamily(
            "anabranch_archive_behind_records",
            "Log records that are kept because an archive does not hold them; by the leader.",
            None,
            ["archive"],
        )
        for held in self._watch.archives():
            places.add_metric([held.archive], held.next_offset)
            behind.add_metric([held.archive], held.behind)
        yield places
        yield behind
