"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.log.grounds import BUILT_IN
from anabranch.spark_replay.audit.summary import Latency, Log, Summary, gap_in_words
from anabranch.spark_replay.report.output import clock


def table(summary: Summary) -> str:
    """Returns every check with its result and its violations, and the figures.
    It ends with a newline.
    """
    parts = (*_head(summary), "", *_checks(summary), "", *_figures(summary), *_of_role(summary))
    return "\n".join([*parts, ""])


def _head(summary: Summary) -> Iterator[str]:
    log = summary.log
    yield extent(log)
    yield f"read from {origin(log)}; {summary.records:,} records in {summary.seconds:.1f} s"


def extent(log: Log) -> str:
    """Returns the audited stretch of the log, in words."""
    if log.next_offset <= log.first_offset:
        return f"{log.topic}, empty"
    return (
        f"{log.topic}, offsets {log.first_offset:,} to {log.next_offset - 1:,}, "
        f"{clock(log.first_ms)} to {clock(log.last_ms)}"
    )


def origin(log: Log) -> str:
    """Returns the origin of the records, in words."""
    parts = []
    if log.from_snapshot:
        gone = "the beginning of the log is gone" if log.gap is None else "behind a gap"
        parts.append(f"the snapshot at offset {log.horizon:,} ({gone})")
    if log.archived_until >= 0:
        parts.append(f"the archive up to offset {log.archived_until:,}")
    if log.next_offset > log.archived_until:
        parts.append("the WAL")
    return ", ".join(parts) or "nothing"


def _checks(summary: Summary) -> Iterator[str]:
    width = max(len(check.result.value) for check in summary.checks)
    yield f"{'check':<12} {'result':<{width}} {'examined':>13} {'violations':>10}  proves"
    for check in summary.checks:
        yield (
            f"{check.name.value:<12} {check.result.value:<{width}} {check.examined:>13,} "
            f"{check.violated:>10,}  {check.proves}"
        )
        if check.note:
            yield f"{'':<13}({check.note})"
        for witness in check.witnesses:
            yield f"{'':<13}offset {witness.offset:,}: {witness.text}"
        if check.violated > len(check.witnesses):
            yield f"{'':<13}and {check.violated - len(check.witnesses):,} more"
    violated = sum(check.violated for check in summary.checks)
    yield ""
    gap = gap_in_words(summary.log)
    if gap:
        yield gap
    sound = "No violation was found in what could be judged." if gap else "The log is sound."
    yield sound if summary.sound else f"The log is NOT sound: {violated:,} violations."


def _figures(summary: Summary) -> Iterator[str]:
    lost = ", ".join(f"{name} {count:,}" for name, count in summary.rejected.items())
    yield f"accepted   {summary.accepted:,} of {summary.records:,}; rejected: {lost or 'none'}"
    yield f"hand-over  {words(summary.hand_over)}"
    yield f"fail-over  {words(summary.fail_over)}"
    yield f"           since the last heartbeat: {words(summary.since_last_sign)}"
    yield f"reshape    {words(summary.reshape)}"
    decided = summary.figures.decided_by
    if decided.keys() - {BUILT_IN}:
        by = ", ".join(f"{name} {count:,}" for name, count in decided.items())
        yield f"balancing  decided by {by}"
    flapping = summary.figures.flapping
    if flapping:
        busiest = summary.figures.flaps[0]
        yield f"flapping   {flapping:,} units, most of all {busiest.unit} ({busiest.moves:,} moves)"


def _of_role(summary: Summary) -> Iterator[str]:
    """Yields the role's rights, requests and requests for others, if one was asked for."""
    if not summary.who:
        return
    yield ""
    if not summary.role_events:
        yield f"{summary.who} was never allowed anything, asked for nothing and passed nothing on."
        return
    yield f"{summary.who}, by offset and time:"
    for event in summary.role_events:
        at = clock(event.timestamp_ms) if event.timestamp_ms else "before the snapshot"
        verdict = f": {event.verdict}" if event.verdict else ""
        yield f"{event.offset:>10,}  {at:<20}  {event.text}{verdict}"


def words(latency: Latency) -> str:
    """Returns a distribution in one line."""
    if not latency.count:
        return "none"
    return (
        f"p50 {latency.p50_ms:,} ms, p90 {latency.p90_ms:,} ms, p99 {latency.p99_ms:,} ms, "
        f"max {latency.max_ms:,} ms ({latency.count:,})"
    )
