"""A node's metrics of balancing, under the names that the reference gives its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.balance.board import Ignored, LoadBoard
from anabranch.broker.balance.counts import EVENTS, STATES, BalanceCounts
from anabranch.broker.balance.reporter import BalanceReporter
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.runtime import Runtime
from anabranch.core.balance.counters import ASSIGNMENTS, SPLITS, UNLOADS, BalanceResult
from anabranch.core.balance.usage import ResourceUsage

_RESULTS: Final = ("Total", "Failure")
_LABELS: Final = ("broker", "metric")


class LoadMetrics(Collector):
    """The load of one broker, and its knowledge of the others'."""

    def __init__(self, broker: str, reporter: BalanceReporter, board: LoadBoard) -> None:
        self._labels = (broker.rpartition(":")[0], "loadBalancing")
        self._reporter = reporter
        self._board = board

    def collect(self) -> Iterable[Metric]:
        load = self._reporter.load
        resources: Mapping[str, tuple[str, ResourceUsage]] = {
            "brk_lb_cpu_usage": ("processor", load.cpu),
            "brk_lb_memory_usage": ("memory", load.memory),
            "brk_lb_directMemory_usage": ("memory of the process itself", load.direct_memory),
            "brk_lb_bandwidth_in_usage": ("network, received", load.bandwidth_in),
            "brk_lb_bandwidth_out_usage": ("network, sent", load.bandwidth_out),
        }
        for name, (what, usage) in resources.items():
            text = f"Use of this broker's {what}, in percent."
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            gauge.add_metric(self._labels, usage.percent)
            yield gauge
        use = GaugeMetricFamily(
            "brk_lb_resource_usage",
            "Load of this broker, 1 being all: max, of any resource; max_ema, decides.",
            labels=(*_LABELS, "feature"),
        )
        use.add_metric((*self._labels, "max"), load.max_resource_usage)
        use.add_metric((*self._labels, "max_ema"), load.weighted_max_ema)
        yield use
        yield GaugeMetricFamily(
            "anabranch_broker_loads", "Loads of brokers that this node knows.", len(self._board)
        )
        yield CounterMetricFamily(
            "anabranch_broker_load_reports",
            "Loads that this node has reported of itself.",
            self._reporter.reports,
        )
        ignored = CounterMetricFamily(
            "anabranch_broker_loads_ignored",
            "Loads of brokers that were read and ignored, by reason.",
            labels=("reason",),
        )
        for reason in Ignored:
            ignored.add_metric((reason.value,), self._board.ignored[reason])
        yield ignored


class DecisionMetrics(Collector):
    """The results of unloads, splits and assignments."""

    def __init__(self, counts: BalanceCounts, runtime: Runtime, lookups: LookupService) -> None:
        self._counts = counts
        self._runtime = runtime
        self._lookups = lookups
        self._host = runtime.core.me.rpartition(":")[0]

    def collect(self) -> Iterable[Metric]:
        yield from self._unloads()
        yield from self._splits()
        assigns = self._counter(
            "brk_lb_assign_broker_breakdown",
            "Free bundles assigned by this node, look-ups that found an owner, and failed ones.",
            "result",
        )
        done = (
            self._counts.assigned,
            self._runtime.metrics.fast_lookups,
            self._lookups.failed,
        )
        for result, count in zip(ASSIGNMENTS, done, strict=True):
            assigns.add_metric((self._host, "assign", result.value), count)
        yield assigns

    def _unloads(self) -> Iterable[Metric]:
        counts, group = self._counts, "bundleUnloading"
        yield self._total(
            "brk_lb_unload_broker",
            "Brokers with unloaded bundles, once a round, and unloads by request.",
            group,
            counts.brokers_unloaded,
        )
        success = sum(n for (result, _), n in counts.unloads.items() if result is _SUCCESS)
        yield self._total("brk_lb_unload_bundle", "Bundles that were unloaded.", group, success)
        breakdown = self._counter(
            "brk_lb_unload_broker_breakdown",
            "Unloaded bundles, rounds without effect and failed unloads, by reason.",
            *("result", "reason"),
        )
        for result, reasons in UNLOADS.items():
            for reason in reasons:
                labels = (self._host, group, result.value, reason.value)
                breakdown.add_metric(labels, counts.unloads[result, reason])
        yield breakdown
        stats = GaugeMetricFamily(
            "brk_lb_resource_usage_stats",
            "Average and deviation of the brokers' loads in the leader's last round.",
            labels=(*_LABELS, "feature", "stat"),
        )
        if counts.deviation is not None and min(counts.deviation) > 0:
            for stat, value in zip(("avg", "std"), counts.deviation, strict=True):
                stats.add_metric((self._host, group, "max_ema", stat), value)
        yield stats

    def _splits(self) -> Iterable[Metric]:
        counts, group = self._counts, "bundlesSplit"
        success = sum(n for (result, _), n in counts.splits.items() if result is _SUCCESS)
        yield self._total("brk_lb_bundles_split", "Bundles that were split.", group, success)
        breakdown = self._counter(
            "brk_lb_bundles_split_breakdown",
            "Split bundles and failed splits, by reason.",
            *("result", "reason"),
        )
        for result, reasons in SPLITS.items():
            for reason in reasons:
                labels = (self._host, group, result.value, reason.value)
                breakdown.add_metric(labels, counts.splits[result, reason])
        yield breakdown

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=(*_LABELS, *labels))

    def _total(self, name: str, text: str, group: str, value: int) -> Metric:
        counter = CounterMetricFamily(name, text, labels=_LABELS)
        counter.add_metric((self._host, group), value)
        return counter


