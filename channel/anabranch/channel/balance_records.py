"""Brokers' loads and their top bundles as they are stored; the schemas are `broker-load` and
`top-bundles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from anabranch.core.balance.broker_load import BrokerLoadData, Resources, ResourceUsage
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData

_USAGES: Final = 2 * len(msgspec.structs.fields(Resources))  # the fields that come first


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
        values: tuple[Any, ...] = msgspec.structs.astuple(self)
        usages: Iterator[Any] = (ResourceUsage(*values[at : at + 2]) for at in range(0, _USAGES, 2))
        return BrokerLoadData(*usages, *values[_USAGES:])


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
    values = msgspec.structs.astuple(load)
    usages = values[: _USAGES // 2]
    flat = (number for usage in usages for number in msgspec.structs.astuple(usage))
    return BrokerLoadRecord(*flat, *values[_USAGES // 2 :])


def top_bundles_record(report: TopBundlesLoadData) -> TopBundlesRecord:
    """A broker's top bundles as they are stored."""
    bundles = (
        ReportedBundle(name, *msgspec.structs.astuple(load)) for name, load in report.bundles
    )
    return TopBundlesRecord(tuple(bundles), report.updated_at_ms)
