"""The settings of topic lists' memory, by the seed's names; for nodes and proxies.

`core.topic_lists.semaphore` tells the effect of a change on those that wait and hold.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.settings.fields import AtRunTime, SettingFields, field
from anabranch.core.topic_lists.semaphore import SemaphoreLimits
from anabranch.wire.memory.limiter import DualMemoryLimits

_MB: Final = 1 << 20
_MB_MAX: Final = 1 << 24  # more is a number of bytes by mistake
_TIMEOUT_MAX: Final = 3_600_000
_QUEUE_MAX: Final = 1_000_000
_NS_PER_MS: Final = 1_000_000


class TopicListFields(SettingFields):
    """Named as in Pulsar's broker.conf and proxy.conf."""

    max_topic_list_in_flight_heap_mem_size_mb: AtRunTime[int] = field(
        100,
        ge=0,
        le=_MB_MAX,
        name="maxTopicListInFlightHeapMemSizeMB",
        description="Most memory of topic lists that are assembled, in MB of 1048576 bytes; "
        "0: any.",
    )
    max_topic_list_in_flight_direct_mem_size_mb: AtRunTime[int] = field(
        100,
        ge=0,
        le=_MB_MAX,
        name="maxTopicListInFlightDirectMemSizeMB",
        description="Most memory of topic lists that wait on connections, in MB of 1048576 bytes; "
        "0: any.",
    )
    max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis: AtRunTime[int] = field(
        25_000,
        ge=1,
        le=_TIMEOUT_MAX,
        description="Time that a request waits for memory to assemble its list.",
    )
    max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size: AtRunTime[int] = field(
        1_000,
        ge=0,
        le=_QUEUE_MAX,
        description="Requests that may wait for memory to assemble a list; 0: any number.",
    )
    max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis: AtRunTime[int] = field(
        25_000,
        ge=1,
        le=_TIMEOUT_MAX,
        description="Time that an assembled list waits for memory to be sent.",
    )
    max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size: AtRunTime[int] = field(
        1_000,
        ge=0,
        le=_QUEUE_MAX,
        description="Assembled lists that may wait for memory to be sent; 0: any number.",
    )

    @property
    def topic_list_limits(self) -> DualMemoryLimits:
        """The limits of the limiter."""
        return DualMemoryLimits(
            heap=_limits(
                self.max_topic_list_in_flight_heap_mem_size_mb,
                self.max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size,
                self.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis,
            ),
            direct=_limits(
                self.max_topic_list_in_flight_direct_mem_size_mb,
                self.max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size,
                self.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis,
            ),
        )


def _limits(megabytes: int, queue_max: int, timeout_ms: int) -> SemaphoreLimits:
    return SemaphoreLimits(megabytes * _MB, queue_max, timeout_ms * _NS_PER_MS)
