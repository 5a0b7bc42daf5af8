"""The audit of a `History` without Spark: the same replay, divided and judged alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from anabranch.channel.log.entries import Entry
from anabranch.core.effects import BrokerState
from anabranch.core.fold.evolve import evolve
from anabranch.core.log.records import scope_of
from anabranch.core.sessions.lease import Heartbeat
from anabranch.spark_replay.audit.checks.cluster.settings import SettingFault
from anabranch.spark_replay.audit.checks.log.digests import Claim
from anabranch.spark_replay.audit.checks.log.offsets import Chunk
from anabranch.spark_replay.audit.checks.topics.order import Edges
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds
from anabranch.spark_replay.audit.replay import (
    LOG_ROW,
    SNAPSHOT_ROW,
    PartReplay,
    PartResult,
    ReplayPlan,
    Rule,
    part_of,
)
from anabranch.spark_replay.audit.tally import CheckName, CheckTally
from anabranch.spark_replay.audit.verdict import AuditFindings, CheckResult, Context, judged
from support.history import History, SnapshotTaken

# The checks of a log without scalable topics that look at nothing.
OF_TOPICS: Final = frozenset(
    {CheckName.LAYOUTS, CheckName.SEALS, CheckName.DRAINING, CheckName.SEGMENTS, CheckName.ORDER}
    | {CheckName.ADOPTION}
)
# Those that look at nothing where the balancer has done nothing.
OF_BALANCE: Final = frozenset({CheckName.PLACEMENT, CheckName.BALANCE})
# And where no setting was overridden.
OF_SETTINGS: Final = frozenset({CheckName.SETTINGS})
# The one that looks at nothing where no node asks who may do what.
OF_ROLES: Final = frozenset({CheckName.PERMISSIONS})


class Audited(Protocol):
    """A log that was never trimmed, and the heartbeats with their times: a `History`'s, or more."""

    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def beats(self) -> Sequence[tuple[Heartbeat, int]]: ...
    @property
    def next_offset(self) -> int: ...


def audited(
    history: Audited,
    *,
    rule: Rule = evolve,
    parts: int = 3,
    snapshot: SnapshotTaken | None = None,
    without_before: int = 0,
    stuck_after_ms: int = 120_000,
    chunks: Sequence[Chunk] | None = None,
    segment_ends: SegmentEnds | None = None,
    segment_edges: Edges | None = None,
    setting_fault: SettingFault | None = None,
) -> AuditFindings:
    """The audit's findings; the log before offset `without_before` is gone."""
    horizon = snapshot.horizon.next_offset if snapshot else -1
    from_snapshot = without_before > 0
    first = horizon if from_snapshot else 0
    claims = [Claim(b.broker, b.next_offset, b.digest) for b, _ in history.beats]
    times: dict[str, list[int]] = {}
    last_ms: dict[str, int] = {}
    for beat, log_ms in history.beats:
        if beat.state != BrokerState.SAFE.value:
            times.setdefault(f"{beat.broker} {beat.session}", []).append(log_ms)
        last_ms[beat.broker] = log_ms
    plan = ReplayPlan(
        parts=parts,
        next_offset=history.next_offset,
        horizon=horizon,
        from_snapshot=from_snapshot,
        checkpoints=tuple(sorted({c.next_offset for c in claims if c.next_offset >= first})),
        beats=times,
        bin_ms=1_000,
        tolerance_ms=250,
    )
    entries = [entry for entry in history.entries if entry.offset >= first]
    found = [_part(plan, part, entries, snapshot, rule) for part in range(parts)]
    context = Context(
        first_offset=first,
        horizon=snapshot.horizon if snapshot else None,
        claims=claims,
        last_beats_ms=last_ms,
        chunks=chunks,
        disagreements=(),
        stuck_after_ms=stuck_after_ms,
        orphaned_after_ms=30_000,
        segment_ends=None if segment_ends is None else lambda _: segment_ends,
        segment_edges=None if segment_edges is None else lambda _: segment_edges,
        setting_fault=setting_fault,
        tolerance_ms=250,
    )
    return judged(found, plan, context)


def _part(
    plan: ReplayPlan,
    part: int,
    entries: Sequence[Entry],
    snapshot: SnapshotTaken | None,
    rule: Rule,
) -> PartResult:
    replay = PartReplay(plan, part, rule)
    # shared, kind, offset, timestamp, key, value, schema: the columns that Spark feeds
    rows: list[tuple[Any, ...]] = [
        (_scope(e.key) == "", LOG_ROW, e.offset, e.timestamp_ms, e.key, e.value, e.schema)
        for e in entries
        if _goes_to(_scope(e.key), part, plan.parts)
    ]
    if snapshot is not None:
        rows += [
            (scope_of(key) == "", SNAPSHOT_ROW, plan.horizon, 0, key.encode(), value, None)
            for key, value in snapshot.values.items()
            if _goes_to(scope_of(key), part, plan.parts)
        ]
    rows.sort(key=lambda row: (row[2], row[1]))
    if rows:
        replay.feed(*(list(column) for column in zip(*rows, strict=True)))
    return replay.result()


def _scope(key: bytes | None) -> str:
    return "" if key is None else scope_of(key.decode(errors="replace"))


def _goes_to(scope: str, part: int, parts: int) -> bool:
    return not scope or part_of(scope, parts) == part


def violated(findings: AuditFindings) -> list[CheckName]:
    """The checks that failed."""
    return [check.name for check in findings.checks if check.result is CheckResult.VIOLATED]


def not_applicable(findings: AuditFindings) -> set[CheckName]:
    """The checks that found nothing to look at."""
    return {c.name for c in findings.checks if c.result is CheckResult.NOT_APPLICABLE}


def only(history: History, name: CheckName, text: str, **how: Any) -> None:
    """Fails unless this check of an audit, and no other, finds something, and says this of it."""
    findings = audited(history, **how)
    assert violated(findings) == [name]
    assert text in witness(findings, name)


def witness(findings: AuditFindings, name: CheckName) -> str:
    """What a check says of the first violation that it found."""
    check = next(check for check in findings.checks if check.name is name)
    return check.witnesses[0].text


def told(tally: CheckTally) -> list[tuple[int, str]]:
    """Offset and words of each violation that a check has found."""
    return [(found.offset, found.text) for found in tally.witnesses]
