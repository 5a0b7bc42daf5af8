"""Brokers' loads and their top bundles as they are stored; the schemas are `broker-load` and
`top-bundles`.
"""

from __future__ import annotations

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.usage import ResourceUsage


class BrokerLoadRecord(msgspec.Struct, frozen=True, gc=False):
    """`BrokerLoadData` as it is stored."""

    cpu_usage: float
    cpu_limit: float
    memory_usage: float
    memory_limit: float
    direct_memory_usage: float
    direct_memory_limit: float
    bandwidth_in_usage: float
    bandwidth_in_limit: float
    bandwidth_out_usage: float
    bandwidth_out_limit: float
    msg_throughput_in: float
    msg_throughput_out: float
    msg_rate_in: float
    msg_rate_out: float
    bundle_count: int
    topics: int
    max_resource_usage: float
    weighted_max_ema: float
    msg_throughput_ema: float
    updated_at_ms: int
    reported_at_ms: int

    @property
    def load(self) -> BrokerLoadData:
        """The load that it says."""
        return BrokerLoadData(
            ResourceUsage(self.cpu_usage, self.cpu_limit),
            ResourceUsage(self.memory_usage, self.memory_limit),
            ResourceUsage(self.direct_memory_usage, self.direct_memory_limit),
            ResourceUsage(self.bandwidth_in_usage, self.bandwidth_in_limit),
            ResourceUsage(self.bandwidth_out_usage, self.bandwidth_out_limit),
            self.msg_throughput_in,
            self.msg_throughput_out,
            self.msg_rate_in,
            self.msg_rate_out,
            self.bundle_count,
            self.topics,
            self.max_resource_usage,
            self.weighted_max_ema,
            self.msg_throughput_ema,
            self.updated_at_ms,
            self.reported_at_ms,
        )


class ReportedBundle(msgspec.Struct, frozen=True, gc=False):
    """One bundle of a report, and its load."""

    bundle: str
    msg_rate_in: float
    msg_rate_out: float
    msg_throughput_in: float
    msg_throughput_out: float
    topics: int
    producers: int
    consumers: int
    lookups: float
    sessions: int
    watches: int
    cache_size: int


class TopBundlesRecord(msgspec.Struct, frozen=True):
    """`TopBundlesLoadData` as it is stored."""

    bundles: tuple[ReportedBundle, ...]
    updated_at_ms: int

    @property
    def load(self) -> TopBundlesLoadData:
        """The loads that it says."""
        named = ((each.bundle, msgspec.structs.astuple(each)[1:]) for each in self.bundles)
        return TopBundlesLoadData(
            tuple((name, BundleLoad(*load)) for name, load in named), self.updated_at_ms
        )


def broker_load_record(load: BrokerLoadData) -> BrokerLoadRecord:
    """A broker's load as it is stored."""
    return BrokerLoadRecord(
        *(load.cpu.usage, load.cpu.limit),
        *(load.memory.usage, load.memory.limit),
        *(load.direct_memory.usage, load.direct_memory.limit),
        *(load.bandwidth_in.usage, load.bandwidth_in.limit),
        *(load.bandwidth_out.usage, load.bandwidth_out.limit),
        load.msg_throughput_in,
        load.msg_throughput_out,
        load.msg_rate_in,
        load.msg_rate_out,
        load.bundle_count,
        load.topics,
        load.max_resource_usage,
        load.weighted_max_ema,
        load.msg_throughput_ema,
        load.updated_at_ms,
        load.reported_at_ms,
    )


def top_bundles_record(report: TopBundlesLoadData) -> TopBundlesRecord:
    """A broker's top bundles as they are stored."""
    bundles = (
        ReportedBundle(name, *msgspec.structs.astuple(load)) for name, load in report.bundles
    )
    return TopBundlesRecord(tuple(bundles), report.updated_at_ms)