_SUCCESS: Final = BalanceResult.SUCCESS


class ChannelMetrics(Collector):
    """The reference's view of the log of service units."""

    def __init__(self, counts: BalanceCounts, runtime: Runtime, lookups: LookupService) -> None:
        self._counts = counts
        self._runtime = runtime
        self._lookups = lookups
        self._labels = (runtime.core.me.rpartition(":")[0], "sunitStateChn")

    def collect(self) -> Iterable[Metric]:
        counts = self._counts
        found = dict(self._lookups.states)
        found["Owned", "Total"] = found.get(("Owned", "Total"), 0)
        found["Owned", "Total"] += self._runtime.metrics.fast_lookups
        yield self._pairs(
            "brk_sunit_state_chn_owner_lookup",
            "Look-ups of an owner, by the bundle's state.",
            *("state", STATES.values(), found),
        )
        yield self._pairs(
            "brk_sunit_state_chn_event_publish_ops",
            "This node's proposals on bundles, and its rejected ones.",
            *("event", EVENTS, counts.published),
        )
        yield self._pairs(
            "brk_sunit_state_chn_subscribe_ops",
            "Moves of bundles that were read, by resulting state, and rejected ones.",
            *("event", STATES.values(), counts.read),
        )
        clean_up = self._counter(
            "brk_sunit_state_chn_cleanup_ops", "Repairs of this node that were rejected.", "result"
        )
        clean_up.add_metric((*self._labels, "Failure"), counts.failed_clean_ups)
        yield clean_up
        inactive = self._counter(
            "brk_sunit_state_chn_inactive_broker_cleanup_ops",
            "Sessions of silent brokers that this node proposed to end, by result.",
            "result",
        )
        for result in ("Skip", "Cancel", "Schedule", "Success"):
            inactive.add_metric((*self._labels, result), counts.expiries[result])
        yield inactive
        for name, text, value in (
            (
                "orphan_su_cleanup_ops",
                "Bundles that this node took from a dead one.",
                counts.orphans,
            ),
            (
                "su_tombstone_cleanup_ops",
                "Deleted bundles that this node took off the log's state.",
                counts.tombstones,
            ),
        ):
            total = self._counter(f"brk_sunit_state_chn_{name}", text)
            total.add_metric(self._labels, value)
            yield total
        yield from self._gauges()

    def _gauges(self) -> Iterable[Metric]:
        is_open, at_ms = self._counts.session_event
        age_s = max(0, self._runtime.log_ms - at_ms) / 1000 if at_ms else 0.0
        for name, text, value in (
            (
                "owned_su_total",
                "Bundles that this node owns.",
                len(self._runtime.core.serving),
            ),
            ("metadata_state", "1 while this node has the log.", int(self._runtime.has_lease)),
            (
                "last_metadata_session_event_is_reestablished",
                "1 if its session began last, 0 if it ended.",
                int(is_open),
            ),
            (
                "last_metadata_session_event_timestamp_ms",
                "Time of that event, on the log's clock.",
                at_ms,
            ),
            ("last_metadata_session_event_age_seconds", "Age of that event.", age_s),
        ):
            gauge = GaugeMetricFamily(f"brk_sunit_state_chn_{name}", text, labels=_LABELS)
            gauge.add_metric(self._labels, value)
            yield gauge

    def _pairs(
        self,
        name: str,
        text: str,
        label: str,
        values: Iterable[str],
        found: Mapping[tuple[str, str], int],
    ) -> Metric:
        counter = self._counter(name, text, label, "result")
        for value in values:
            for result in _RESULTS:
                counter.add_metric((*self._labels, value, result), found.get((value, result), 0))
        return counter

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=(*_LABELS, *labels))
