"""What a cluster is used for: topics and their scaling, and who reads and writes them.

What only a topic's controller shows is taken from whoever has it.
"""

from __future__ import annotations

from typing import Final

from anabranch.devkit.dashboards.grafana import (
    RATE_INTERVAL,
    Dashboard,
    PanelUnit,
    Query,
    lines,
    number,
    quantiles,
)

_I: Final = RATE_INTERVAL
_T: Final = 'topic=~"$topic"'

TOPICS: Final = Dashboard(
    "topics",
    "topics and scaling",
    of_topics=True,
    panels=(
        number(
            "Active segments",
            f"sum(pulsar_scalable_topic_active_segments{{{_T}}})",
            "Of the chosen topics.",
        ),
        number(
            "Messages in",
            f"sum(anabranch_topic_messages_in_per_second{{{_T}}})",
            "As controllers last looked, once a minute.",
            PanelUnit.PER_SECOND,
        ),
        number(
            "Messages out",
            f"sum(anabranch_topic_messages_out_per_second{{{_T}}})",
            "As controllers last looked, once a minute.",
            PanelUnit.PER_SECOND,
        ),
        number(
            "Stored messages",
            f"sum(anabranch_topic_stored_messages{{{_T}}})",
            "What Kafka has of the chosen topics.",
        ),
        number(
            "Splits, 1 hour",
            f"sum(increase(pulsar_scalable_topic_auto_splits_total{{{_T}}}[1h]))",
            "Automatic ones.",
        ),
        number(
            "Merges, 1 hour",
            f"sum(increase(pulsar_scalable_topic_auto_merges_total{{{_T}}}[1h]))",
            "Automatic ones.",
        ),
        lines(
            "Segments by topic",
            PanelUnit.COUNT,
            "Active ones: a split adds one, a merge takes one away.",
            Query(
                f"max by (topic) (pulsar_scalable_topic_active_segments{{{_T}}})",
                "{{topic}}",
            ),
        ),
        lines(
            "Steps of splits and merges",
            PanelUnit.SECONDS,
            "Mean times of all topics. Producers feel seal and commit.",
            Query(
                f"sum by (step) (rate(anabranch_topic_change_seconds_sum{_I}))"
                f" / sum by (step) (rate(anabranch_topic_change_seconds_count{_I}))",
                "{{step}}",
            ),
        ),
        lines(
            "Messages",
            PanelUnit.PER_SECOND,
            "Produced and consumed.",
            Query(
                f"sum by (topic) (anabranch_topic_messages_in_per_second{{{_T}}})", "{{topic}} in"
            ),
            Query(
                f"sum by (topic) (anabranch_topic_messages_out_per_second{{{_T}}})", "{{topic}} out"
            ),
        ),
        lines(
            "Bytes",
            PanelUnit.BYTES_PER_SECOND,
            "Produced and consumed.",
            Query(f"sum by (topic) (anabranch_topic_bytes_in_per_second{{{_T}}})", "{{topic}} in"),
            Query(
                f"sum by (topic) (anabranch_topic_bytes_out_per_second{{{_T}}})", "{{topic}} out"
            ),
        ),
        lines(
            "Entry buckets by topic",
            PanelUnit.COUNT,
            "Kafka partitions of all segments of a topic.",
            Query(
                f"sum by (topic) (pulsar_scalable_topic_segment_entry_buckets{{{_T}}})",
                "{{topic}}",
            ),
        ),
        lines(
            "Changes of segments",
            PanelUnit.PER_SECOND,
            "Accepted records of topics, by kind: by hand or not.",
            Query(
                "max by (kind) (rate(anabranch_log_records_total{"
                f'verdict="accepted",kind=~"topic_.*"}}{_I}))',
                "{{kind}}",
            ),
        ),
        lines(
            "Kept from scaling",
            PanelUnit.PER_SECOND,
            "Evaluations that maxSegments kept from a split, or maxDagDepth from a merge.",
            Query(
                "sum by (topic) (rate(pulsar_scalable_topic_split_suppressed_max_segments_total"
                f"{{{_T}}}{_I}))",
                "{{topic}}: split",
            ),
            Query(
                "sum by (topic) (rate(pulsar_scalable_topic_merge_suppressed_max_depth_total"
                f"{{{_T}}}{_I}))",
                "{{topic}}: merge",
            ),
        ),
        lines(
            "Other buckets",
            PanelUnit.PER_SECOND,
            "Segments replaced by one with other entry buckets.",
            Query(
                "sum by (topic) "
                f"(rate(pulsar_scalable_topic_rebucket_rollovers_total{{{_T}}}{_I}))",
                "{{topic}}",
            ),
        ),
        lines(
            "Controllers",
            PanelUnit.COUNT,
            "Topics that each node does something for.",
            Query("anabranch_topic_controllers", "{{instance}}"),
        ),
    ),
)

