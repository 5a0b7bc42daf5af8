"""`BrokerReports`: a broker's reports of its load, measurement by measurement, and their times.

A broker tells its load if the load has changed much, was not told for long, or is waited for. It
tells its top bundles if they are others than the told ones, if one of them has changed as much, or
if they were not told for long. It tells both again after the leader has taken them away. The leader
does that with the reports of brokers without a session. A bundle that came, went or was split makes
the measurements wrong, so the average begins anew after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from anabranch.core.balance.broker_load import (
    FRESH,
    BrokerLoadData,
    LoadSample,
    Resources,
    ResourceUsage,
    clear_due,
    has_cooled,
    is_sound,
    report_due,
    updated,
)
from anabranch.core.balance.bundle_load import (
    BundleLoad,
    TopBundlesLoadData,
    rank,
    top_bundles,
    top_change_percent,
)
from anabranch.core.balance.policies import Policies
from anabranch.core.balance.settings import BalanceSettings

_CLOCKS_APART_MS: Final = 60_000  # the most that a report may seem to be ahead of its reader


class BrokerReports:
    """One broker's reports. `load`: the last measured one; `reported`: the last told one. Its owner
    sets `settings` anew when they change.
    """

    def __init__(self, settings: BalanceSettings) -> None:
        self.load = FRESH
        self.reported = FRESH
        self.settings = settings
        self._told_top = TopBundlesLoadData()
        self._is_outdated = False
        self._offered: set[str] = set()  # new bundles of splits, which the leader is offered
        self._unmeasured: set[str] = set()  # those of them that came since the last measurement
        self._cleared_at_ms = 0

    def changed_hands(self, parts: Iterable[str] = ()) -> None:
        """A bundle came, went or was split; `parts`: those of a split, told of however low."""
        self._is_outdated = True
        if self.settings.auto_unload_split_bundles_enabled:
            self._unmeasured.update(parts)

    def taken_away(self) -> None:
        """The leader has removed the reports: no node knows them any more."""
        self.reported = FRESH
        self._told_top = TopBundlesLoadData()

    def measured(
        self,
        resources: Resources,
        bundles: Mapping[str, BundleLoad],
        now_ms: int,
        gave_at_ms: int | None = None,
    ) -> BrokerLoadData | None:
        """Takes a measurement in; returns the load if the broker must tell it.

        `gave_at_ms`: the time at which the balancer last took a bundle from this broker. No cycle
        decides anything before a load is told that has followed that. So the broker tells one, even
        at rest.
        """
        if self._is_outdated and clear_due(self._cleared_at_ms, now_ms):
            self._is_outdated = False
            self._cleared_at_ms = now_ms
            self.load = self.reported = FRESH
        self.load = updated(self.load, sample_of(resources, bundles), self.settings, now_ms)
        awaited = (
            gave_at_ms is not None
            and has_cooled(self.load, gave_at_ms, self.settings)
            and not has_cooled(self.reported, gave_at_ms, self.settings)
        )
        if not report_due(self.load, self.reported, self.settings, now_ms, force=awaited):
            return None
        self.reported = self.load = msgspec.structs.replace(self.load, reported_at_ms=now_ms)
        return self.reported

    def top(
        self, bundles: Mapping[str, BundleLoad], policies: Policies, now_ms: int
    ) -> TopBundlesLoadData | None:
        """The top bundles, if they are to be told."""
        found = self._with_offered(top_bundles(bundles, self.settings, policies, now_ms), bundles)
        oldest_ms = now_ms - self.settings.report_update_max_interval_minutes * 60_000
        is_old = self._told_top.updated_at_ms < oldest_ms
        percent = top_change_percent(self._told_top, found)
        is_same = percent <= self.settings.report_update_threshold_percentage
        if is_same and not (found.bundles and is_old):
            return None
        self._told_top = found
        return found

    def _with_offered(
        self, report: TopBundlesLoadData, bundles: Mapping[str, BundleLoad]
    ) -> TopBundlesLoadData:
        """New bundles come from one that had too much, so they are told of, however low."""
        # One that came while this was measured is not in it.
        self._offered = self._offered & bundles.keys() | self._unmeasured
        self._unmeasured = set()
        known = dict(report.bundles)
        more = {
            name: bundles[name]
            for name in self._offered - known.keys()
            if name in bundles and bundles[name].msg_throughput > 0
        }
        if not more:
            return report
        told = sorted((*report.bundles, *more.items()), key=lambda each: rank(each[1]))
        return msgspec.structs.replace(report, bundles=tuple(told))


def sample_of(resources: Resources, bundles: Mapping[str, BundleLoad]) -> LoadSample:
    """A measurement: use of resources, and the sums over all bundles."""
    loads = bundles.values()
    return LoadSample(
        **msgspec.structs.asdict(resources),
        msg_throughput_in=sum(each.msg_throughput_in for each in loads),
        msg_throughput_out=sum(each.msg_throughput_out for each in loads),
        msg_rate_in=sum(each.msg_rate_in for each in loads),
        msg_rate_out=sum(each.msg_rate_out for each in loads),
        bundle_count=len(bundles),
        topics=sum(each.topics for each in loads),
    )


def is_stale(load: BrokerLoadData, settings: BalanceSettings, now_ms: int) -> bool:
    """Tells whether it is older than its time to live."""
    return now_ms - load.updated_at_ms > settings.broker_load_data_ttl_in_seconds * 1000


def fault_of(load: BrokerLoadData, now_ms: int) -> str:
    """The reason why readers must ignore a load; "" if there is none."""
    if load.updated_at_ms - now_ms > _CLOCKS_APART_MS:
        return f"it is from {load.updated_at_ms - now_ms} ms ahead: set the broker's clock"
    values = msgspec.structs.astuple(load)
    if all(map(_is_sound, values)):
        return ""
    wrong = next(
        name
        for name, value in zip(load.__struct_fields__, values, strict=True)
        if not _is_sound(value)
    )
    return f"its {wrong} is negative or no number"


def _is_sound(value: ResourceUsage | float) -> bool:
    return value.is_sound if isinstance(value, ResourceUsage) else is_sound(value)
