"""What a cluster does for itself: ownership, its log and the audits of it, its health.

What every node counts for itself is summed; of what every node reads alike, the log above all, the
greatest is taken; what only a leader shows is taken from whoever has it.
"""

from __future__ import annotations

from typing import Final

from anabranch.devkit.dashboards.grafana import (
    RATE_INTERVAL,
    Dashboard,
    Panel,
    PanelShape,
    PanelUnit,
    Query,
    lines,
    number,
    quantiles,
)

_I: Final = RATE_INTERVAL

OWNERSHIP: Final = Dashboard(
    "ownership",
    "ownership",
    of_topics=False,
    panels=(
        number("Nodes that serve", "sum(anabranch_serving)", "All of them, when all is well."),
        number("Leaders", "sum(anabranch_is_leader)", "1, when all is well."),
        number("Owned bundles", "sum(anabranch_owned_bundles)", "Bundles with an owner."),
        number(
            "Lapses, 1 hour",
            "sum(increase(anabranch_session_lapses_total[1h]))",
            "Leases that lapsed: their nodes stopped to act.",
        ),
        number(
            "Look-ups a second",
            f"sum(rate(anabranch_lookups_cached_total{_I})) "
            f"+ (sum(rate(anabranch_lookups_total{_I})) or vector(0))",
            "Of all nodes.",
            PanelUnit.PER_SECOND,
        ),
        number(
            "Waiting",
            "sum(anabranch_waiting_lookups)",
            "Requests that wait for a bundle to settle.",
        ),
        lines(
            "Bundles by owner",
            PanelUnit.COUNT,
            "A step down on one node and up on others is a hand-over or a fail-over.",
            Query("anabranch_owned_bundles", "{{instance}}"),
        ),
        Panel(
            "Leader",
            PanelShape.STATES,
            PanelUnit.COUNT,
            "1 while that node leads.",
            (Query("anabranch_is_leader", "{{instance}}"),),
        ),
        lines(
            "Lease",
            PanelUnit.SECONDS,
            "What is left of each node's lease; at 0 it acts on nothing.",
            Query("anabranch_lease_remaining_seconds", "{{instance}}"),
        ),
        quantiles(
            "Hand-over of a bundle",
            "anabranch_hand_over_seconds",
            "From the request that it be released to its next owner, by the log's clock.",
        ),
        lines(
            "Changes of bundles",
            PanelUnit.PER_SECOND,
            "Accepted records by kind.",
            Query(
                "max by (kind) (rate(anabranch_log_records_total{"
                'verdict="accepted",kind!~"topic_.*|subscription_.*|session_.*"}'
                f"{_I}))",
                "{{kind}}",
            ),
        ),
        lines(
            "Look-ups",
            PanelUnit.PER_SECOND,
            "Answered at once, after a wait, or refused, by outcome.",
            Query(f"sum(rate(anabranch_lookups_cached_total{_I}))", "at once"),
            Query(f"sum by (outcome) (rate(anabranch_lookups_total{_I}))", "{{outcome}}"),
        ),
    ),
)

LOG: Final = Dashboard(
    "log",
    "log and audit",
    of_topics=False,
    panels=(
        number("Log", "max(anabranch_log_next_offset)", "The first offset that nobody has read."),
        number(
            "Newest audit",
            "max(anabranch_audit_exit_status)",
            "0 sound, 1 violations, 2 could not run, 3 a gap.",
        ),
        number(
            "Violations",
            "sum(anabranch_audit_violations)",
            "That the newest audit found, of all checks.",
        ),
        number(
            "Age of the audit",
            "time() - max(anabranch_audit_finished_timestamp_seconds)",
            "Since the newest one ended.",
            PanelUnit.SECONDS,
        ),
        number(
            "Not yet audited",
            "max(anabranch_log_next_offset) - max(anabranch_audit_next_offset)",
            "Records since the newest audit.",
        ),
        number(
            "Mismatches",
            "sum(anabranch_digest_mismatch_total)",
            "Times that two nodes' states differed: 0, when all is well.",
        ),
        lines(
            "Records",
            PanelUnit.PER_SECOND,
            "By verdict; rejections are part of normal work.",
            Query(
                f"max by (verdict) (rate(anabranch_log_records_total{_I}))",
                "{{verdict}}",
            ),
        ),
        quantiles(
            "Proposals",
            "anabranch_proposal_seconds",
            "From a node's proposal to its verdict: through Kafka and back.",
        ),
        lines(
            "Fold lag",
            PanelUnit.COUNT,
            "Records that another node has read and this one has not.",
            Query("anabranch_fold_lag_records", "{{instance}}"),
        ),
        lines(
            "Failures",
            PanelUnit.PER_SECOND,
            "Appends that Kafka refused, and records that nobody can read.",
            Query(f"rate(anabranch_append_failures_total{_I})", "{{instance}} appends"),
            Query(
                f"max(rate(anabranch_unreadable_records_total{_I}))",
                "unreadable",
            ),
        ),
        lines(
            "Snapshots",
            PanelUnit.PER_SECOND,
            "By result; `fenced` is one that another node had become the writer of.",
            Query(f"sum by (result) (rate(anabranch_snapshots_total{_I}))", "{{result}}"),
        ),
        lines(
            "Places in the log",
            PanelUnit.COUNT,
            "Its end, the newest snapshot, each archive and the newest audit.",
            Query("max(anabranch_log_next_offset)", "end"),
            Query("max(anabranch_snapshot_horizon_offset)", "snapshot"),
            Query("max by (archive) (anabranch_archive_next_offset)", "archive {{archive}}"),
            Query("max(anabranch_audit_next_offset)", "audit"),
        ),
        lines(
            "Archives behind",
            PanelUnit.COUNT,
            "Records that are kept because an archive does not hold them.",
            Query("max by (archive) (anabranch_archive_behind_records)", "{{archive}}"),
        ),
        lines(
            "Audits",
            PanelUnit.SECONDS,
            "How long the newest one took.",
            Query("anabranch_audit_seconds", "seconds"),
        ),
        Panel(
            "Checks",
            PanelShape.TABLE,
            PanelUnit.COUNT,
            "Of the newest audit: violations of each check, and how much it looked at. A check "
            "that looked at nothing proves nothing.",
            (
                Query("sum by (check) (anabranch_audit_violations)"),
                Query("sum by (check) (anabranch_audit_examined)"),
            ),
        ),
        lines(
            "Audits that ended",
            PanelUnit.COUNT,
            "In the last hour, by exit status.",
            Query("sum by (status) (increase(anabranch_audits_total[1h]))", "status {{status}}"),
        ),
        lines(
            "Replayed records",
            PanelUnit.COUNT,
            "By the newest audit.",
            Query("anabranch_audit_records", "records"),
        ),
    ),
)