CLIENTS: Final = Dashboard(
    "clients",
    "clients",
    of_topics=True,
    panels=(
        number("Connections", "sum(anabranch_client_connections)", "To the binary ports."),
        number("Watches", "sum(anabranch_layout_watches)", "Clients that watch a topic's layout."),
        number("Consumers", "sum(anabranch_consumer_sessions)", "Sessions with controllers."),
        number("HTTP", "sum(anabranch_http_connections)", "Connections to the HTTP ports."),
        number(
            "Unserved buckets",
            f"sum(pulsar_scalable_topic_buckets_unserved{{{_T}}}) or vector(0)",
            "That no consumer may serve for longer than they should wait: 0, when all is well.",
        ),
        number(
            "Changed segments",
            f"sum(anabranch_segment_findings{{{_T}}}) or vector(0)",
            "Whose Kafka topics somebody else has changed: 0, when all is well.",
        ),
        number(
            "Refused, 1 hour",
            "sum(increase(anabranch_http_refused_total[1h]))",
            "HTTP connections that ended by a limit.",
        ),
        number("Addresses", "sum(anabranch_client_addresses)", "That clients come from."),
        number(
            "Memory",
            "max(anabranch_client_memory_bytes)",
            "Not taken by clients, and requests that are not served yet, of the node with most.",
            PanelUnit.BYTES,
        ),
        lines(
            "Watches and consumers",
            PanelUnit.COUNT,
            "Of clients of the binary port, as its limits count them.",
            Query("anabranch_client_watches", "{{instance}}"),
        ),
        lines(
            "Refused on the binary port",
            PanelUnit.PER_SECOND,
            "By the limit that did it.",
            Query(
                f"sum by (reason) (rate(anabranch_wire_refusals_total{RATE_INTERVAL}))",
                "{{reason}}",
            ),
        ),
        lines(
            "Who came",
            PanelUnit.PER_SECOND,
            "Requests and connections of somebody who has shown who they are, by how.",
            Query(
                f"sum by (method) (rate(anabranch_authentications_total{RATE_INTERVAL}))",
                "{{method}}",
            ),
        ),
        lines(
            "Kept out",
            PanelUnit.PER_SECOND,
            "Failed hand-shakes, refused credentials, and requests without the right.",
            Query(
                f"sum by (reason) (rate(anabranch_tls_refused_total{RATE_INTERVAL}))",
                "TLS: {{reason}}",
            ),
            Query(
                f"sum by (reason) (rate(anabranch_authentication_refusals_total{RATE_INTERVAL}))",
                "credentials: {{reason}}",
            ),
            Query(
                f"sum by (reason) (rate(anabranch_authorization_refusals_total{RATE_INTERVAL}))",
                "right: {{reason}}",
            ),
        ),
        lines(
            "Backlog",
            PanelUnit.COUNT,
            "Messages that a subscription has yet to read.",
            Query(
                f"max by (topic, subscription) (anabranch_subscription_backlog_messages{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Backlog in bytes",
            PanelUnit.BYTES,
            "About how many, if they are as large as those produced lately.",
            Query(
                f"max by (topic, subscription) (anabranch_subscription_backlog_bytes{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Dead letters that wait",
            PanelUnit.COUNT,
            "Messages of a queue that its consumers could not put aside so far.",
            Query(
                f"sum by (topic, subscription) (anabranch_dead_letters_waiting{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Messages read",
            PanelUnit.PER_SECOND,
            "By subscription, between the last two looks.",
            Query(
                "max by (topic, subscription) "
                f"(anabranch_subscription_messages_per_second{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Consumers of segments",
            PanelUnit.COUNT,
            "Shares of segments that consumers have, by subscription.",
            Query(
                f"sum by (topic, subscription) (pulsar_scalable_topic_segment_consumers{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Buckets that wait",
            PanelUnit.COUNT,
            "Withheld until their former consumer has settled, or unserved for too long.",
            Query(
                f"sum by (topic, subscription) (pulsar_scalable_topic_buckets_withheld{{{_T}}})",
                "{{topic}} {{subscription}}: withheld",
            ),
            Query(
                f"sum by (topic, subscription) (pulsar_scalable_topic_buckets_unserved{{{_T}}})",
                "{{topic}} {{subscription}}: unserved",
            ),
        ),
        lines(
            "Buckets that changed hands",
            PanelUnit.PER_SECOND,
            "Given to another consumer than before.",
            Query(
                "sum by (topic, subscription) "
                f"(rate(pulsar_scalable_topic_bucket_reassignments_total{{{_T}}}{_I}))",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Drained together",
            PanelUnit.COUNT,
            "Sealed segments whose backlog several consumers drain.",
            Query(
                f"sum by (topic, subscription) (pulsar_scalable_topic_drain_mode_active{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Subscriptions that expire",
            PanelUnit.SECONDS,
            "When one that nobody uses is deleted, of those that soon are.",
            Query(
                f"min by (topic, subscription) (anabranch_subscription_expires_in_seconds{{{_T}}})",
                "{{topic}} {{subscription}}",
            ),
        ),
        lines(
            "Ended with their right",
            PanelUnit.PER_SECOND,
            "Watches and consumers' sessions whose right was revoked.",
            Query(
                "sum by (command) "
                f"(rate(anabranch_authorization_revocations_total{RATE_INTERVAL}))",
                "{{command}}",
            ),
        ),
        lines(
            "Kafka's ACLs",
            PanelUnit.COUNT,
            "Those that it must have for what was granted, and those that differ.",
            Query("max(anabranch_kafka_acls_wanted)", "wanted"),
            Query("max(anabranch_kafka_acls_differing)", "differing"),
            Query("max(anabranch_kafka_acls_offset)", "enforced up to offset"),
        ),
        lines(
            "Changes of Kafka's ACLs",
            PanelUnit.PER_SECOND,
            "What the leader has changed, and how its looks have ended.",
            Query(
                f"sum by (change) (rate(anabranch_kafka_acl_changes_total{RATE_INTERVAL}))",
                "{{change}}",
            ),
            Query(
                f"sum by (result) (rate(anabranch_kafka_acl_reconciles_total{RATE_INTERVAL}))",
                "{{result}}",
            ),
        ),
        quantiles(
            "Time until a grant is enforced",
            "anabranch_kafka_acl_enforced_seconds",
            "From when the leader read it until Kafka had its ACLs.",
        ),
        lines(
            "Positions that others changed",
            PanelUnit.PER_SECOND,
            "Put right again, of stream subscriptions.",
            Query(
                f"sum(rate(anabranch_subscription_positions_changed_total{RATE_INTERVAL}))",
                "changes",
            ),
        ),
        lines(
            "Connections by node",
            PanelUnit.COUNT,
            "Of clients, and over HTTP.",
            Query("anabranch_client_connections", "{{instance}} binary"),
            Query("anabranch_http_connections", "{{instance}} HTTP"),
        ),
    ),
)
