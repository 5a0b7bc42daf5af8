"""Metrics of the memory of topic lists in a node or a proxy (PIP-442, "Metrics")."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, unique
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
_GAUGES: Final[dict[str, tuple[str, Callable[[AsyncSemaphore], int]]]] = {
    "memory_used_bytes": ("Memory of topic lists.", lambda side: side.acquired),
    "memory_limit_bytes": (
        "Most memory of topic lists; 0: any.",
        lambda side: max(0, side.limits.permits_max),
    ),
    "queue_size": ("Requests that wait for memory of topic lists.", lambda side: side.queue_size),
    "queue_max_size": (
        "Most requests that may wait for memory of topic lists; 0: any number.",
        lambda side: max(0, side.limits.queue_max),
    ),
}


@unique
class TopicListPrefix(Enum):
    """The beginning of the metrics' names, in a node and in a proxy."""

    BROKER = "pulsar_broker_topic_list_"
    PROXY = "pulsar_proxy_topic_list_"


def measured_limiter(
    limits: DualMemoryLimits, prefix: TopicListPrefix, cluster: str, registry: CollectorRegistry
) -> AsyncDualMemoryLimiter:
    """A limiter whose twelve metrics are in the registry; to be made in its event loop."""
    names = {each: f"{prefix.value}{each.value.lower()}_" for each in LimitType}
    waits = {
        each: Histogram(
            f"{name}wait_time_ms",
            "Milliseconds until a topic list had memory, or the time was over.",
            _LABELS,
            buckets=_WAITS_MS,
            registry=registry,
        ).labels(cluster)
        for each, name in names.items()
    }
    timeouts = {
        each: Counter(
            f"{name}timeout",
            "Requests that waited for memory of topic lists for too long.",
            _LABELS,
            registry=registry,
        ).labels(cluster)
        for each, name in names.items()
    }

    def waited(limit_type: LimitType, latency_ns: int) -> None:
        """A request has queued; before that of a time-out comes the largest number."""
        if latency_ns == LARGEST:
            timeouts[limit_type].inc()
        else:
            waits[limit_type].observe(latency_ns / _NS_PER_MS)

    limiter = AsyncDualMemoryLimiter(limits, waited)
    for each, name in names.items():
        for what, (text, value) in _GAUGES.items():
            gauge = Gauge(f"{name}{what}", text, _LABELS, registry=registry).labels(cluster)
            gauge.set_function(partial(value, limiter.side(each)))
    return limiter
