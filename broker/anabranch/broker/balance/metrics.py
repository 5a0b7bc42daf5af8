"""A node's metrics of balancing, under the names that the reference gives its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.balance.board import Ignored, LoadBoard
from anabranch.broker.balance.counts import EVENTS, STATES, BalanceCounts
from anabranch.broker.balance.reporter import BalanceReporter
from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.runtime import Runtime
from anabranch.core.balance.counters import ASSIGNMENTS, SPLITS, UNLOADS, BalanceResult

_LABELS: Final = ("broker", "metric")
_SUCCESS: Final = BalanceResult.SUCCESS
_RESULTS: Final = ("Total", "Failure")

Values = float | Mapping[Any, float]  # by the values of a metric's own labels


class _Group:
    """Metrics that share a value of the label `metric`."""

    def __init__(self, broker: str, name: str) -> None:
        self._own = (broker.rpartition(":")[0], name)

    def counter(self, name: str, text: str, values: Values, *labels: str) -> Metric:
        return self._filled(CounterMetricFamily(name, text, labels=(*_LABELS, *labels)), values)

    def gauge(self, name: str, text: str, values: Values, *labels: str) -> Metric:
        return self._filled(GaugeMetricFamily(name, text, labels=(*_LABELS, *labels)), values)

    def _filled(self, family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
        rows = values if isinstance(values, Mapping) else {(): values}
        for labels, value in rows.items():
            family.add_metric((*self._own, *labels), value)
        return family


class LoadMetrics(Collector):
    """The load of one broker, and its knowledge of the others'."""

    def __init__(self, broker: str, reporter: BalanceReporter, board: LoadBoard) -> None:
        self._group = _Group(broker, "loadBalancing")
        self._reporter = reporter
        self._board = board

    def collect(self) -> Iterable[Metric]:
        load = self._reporter.load
        for name, what, usage in (
            ("cpu", "processor", load.cpu),
            ("memory", "memory", load.memory),
            ("directMemory", "memory of the process itself", load.direct_memory),
            ("bandwidth_in", "network, received", load.bandwidth_in),
            ("bandwidth_out", "network, sent", load.bandwidth_out),
        ):
            text = f"Use of this broker's {what}, in percent."
            yield self._group.gauge(f"brk_lb_{name}_usage", text, usage.percent)
        yield self._group.gauge(
            "brk_lb_resource_usage",
            "Load of this broker, 1 being all: max, of any resource; max_ema, decides.",
            {("max",): load.max_resource_usage, ("max_ema",): load.weighted_max_ema},
            "feature",
        )
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


class BalanceMetrics(Collector):
    """The results of unloads, splits and assignments, and the log of service units."""

    def __init__(self, counts: BalanceCounts, runtime: Runtime, lookups: LookupService) -> None:
        self._counts = counts
        self._runtime = runtime
        self._lookups = lookups

    def collect(self) -> Iterable[Metric]:
        yield from self._unloads()
        yield from self._splits()
        done = self._counts.assigned, self._runtime.metrics.fast_lookups, self._lookups.failed
        yield _Group(self._runtime.core.me, "assign").counter(
            "brk_lb_assign_broker_breakdown",
            "Free bundles assigned by this node, look-ups that found an owner, and failed ones.",
            {(result.value,): count for result, count in zip(ASSIGNMENTS, done, strict=True)},
            "result",
        )
        yield from self._channel()

    def _unloads(self) -> Iterable[Metric]:
        counts, group = self._counts, _Group(self._runtime.core.me, "bundleUnloading")
        yield group.counter(
            "brk_lb_unload_broker",
            "Brokers with unloaded bundles, once a round, and unloads by request.",
            counts.brokers_unloaded,
        )
        yield group.counter(
            "brk_lb_unload_bundle",
            "Bundles that were unloaded.",
            sum(n for (result, _), n in counts.unloads.items() if result is _SUCCESS),
        )
        yield group.counter(
            "brk_lb_unload_broker_breakdown",
            "Unloaded bundles, rounds without effect and failed unloads, by reason.",
            {(*map(str, pair),): counts.unloads[pair] for pair in UNLOADS},
            *("result", "reason"),
        )
        average, deviation = counts.deviation or (0.0, 0.0)
        stats = {("max_ema", "avg"): average, ("max_ema", "std"): deviation}
        yield group.gauge(
            "brk_lb_resource_usage_stats",
            "Average and deviation of the brokers' loads in the leader's last round.",
            stats if min(average, deviation) > 0 else {},
            *("feature", "stat"),
        )

    def _splits(self) -> Iterable[Metric]:
        counts, group = self._counts, _Group(self._runtime.core.me, "bundlesSplit")
        yield group.counter(
            "brk_lb_bundles_split",
            "Bundles that were split.",
            sum(n for (result, _), n in counts.splits.items() if result is _SUCCESS),
        )
        yield group.counter(
            "brk_lb_bundles_split_breakdown",
            "Split bundles and failed splits, by reason.",
            {(*map(str, pair),): counts.splits[pair] for pair in SPLITS},
            *("result", "reason"),
        )

    def _channel(self) -> Iterable[Metric]:
        """The reference's view of the log of service units."""
        counts, group = self._counts, _Group(self._runtime.core.me, "sunitStateChn")
        name = "brk_sunit_state_chn_{}".format
        found = dict(self._lookups.states)
        found["Owned", "Total"] = (
            found.get(("Owned", "Total"), 0) + self._runtime.metrics.fast_lookups
        )
        for what, text, label, values, known in (
            (
                "owner_lookup",
                "Look-ups of an owner, by the bundle's state.",
                "state",
                STATES,
                found,
            ),
            (
                "event_publish_ops",
                "This node's proposals on bundles, and its rejected ones.",
                *("event", EVENTS, counts.published),
            ),
            (
                "subscribe_ops",
                "Moves of bundles that were read, by resulting state, and rejected ones.",
                *("event", STATES, counts.read),
            ),
        ):
            rows = {(v, result): known.get((v, result), 0) for v in values for result in _RESULTS}
            yield group.counter(name(what), text, rows, label, "result")
        yield group.counter(
            name("cleanup_ops"),
            "Repairs of this node that were rejected.",
            {("Failure",): counts.failed_clean_ups},
            "result",
        )
        yield group.counter(
            name("inactive_broker_cleanup_ops"),
            "Sessions of silent brokers that this node proposed to end, by result.",
            {(each,): counts.expiries[each] for each in ("Skip", "Cancel", "Schedule", "Success")},
            "result",
        )
        yield group.counter(
            name("orphan_su_cleanup_ops"),
            "Bundles that this node took from a dead one.",
            counts.orphans,
        )
        yield group.counter(
            name("su_tombstone_cleanup_ops"),
            "Deleted bundles that this node took off the log's state.",
            counts.tombstones,
        )
        is_open, at_ms = counts.session_event
        age_s = max(0, self._runtime.core.log_ms - at_ms) / 1000 if at_ms else 0.0
        last = "last_metadata_session_event_{}".format
        for what, text, value in (
            ("owned_su_total", "Bundles that this node owns.", len(self._runtime.core.serving)),
            ("metadata_state", "1 while this node has the log.", self._runtime.has_lease),
            (last("is_reestablished"), "1 if its session began last, 0 if it ended.", is_open),
            (last("timestamp_ms"), "Time of that event, on the log's clock.", at_ms),
            (last("age_seconds"), "Age of that event.", age_s),
        ):
            yield group.gauge(name(what), text, value)
