"""Puts a node's part in measuring load together."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.broker.load.reporter import Loads, LoadSettings, Probe, SegmentLoadReporter
from anabranch.broker.load.traffic import TrafficReports
from anabranch.broker.metrics.registry import Metrics
from anabranch.broker.settings import Settings
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.channel.load.loads import LoadTable


def load_settings(settings: Settings) -> LoadSettings:
    """Returns the settings of the measuring of loads."""
    return LoadSettings(
        interval_s=settings.scalable_topic_load_report_interval_seconds,
        window_s=settings.scalable_topic_load_window_seconds,
        threshold=settings.scalable_topic_load_report_rate_change_threshold,
    )


def traffic_inbox(settings: Settings) -> TrafficReports:
    """Returns the place that takes clients' reports."""
    measured = load_settings(settings)
    return TrafficReports(
        measured.window_s, measured.interval_s, message_bytes_max=settings.max_message_size
    )


def build_reporter(
    service: TopicService,
    reports: TrafficReports,
    settings: Settings,
    table: LoadTable,
    loads: Loads,
    open_probe: Callable[[], Probe],
) -> SegmentLoadReporter:
    """`open_probe` is called in a thread, when there is something to ask."""
    reporter = SegmentLoadReporter(
        service, table, loads, reports, load_settings(settings), open_probe
    )
    measure(reporter, reports, table, service.runtime.metrics)
    return reporter


def measure(
    reporter: SegmentLoadReporter, reports: TrafficReports, table: LoadTable, metrics: Metrics
) -> None:
    """Shows what measuring costs."""
    metrics.gauge(
        "anabranch_load_segments",
        "Active segments whose load this node measures.",
        lambda: len(reporter.inventory),
    )
    metrics.gauge(
        "anabranch_load_records", "Loads of segments that this node knows.", lambda: len(table)
    )
    metrics.total(
        "anabranch_load_samples",
        "Samples that this node has taken of segments since it started.",
        lambda: reporter.samples,
    )
    metrics.total(
        "anabranch_load_writes",
        "Loads of segments that this node has written or withdrawn since it started.",
        lambda: reporter.writes,
    )
    metrics.total(
        "anabranch_load_reports",
        "Reports of clients on their traffic since this node started.",
        lambda: reports.received,
    )
    metrics.gauge(
        "anabranch_load_round_seconds",
        "Time of the last round of measuring.",
        lambda: reporter.round_s,
    )
