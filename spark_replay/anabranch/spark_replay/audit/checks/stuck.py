"""Stuck: at the end of the log no unit and no topic has been in flight for longer than it may."""

from __future__ import annotations

from anabranch.spark_replay.audit.checks.topics.topic_checks import TopicsLeft
from anabranch.spark_replay.audit.checks.unfinished import Unfinished
from anabranch.spark_replay.audit.tally import CheckTally


def check_stuck(
    unfinished: Unfinished, topics: TopicsLeft, log_end_ms: int, patience_ms: int
) -> CheckTally:
    """Checks the end of the log.
    `log_end_ms` is the newest timestamp of the log or of a heartbeat.
    """
    tally = CheckTally(examined=unfinished.units + topics.topics)
    for unit in sorted(unfinished.in_flight, key=lambda unit: unit.since_offset):
        waited_ms = log_end_ms - unit.since_ms
        if waited_ms > patience_ms:
            tally.violate(
                unit.since_offset,
                f"{unit.name}: {unit.state.name} for {waited_ms / 1000:.1f} s, waiting for "
                f"{unit.responsible or 'nobody'}",
            )
    for topic in sorted(topics.unfinished, key=lambda topic: topic.since_offset):
        waited_ms = log_end_ms - topic.since_ms
        if waited_ms > patience_ms:
            tally.violate(
                topic.since_offset,
                f"{topic.name}: {topic.state.name} for {waited_ms / 1000:.1f} s, controlled by "
                f"{topic.controller or 'nobody'}",
            )
    return tally
