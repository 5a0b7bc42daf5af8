"""Metrics of the archives that the log is kept for."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.snapshots.trim_watch import TrimWatch


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