HEALTH: Final = Dashboard(
    "health",
    "health",
    of_topics=False,
    panels=(
        number(
            "Alerts",
            'count(ALERTS{alertstate="firing"}) or vector(0)',
            "That are firing.",
        ),
        number("Answering", 'sum(up{job="anabranch"})', "Nodes that Prometheus reaches."),
        number("Serving", "sum(anabranch_serving)", "Nodes that may own bundles."),
        number("Leaders", "sum(anabranch_is_leader)", "1, when all is well."),
        number(
            "Concerns",
            "sum(anabranch_concerns)",
            "What people should look at: /admin/v2/brokers/health says it.",
        ),
        number("Overridden settings", "max(anabranch_setting_overrides)", "By the cluster."),
        number(
            "Overrides left out",
            "max(anabranch_setting_overrides_ignored)",
            "Of the node that can use fewest, beside its own settings.",
        ),
        number(
            "Failed look-ups",
            "(sum(rate(anabranch_lookups_total"
            f'{{outcome=~"unavailable|deadline|failed"}}{_I})) or vector(0)) '
            f"/ (sum(rate(anabranch_lookups_cached_total{_I})) "
            f"+ (sum(rate(anabranch_lookups_total{_I})) or vector(0)))",
            "The share of all look-ups.",
            PanelUnit.SHARE,
        ),
        Panel(
            "Alerts by name",
            PanelShape.TABLE,
            PanelUnit.COUNT,
            "That are firing or about to; docker/prometheus/alerts.yml says what to do.",
            (Query("count by (alertname, alertstate, severity) (ALERTS)"),),
        ),
        Panel(
            "Targets",
            PanelShape.STATES,
            PanelUnit.COUNT,
            "1 while Prometheus reaches it.",
            (Query("up", "{{job}} {{instance}}"),),
        ),
        Panel(
            "Serving",
            PanelShape.STATES,
            PanelUnit.COUNT,
            "1 while that node may own bundles.",
            (Query("anabranch_serving", "{{instance}}"),),
        ),
        lines(
            "Lapses",
            PanelUnit.COUNT,
            "Leases that lapsed since the node's start.",
            Query("anabranch_session_lapses_total", "{{instance}}"),
        ),
        lines(
            "Concerns by node",
            PanelUnit.COUNT,
            "GET /admin/v2/brokers/health of the node says what they are.",
            Query("anabranch_concerns", "{{instance}}"),
        ),
        lines(
            "Brokers",
            PanelUnit.COUNT,
            "That take part, as each node sees it: the same on all.",
            Query("anabranch_brokers", "{{instance}}"),
        ),
        lines(
            "Waiting requests",
            PanelUnit.COUNT,
            "For a bundle to settle.",
            Query("anabranch_waiting_lookups", "{{instance}}"),
        ),
        lines(
            "Measuring load",
            PanelUnit.SECONDS,
            "How long the last round took.",
            Query("anabranch_load_round_seconds", "{{instance}}"),
        ),
        lines(
            "Cost of measuring",
            PanelUnit.PER_SECOND,
            "Samples, records written, and reports of clients.",
            Query(f"sum(rate(anabranch_load_samples_total{_I}))", "samples"),
            Query(f"sum(rate(anabranch_load_writes_total{_I}))", "writes"),
            Query(f"sum(rate(anabranch_load_reports_total{_I}))", "reports"),
        ),
    ),
)
