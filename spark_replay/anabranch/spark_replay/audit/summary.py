"""The audit's result as one value, the same for every form of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from anabranch.core.log.verdicts import Verdict
from anabranch.spark_replay.audit.role_history import RoleEvent
from anabranch.spark_replay.audit.statistics import Figures, percentile, split_count_key
from anabranch.spark_replay.audit.verdict import AuditFindings, CheckReport
from anabranch.spark_replay.report.output import clock

_MINUTE_MS: Final = 60_000


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
    """Returns a sentence about the gap between archive and WAL, and about what was judged, "" for
    no gap.
    """
    if log.gap is None:
        return ""
    first, following = log.gap
    judged = "what lies before it"
    if log.from_snapshot:
        behind = f"what follows the snapshot at offset {log.horizon:,}"
        judged = f"{judged} and {behind}" if log.first_offset == 0 else behind
    return (
        f"There is a gap from offset {first:,} to {following - 1:,}: neither archive nor WAL holds "
        f"it. Judged is {judged}."
    )


class Latency(msgspec.Struct, frozen=True):
    """A distribution of milliseconds, in a few numbers."""

    count: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int


class Summary(msgspec.Struct, frozen=True):
    """The whole result."""

    sound: bool
    log: Log
    checks: list[CheckReport]
    records: int
    accepted: int
    entities: int
    digest: str  # that of the folded state at the end
    by_type: Mapping[str, int]
    rejected: Mapping[str, int]  # reason -> losers
    per_minute: Mapping[str, Mapping[str, int]]  # minute -> ACCEPTED or reason -> records
    hand_over: Latency  # RELEASE to a destination accepted, until its OWN was
    fail_over: Latency  # end of the former owner's session, until the next OWN was accepted
    since_last_sign: Latency  # the same from the former owner's last heartbeat
    reshape: Latency  # a topic's BEGIN accepted, until its COMMIT was
    seconds: float
    bin_ms: int
    figures: Figures
    who: str = ""  # the role whose history was asked for
    role_events: list[RoleEvent] = []

    def json(self) -> str:
        """Returns the result as JSON, without data that only plots need."""
        fields = msgspec.to_builtins(self)
        figures = fields.pop("figures")
        if not self.who:
            del fields["who"], fields["role_events"]
        fields["units"] = figures["units"]
        fields["decided_by"] = figures["decided_by"]
        fields["flapping"] = {"units": figures["flapping"], "busiest": figures["flaps"]}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def summarized(
    log: Log, findings: AuditFindings, bin_ms: int, seconds: float, who: str = ""
) -> Summary:
    """Returns the findings, with the figures that people ask for."""
    figures = findings.figures
    by_type: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    minutes: dict[str, Counter[str]] = {}
    accepted = 0
    for key in sorted(figures.counts):
        count = figures.counts[key]
        bin_number, kind, verdict = split_count_key(key)
        by_type[kind] += count
        minute = clock(bin_number * bin_ms // _MINUTE_MS * _MINUTE_MS)
        minutes.setdefault(minute, Counter())[verdict.name] += count
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
        by_type=dict(by_type.most_common()),
        rejected=dict(rejected.most_common()),
        per_minute=minutes,
        hand_over=latency(figures.hand_overs),
        fail_over=latency(figures.fail_overs),
        since_last_sign=latency(figures.last_signs),
        reshape=latency(figures.reshapes),
        seconds=round(seconds, 2),
        bin_ms=bin_ms,
        figures=figures,
        who=who,
        role_events=findings.role_events,
    )


def latency(histogram: dict[int, int]) -> Latency:
    """Returns a histogram in a few numbers, all 0 for an empty one."""
    return Latency(
        sum(histogram.values()),
        percentile(histogram, 0.5),
        percentile(histogram, 0.9),
        percentile(histogram, 0.99),
        max(histogram, default=0),
    )


def plain(value: Any) -> str:
    """Returns a number with its thousands separated."""
    return f"{value:,}"
