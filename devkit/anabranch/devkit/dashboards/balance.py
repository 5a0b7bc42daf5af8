"""How a cluster balances its load: loads of brokers, what is moved and split, and why."""

from __future__ import annotations

from typing import Final

from anabranch.devkit.dashboards.grafana import (
    RATE_INTERVAL,
    Dashboard,
    PanelUnit,
    Query,
    lines,
)

_I: Final = RATE_INTERVAL
_RESOURCES: Final = ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out")
_STEPS: Final = ("unload", "release", "disconnect", "assign")
_CHANNEL: Final = "brk_sunit_state_chn_"


def _rate(metric: str, labels: str) -> str:
    return f"sum by ({labels}) (rate({metric}{_I}))"


BALANCE: Final = Dashboard(
    "balance",
    "balance",
    of_topics=False,
    panels=(
        lines(
            "Load of brokers",
            PanelUnit.COUNT,
            "1 is all of a broker; max_ema is what is decided by.",
            Query("brk_lb_resource_usage", "{{instance}} {{feature}}"),
        ),
        lines(
            "Average and deviation",
            PanelUnit.COUNT,
            "Of the leader's last round.",
            Query("brk_lb_resource_usage_stats", "{{stat}}"),
        ),
        lines(
            "Use of resources",
            PanelUnit.COUNT,
            "In percent of what there is.",
            *(Query(f"brk_lb_{each}_usage", f"{{{{instance}}}} {each}") for each in _RESOURCES),
        ),
        lines(
            "Unloads, and rounds that did nothing",
            PanelUnit.PER_SECOND,
            "By result and reason.",
            Query(
                _rate("brk_lb_unload_broker_breakdown_total", "result, reason"),
                "{{result}} {{reason}}",
            ),
            Query("sum(rate(brk_lb_unload_bundle_total" + _I + "))", "bundles"),
            Query("sum(rate(brk_lb_unload_broker_total" + _I + "))", "brokers"),
        ),
        lines(
            "Splits",
            PanelUnit.PER_SECOND,
            "By result and reason.",
            Query(
                _rate("brk_lb_bundles_split_breakdown_total", "result, reason"),
                "{{result}} {{reason}}",
            ),
            Query("sum(rate(brk_lb_bundles_split_total" + _I + "))", "bundles"),
        ),
        lines(
            "Assignments",
            PanelUnit.PER_SECOND,
            "By what came of a look-up.",
            Query(_rate("brk_lb_assign_broker_breakdown_total", "result"), "{{result}}"),
        ),
        lines(
            "How long a move takes",
            PanelUnit.COUNT,
            "Milliseconds, on the average.",
            *(
                Query(
                    f"sum(rate(brk_lb_{each}_latency_sum{_I})) "
                    f"/ sum(rate(brk_lb_{each}_latency_count{_I}))",
                    each,
                )
                for each in _STEPS
            ),
        ),
        lines(
            "Loads told and known",
            PanelUnit.COUNT,
            "Every node should know the load of every other.",
            Query("anabranch_broker_loads", "{{instance}} knows"),
            Query(
                f"sum by (instance) (rate(anabranch_broker_load_reports_total{_I}))",
                "{{instance}} tells, a second",
            ),
            Query(_rate("anabranch_broker_loads_ignored_total", "reason"), "ignored {{reason}}"),
        ),
        lines(
            "Proposals and moves on bundles",
            PanelUnit.PER_SECOND,
            "As Pulsar shows them of its channel of service units.",
            Query(
                _rate(f"{_CHANNEL}event_publish_ops_total", "event, result"), "{{event}} {{result}}"
            ),
            Query(_rate(f"{_CHANNEL}subscribe_ops_total", "event, result"), "{{event}} {{result}}"),
            Query(_rate(f"{_CHANNEL}owner_lookup_total", "state, result"), "{{state}} {{result}}"),
        ),
        lines(
            "Repairs",
            PanelUnit.PER_SECOND,
            "Of the leader.",
            Query(_rate(f"{_CHANNEL}cleanup_ops_total", "result"), "{{result}}"),
            Query(_rate(f"{_CHANNEL}inactive_broker_cleanup_ops_total", "result"), "{{result}}"),
            Query(f"sum(rate({_CHANNEL}orphan_su_cleanup_ops_total{_I}))", "orphans"),
            Query(f"sum(rate({_CHANNEL}su_tombstone_cleanup_ops_total{_I}))", "tombstones"),
        ),
        lines(
            "Sessions",
            PanelUnit.COUNT,
            "Each node's with the log.",
            Query(f"{_CHANNEL}owned_su_total", "{{instance}} owns"),
            Query(f"{_CHANNEL}metadata_state", "{{instance}} has the log"),
            *(
                Query(f"{_CHANNEL}last_metadata_session_event_{each}", f"{{{{instance}}}} {each}")
                for each in ("is_reestablished", "timestamp_ms", "age_seconds")
            ),
        ),
    ),
)
