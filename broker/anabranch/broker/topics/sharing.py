"""Metrics of entry buckets: who shares which segment, and what waits to change hands (seed 002)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.core.controller import TopicController
from anabranch.core.state import StateReader

_PREFIX = "pulsar_scalable_topic_"
_OF_SEGMENT = ("topic", "segment")
_OF_SHARE = ("topic", "subscription", "segment")


class Sharing(Collector):
    """Of the topics that this node has a controller for. Collected in the node's event loop."""

    def __init__(
        self,
        controllers: Callable[[], Iterable[TopicController]],
        view: Callable[[], StateReader],
    ) -> None:
        self._controllers = controllers
        self._view = view

    def collect(self) -> Iterable[Metric]:
        buckets = GaugeMetricFamily(
            f"{_PREFIX}segment_entry_buckets", "Entry buckets of the segment.", None, _OF_SEGMENT
        )
        sharing = GaugeMetricFamily(
            f"{_PREFIX}segment_consumers", "Consumers that share the segment.", None, _OF_SHARE
        )
        withheld = GaugeMetricFamily(
            f"{_PREFIX}buckets_withheld",
            "Buckets that wait until their former consumer has settled what it has of them.",
            None,
            _OF_SHARE,
        )
        draining = GaugeMetricFamily(
            f"{_PREFIX}drain_mode_active",
            "1 while several consumers drain the backlog of a sealed segment.",
            None,
            _OF_SHARE,
        )
        moved = CounterMetricFamily(
            f"{_PREFIX}bucket_reassignments",
            "Buckets given to another consumer than before, since this controller took over.",
            None,
            _OF_SHARE,
        )
        view = self._view()
        for controller in self._controllers():
            name = controller.name
            topic = view.topic(name)
            for part in topic.segments if topic is not None else ():
                buckets.add_metric([name, str(part.segment_id)], part.buckets)
            for subscription, coordinator in controller.coordinators.items():
                waiting = coordinator.withheld()
                owners: dict[int, int] = {}
                for shares in coordinator.wanted().values():
                    for segment_id in shares:
                        owners[segment_id] = owners.get(segment_id, 0) + 1
                for segment_id, count in owners.items():
                    labels = [name, subscription, str(segment_id)]
                    sharing.add_metric(labels, count)
                    withheld.add_metric(labels, waiting[segment_id])
                    draining.add_metric(labels, segment_id in coordinator.draining)
                for segment_id, count in coordinator.moved.items():
                    moved.add_metric([name, subscription, str(segment_id)], count)
        return (buckets, sharing, withheld, draining, moved)
