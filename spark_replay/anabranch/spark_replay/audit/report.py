"""The audit's result as one value, as JSON, on a terminal, and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from itertools import accumulate
from typing import Final

import msgspec

from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.statistics import Figures, percentile, split_count_key
from anabranch.spark_replay.audit.verdict import AuditFindings, CheckReport
from anabranch.spark_replay.report import Bins, clock, document, plot, rows

_FLAPS_MAX: Final = 10


class Log(msgspec.Struct, frozen=True):
    """The audited log."""

    topic: str
    first_offset: int
    next_offset: int
    archived_until: int  # -1 without an archive
    wal_from: int
    from_snapshot: bool
    first_ms: int
    last_ms: int
    horizon: int  # -1 without a snapshot
    heartbeats: int
    gap: tuple[int, int] | None = None  # first and next offset of what nobody holds


def gap_in_words(log: Log) -> str:
    """Returns a sentence about the gap between archive and WAL, "" for none."""
    if log.gap is None:
        return ""
    first, following = log.gap
    return (
        f"There is a gap from offset {first:,} to {following - 1:,}: neither archive nor WAL holds "
        f"it. Judged is what follows the snapshot at offset {log.horizon:,}."
    )


class Latency(msgspec.Struct, frozen=True):
    """A distribution of milliseconds, in a few numbers."""

    count: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int

    def __str__(self) -> str:
        if not self.count:
            return "none"
        return (
            f"p50 {self.p50_ms:,} ms, p90 {self.p90_ms:,} ms, p99 {self.p99_ms:,} ms, "
            f"max {self.max_ms:,} ms ({self.count:,})"
        )


class Summary(msgspec.Struct, frozen=True):
    """The whole result."""

    sound: bool
    log: Log
    checks: list[CheckReport]
    records: int
    accepted: int
    entities: int
    digest: str  # that of the folded state at the end
    rejected: Mapping[str, int]  # reason -> losers
    hand_over: Latency  # RELEASE to a destination accepted, until its OWN was
    fail_over: Latency  # the former owner's last heartbeat, until the next OWN was accepted
    reshape: Latency  # a topic's BEGIN accepted, until its COMMIT was
    seconds: float
    bin_ms: int
    figures: Figures

    def json(self) -> str:
        """Returns the result as JSON, without data that only plots need."""
        fields = msgspec.to_builtins(self)
        figures = fields.pop("figures")
        fields |= {name: figures[name] for name in ("units", "flapping")}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def summarized(log: Log, findings: AuditFindings, bin_ms: int, seconds: float) -> Summary:
    """Returns the findings, with the figures that people ask for."""
    figures = findings.figures
    rejected: Counter[str] = Counter()
    accepted = 0
    for key in sorted(figures.counts):
        count = figures.counts[key]
        _, verdict = split_count_key(key)
        if verdict is Verdict.ACCEPTED:
            accepted += count
        else:
            rejected[verdict.name] += count
    return Summary(
        sound=findings.sound,
        log=log,
        checks=findings.checks,
        records=findings.records,
        accepted=accepted,
        entities=findings.entities,
        digest=findings.final_digest,
        rejected=dict(rejected.most_common()),
        hand_over=_latency(figures.hand_overs),
        fail_over=_latency(figures.fail_overs),
        reshape=_latency(figures.reshapes),
        seconds=round(seconds, 2),
        bin_ms=bin_ms,
        figures=figures,
    )


def _latency(histogram: dict[int, int]) -> Latency:
    return Latency(
        sum(histogram.values()),
        percentile(histogram, 0.5),
        percentile(histogram, 0.9),
        percentile(histogram, 0.99),
        max(histogram, default=0),
    )


# --- on a terminal --------------------------------------------------------------------------


def table(summary: Summary) -> str:
    """Returns every check with its result and its violations, and the figures.
    It ends with a newline.
    """
    figures = [f"{name:<10} {text}" for name, text in _figures(summary)]
    parts = (*_head(summary), "", *_checks(summary), "", *_verdict(summary), "", *figures)
    return "\n".join([*parts, ""])


def _head(summary: Summary) -> Iterator[str]:
    """Yields the audited stretch of the log, and the origin of the records."""
    log = summary.log
    if log.next_offset <= log.first_offset:
        yield f"{log.topic}, empty"
    else:
        yield (
            f"{log.topic}, offsets {log.first_offset:,} to {log.next_offset - 1:,}, "
            f"{clock(log.first_ms)} to {clock(log.last_ms)}"
        )
    parts = []
    if log.from_snapshot:
        gone = "the beginning of the log is gone" if log.gap is None else "behind a gap"
        parts.append(f"the snapshot at offset {log.horizon:,} ({gone})")
    if log.archived_until >= 0:
        parts.append(f"the archive up to offset {log.archived_until:,}")
    if log.next_offset > log.archived_until:
        parts.append("the WAL")
    origin = ", ".join(parts) or "nothing"
    yield f"read from {origin}; {summary.records:,} records in {summary.seconds:.1f} s"


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
        for witness in _witnesses(check):
            yield f"{'':<13}{witness}"


def _witnesses(check: CheckReport) -> Iterator[str]:
    for witness in check.witnesses:
        yield f"offset {witness.offset:,}: {witness.text}"
    if check.violated > len(check.witnesses):
        yield f"and {check.violated - len(check.witnesses):,} more"


def _verdict(summary: Summary) -> Iterator[str]:
    gap = gap_in_words(summary.log)
    if gap:
        yield gap
    violated = sum(check.violated for check in summary.checks)
    sound = "No violation was found in what could be judged." if gap else "The log is sound."
    yield sound if summary.sound else f"The log is NOT sound: {violated:,} violations."


def _figures(summary: Summary) -> Iterator[tuple[str, str]]:
    lost = ", ".join(f"{name} {count:,}" for name, count in summary.rejected.items())
    yield "accepted", f"{summary.accepted:,} of {summary.records:,}; rejected: {lost or 'none'}"
    yield "hand-over", str(summary.hand_over)
    yield "fail-over", f"{summary.fail_over}, since the last heartbeat"
    yield "reshape", str(summary.reshape)
    flapping = summary.figures.flapping
    if flapping:
        busiest = sorted(flapping, key=lambda unit: -flapping[unit])[:_FLAPS_MAX]
        yield "flapping", f"{len(flapping):,} units, most of all {', '.join(busiest)}"


# --- the page -------------------------------------------------------------------------------


def page(summary: Summary) -> str:
    """Returns a self-contained HTML page."""
    return document(f"Audit of {summary.log.topic}", _body(summary))


def _body(summary: Summary) -> Iterator[str]:
    yield f"<p>{escape('; '.join(_head(summary)))}</p>"
    kind = "ok" if summary.sound else "violated"
    yield f'<div class="verdict {kind}"><b>{escape(" ".join(_verdict(summary)))}</b></div>'
    yield rows(("figure", ""), _figures(summary), 2)
    yield "<h2>Checks</h2>"
    yield rows(("check", "result", "proves", "examined", "violations"), _check_rows(summary), 3)
    yield from _plots(summary)
    yield f"<p>State at the end: {summary.entities:,} keys, digest {summary.digest}</p>"


def _check_rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    for check in summary.checks:
        counts = f"{check.examined:,}", f"{check.violated:,}"
        yield check.name.value, check.result.value, check.proves, *counts
        for more in filter(None, (check.note, *_witnesses(check))):
            yield "", "", more, "", ""


def _plots(summary: Summary) -> Iterator[str]:
    counts = summary.figures.counts
    if not counts:
        return
    numbers = [split_count_key(key)[0] for key in counts]
    first, width_ms = min(numbers), summary.bin_ms
    bins = Bins(first * width_ms, width_ms, max(numbers) - first + 1)
    owned: dict[str, list[float]] = {}
    for broker, changes in sorted(summary.figures.held.items()):
        gained = [0.0] * bins.count
        for number, change in changes.items():
            gained[min(max(number - first, 0), bins.count - 1)] += change
        owned[broker] = list(accumulate(gained))
    expired = summary.figures.expired
    marks = [(at_ms, f"the session of {broker} was ended") for at_ms, broker in expired]
    yield "<h2>Bundles owned by each broker</h2><p>Dashed: a broker fell silent, and its session "
    yield f"was ended; {len(marks):,} in all.</p>"
    yield plot(owned, bins, "bundles", marks)
    by_verdict: dict[str, list[float]] = {}
    for key, count in counts.items():
        number, verdict = split_count_key(key)
        by_verdict.setdefault(verdict.name, [0.0] * bins.count)[number - first] += count
    yield "<h2>Records by verdict</h2><p>Losing is normal: several brokers may propose at once, "
    yield f"and the first valid record wins. A step is {width_ms / 1000:,.0f} s.</p>"
    yield plot(by_verdict, bins, "records")
