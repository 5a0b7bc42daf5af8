"""Metrics of the memory of topic lists in a node or a proxy (PIP-442, "Metrics")."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, unique
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.core.topic_lists.semaphore import LARGEST
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, DualMemoryLimits, LimitType
from anabranch.wire.memory.semaphore import AsyncSemaphore

_NS_PER_MS: Final = 1_000_000
# Up to the default of the time-outs by smaller steps.
_WAITS_MS: Final = (
    *(1.0, 5.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0),
    *(10_000.0, 15_000.0, 20_000.0, 25_000.0, 30_000.0, 60_000.0),
)
_LABELS: Final = ("cluster",)


@unique
class TopicListPrefix(Enum):
    """The beginning of the metrics' names, in a node and in a proxy."""

    BROKER = "pulsar_broker_topic_list_"
    PROXY = "pulsar_proxy_topic_list_"


class TopicListMetrics(Collector):
    """Twelve metrics of one limiter, which is made with `waited` as its latency."""

    def __init__(self, prefix: TopicListPrefix, cluster: str, registry: CollectorRegistry) -> None:
        self._prefix = prefix.value
        self._cluster = cluster
        self._limiter: AsyncDualMemoryLimiter | None = None
        self._timeouts = dict.fromkeys(LimitType, 0)
        self._waits = {
            each: Histogram(
                f"{self._prefix}{_name(each)}_wait_time_ms",
                "Milliseconds until a topic list had memory, or the time was over.",
                _LABELS,
                buckets=_WAITS_MS,
                registry=registry,
            ).labels(cluster)
            for each in LimitType
        }

    def waited(self, limit_type: LimitType, latency_ns: int) -> None:
        """A request has queued; before that of a time-out comes the largest number."""
        if latency_ns == LARGEST:
            self._timeouts[limit_type] += 1
        else:
            self._waits[limit_type].observe(latency_ns / _NS_PER_MS)

    def show(self, limiter: AsyncDualMemoryLimiter, registry: CollectorRegistry) -> None:
        """Registers metrics of the limiter, asked whenever the metrics are read."""
        self._limiter = limiter
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        for limit_type in LimitType:
            if self._limiter is not None:
                yield from self._of(limit_type, self._limiter.side(limit_type))

    def _of(self, limit_type: LimitType, side: AsyncSemaphore) -> Iterable[Metric]:
        name, limits = _name(limit_type), side.limits
        gauges = (
            ("memory_used_bytes", "Memory of topic lists.", side.acquired),
            (
                "memory_limit_bytes",
                "Most memory of topic lists; 0: any.",
                max(0, limits.permits_max),
            ),
            ("queue_size", "Requests that wait for memory of topic lists.", side.queue_size),
            (
                "queue_max_size",
                "Most requests that may wait for memory of topic lists; 0: any number.",
                max(0, limits.queue_max),
            ),
        )
        for what, text, value in gauges:
            gauge = GaugeMetricFamily(f"{self._prefix}{name}_{what}", text, None, _LABELS)
            gauge.add_metric([self._cluster], value)
            yield gauge
        timeouts = CounterMetricFamily(
            f"{self._prefix}{name}_timeout",
            "Requests that waited for memory of topic lists for too long.",
            None,
            _LABELS,
        )
        timeouts.add_metric([self._cluster], self._timeouts[limit_type])
        yield timeouts


def _name(limit_type: LimitType) -> str:
    return limit_type.value.lower()


def measured_limiter(
    limits: DualMemoryLimits, prefix: TopicListPrefix, cluster: str, registry: CollectorRegistry
) -> AsyncDualMemoryLimiter:
    """A limiter whose metrics are in the registry; to be made in its event loop."""
    metrics = TopicListMetrics(prefix, cluster, registry)
    limiter = AsyncDualMemoryLimiter(limits, metrics.waited)
    metrics.show(limiter, registry)
    return limiter
