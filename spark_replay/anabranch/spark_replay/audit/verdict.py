"""Makes the checks' verdicts from the parts' results, and from facts that only the whole log can
show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, StrEnum, unique
from typing import Final

import msgspec

from anabranch.channel.codec import Horizon
from anabranch.spark_replay.audit.checks.cluster.settings import SettingFault, judge_values
from anabranch.spark_replay.audit.checks.log.digests import Claim, check_digests, digests_at
from anabranch.spark_replay.audit.checks.log.offsets import Chunk, check_offsets
from anabranch.spark_replay.audit.checks.topics.adoption import check_adoption
from anabranch.spark_replay.audit.checks.topics.order import Edges, check_order
from anabranch.spark_replay.audit.checks.topics.segments import SegmentEnds, check_segments
from anabranch.spark_replay.audit.checks.topics.topic_checks import TopicsLeft, left_by_all
from anabranch.spark_replay.audit.checks.unfinished import (
    Unfinished,
    check_orphans,
    check_stuck,
    combined,
)
from anabranch.spark_replay.audit.replay import PartResult, ReplayPlan
from anabranch.spark_replay.audit.statistics import Figures, summed
from anabranch.spark_replay.audit.tally import CheckName, CheckTally, Witness, total

PROVES: Final[Mapping[CheckName, str]] = {
    CheckName.OFFSETS: "archive and WAL together hold every offset once, and agree",
    CheckName.VERSIONS: "every accepted record made the next version of its key",
    CheckName.OWNERSHIP: "no unit had two owners at any offset, no topic another controller",
    CheckName.LEASES: "no unit had two owners at any instant, by leases and log time",
    CheckName.LEADERSHIP: "every epoch had one leader, and only the leader repaired",
    CheckName.PERMISSIONS: "whoever asked for a change had the right to it just before it",
    CheckName.COVERAGE: "every namespace's bundles tiled its ring at every offset",
    CheckName.LAYOUTS: "every topic's active segments tiled the ring, in a DAG, at every epoch",
    CheckName.SEALS: "segments were sealed for announced children, with ends that are final",
    CheckName.DRAINING: "segments were drained only after all above them, and pruned only then",
    CheckName.ADOPTION: "others' Kafka topics had one topic each, by an entry, and stay in Kafka",
    CheckName.STUCK: "nothing was in flight for too long at the end",
    CheckName.ORPHANS: "nothing was left with a broker that is gone",
    CheckName.PLACEMENT: "no bundle was placed where a policy of that moment forbids it",
    CheckName.BALANCE: "the balancer gave reasons, and left what it moved for its grace period",
    CheckName.SETTINGS: "overrides of settings replaced what was in force, by what nodes can use",
    CheckName.SEGMENTS: "Kafka has no data after a seal, and what is drained was committed",
    CheckName.ORDER: "no key had two writable buckets at once, by brokers' time-stamps",
    CheckName.SNAPSHOT: "the snapshot is what the log adds up to at its horizon",
    CheckName.DIGESTS: "every node's state was the log's, where it said what it had",
}

_FROM_THE_BEGINNING: Final = (
    *(CheckName.VERSIONS, CheckName.OWNERSHIP, CheckName.LEASES, CheckName.LEADERSHIP),
    *(CheckName.COVERAGE, CheckName.LAYOUTS, CheckName.SEALS, CheckName.DRAINING),
    CheckName.ADOPTION,
    *(CheckName.PLACEMENT, CheckName.BALANCE, CheckName.SETTINGS, CheckName.PERMISSIONS),
)


@unique
class CheckResult(StrEnum):
    """The result of a check."""

    OK = "ok"
    VIOLATED = "violated"
    NOT_APPLICABLE = "not applicable"  # nothing of the kind was there, which proves nothing


@unique
class AuditStatus(IntEnum):
    """The exit statuses of an audit."""

    SOUND = 0
    VIOLATED = 1
    COULD_NOT_RUN = 2
    INCOMPLETE = 3  # no violations, but a gap


class CheckReport(msgspec.Struct, frozen=True):
    """One line of the report."""

    name: CheckName
    result: CheckResult
    proves: str
    examined: int
    violated: int
    witnesses: list[Witness]
    note: str = ""


class Context(msgspec.Struct, frozen=True):
    """The driver's knowledge of the audited log."""

    first_offset: int  # the first of the folded records
    horizon: Horizon | None
    claims: Sequence[Claim]
    last_beats_ms: Mapping[str, int]
    chunks: Sequence[Chunk] | None  # those of an incomplete log; None: it was counted whole
    disagreements: Sequence[tuple[int, int]]
    stuck_after_ms: int
    orphaned_after_ms: int
    strange_beats: int = 0  # unreadable ones: a newer release's, or a stranger's
    # Asks Kafka about what the log leaves of topics; None: Kafka is not asked.
    segment_ends: Callable[[TopicsLeft], SegmentEnds] | None = None
    segment_edges: Callable[[TopicsLeft], Edges] | None = None
    # Returns the fault of a setting's value, by the asking release; None: values are not judged.
    setting_fault: SettingFault | None = None
    tolerance_ms: int = 0  # the largest difference between the clocks of two of Kafka's brokers


class AuditFindings(msgspec.Struct, frozen=True):
    """The checks' verdicts, and the sums of the parts' other results."""

    checks: list[CheckReport]
    figures: Figures
    records: int
    entities: int
    log_end_ms: int
    final_digest: str

    @property
    def sound(self) -> bool:
        return all(check.result is not CheckResult.VIOLATED for check in self.checks)


def judged(parts: Sequence[PartResult], plan: ReplayPlan, context: Context) -> AuditFindings:
    """Returns all checks' verdicts."""
    tallies = {
        name: total(part.tallies[name] for part in parts if name in part.tallies)
        for name in CheckName
    }
    notes: dict[CheckName, str] = {}
    unfinished = combined([part.unfinished for part in parts])
    records = sum(part.records for part in parts)
    last_ms = max((part.last_ms for part in parts), default=0)
    log_end_ms = max([last_ms, *context.last_beats_ms.values()])
    folded = digests_at(
        [change for part in parts for change in part.digests],
        [*plan.checkpoints, plan.next_offset, max(plan.horizon, 0)],
    )
    first = context.first_offset
    chunks = context.chunks
    if chunks is None:
        count = records + sum(part.repeated for part in parts)
        chunks = [Chunk(first, plan.next_offset - 1, count, records)] if records else []
    tallies[CheckName.OFFSETS] = check_offsets(
        chunks, first, plan.next_offset, context.disagreements
    )
    topics = left_by_all([part.topics for part in parts])
    if context.setting_fault is not None:
        given = [each for part in parts for each in part.given]
        tallies[CheckName.SETTINGS] = judge_values(
            tallies[CheckName.SETTINGS], given, context.setting_fault
        )
    _judge_end(tallies, notes, context, unfinished, topics, log_end_ms)
    notes[CheckName.SEGMENTS] = _segments_note(topics, tallies[CheckName.SEGMENTS])
    tallies[CheckName.DIGESTS] = check_digests(context.claims, folded, first, plan.next_offset)
    if not context.claims:
        notes[CheckName.DIGESTS] = "no heartbeat is in the brokers topic"
    elif not tallies[CheckName.DIGESTS].examined:
        notes[CheckName.DIGESTS] = "every heartbeat is older than the log that is left"
    if context.strange_beats:
        strange = f"{context.strange_beats} heartbeats of no known schema are left out"
        notes[CheckName.DIGESTS] = "; ".join(filter(None, (notes.get(CheckName.DIGESTS), strange)))
    if context.horizon is None:
        notes[CheckName.SNAPSHOT] = "there is no snapshot yet"
    else:
        _snapshot_digest(tallies[CheckName.SNAPSHOT], context.horizon, folded, plan)
    if plan.from_snapshot:
        limited = f"from offset {plan.horizon} on: the beginning of the log is gone"
        notes |= dict.fromkeys(_FROM_THE_BEGINNING, limited)
        notes[CheckName.SNAPSHOT] = "its digest only: the replay starts from it"
    reports = [_report(name, tallies[name], notes.get(name, "")) for name in CheckName]
    return AuditFindings(
        reports,
        summed([part.figures for part in parts]),
        records,
        sum(part.entities for part in parts),
        log_end_ms,
        folded[plan.next_offset],
    )


def _judge_end(
    tallies: dict[CheckName, CheckTally],
    notes: dict[CheckName, str],
    context: Context,
    unfinished: Unfinished,
    topics: TopicsLeft,
    log_end_ms: int,
) -> None:
    tallies[CheckName.STUCK] = check_stuck(unfinished, topics, log_end_ms, context.stuck_after_ms)
    tallies[CheckName.ORPHANS] = check_orphans(
        unfinished, context.last_beats_ms, log_end_ms, context.orphaned_after_ms
    )
    tallies[CheckName.ADOPTION] += check_adoption(topics.adopted)
    if context.segment_ends is not None and topics.sealed:
        ends = context.segment_ends(topics)
        tallies[CheckName.SEGMENTS] = check_segments(topics, ends, log_end_ms)
    if context.segment_edges is not None and topics.sealed:
        edges = context.segment_edges(topics)
        tallies[CheckName.ORDER], unjudged = check_order(topics, edges, context.tolerance_ms)
        notes[CheckName.ORDER] = _order_note(tallies[CheckName.ORDER], unjudged)


def _segments_note(topics: TopicsLeft, tally: CheckTally) -> str:
    if not topics.sealed_count:
        return "no segment is sealed"
    if not tally.examined:
        return "no sealed segment's topic is in Kafka"
    if topics.sealed_count > len(topics.sealed):
        return f"{len(topics.sealed):,} of {topics.sealed_count:,} sealed segments"
    return ""


def _order_note(tally: CheckTally, unjudged: int) -> str:
    if unjudged:
        return (
            f"{unjudged:,} of {unjudged + tally.examined:,} successions cannot be judged: their "
            "time-stamps are the senders' (CreateTime)"
        )
    return "" if tally.examined else "no child begins with a key of which its parent has a message"


def _snapshot_digest(
    tally: CheckTally, horizon: Horizon, folded: Mapping[int, str], plan: ReplayPlan
) -> None:
    tally.examined += 1
    if horizon.next_offset > plan.next_offset:
        tally.violate(
            horizon.next_offset,
            f"horizon: the snapshot stands for offset {horizon.next_offset}, but the log ends at "
            f"{plan.next_offset}",
        )
    elif folded[horizon.next_offset] != horizon.digest:
        tally.violate(
            horizon.next_offset,
            f"horizon: the snapshot says digest {horizon.digest}; the log makes it "
            f"{folded[horizon.next_offset]}",
        )


def _report(name: CheckName, tally: CheckTally, note: str) -> CheckReport:
    if tally.violated:
        result = CheckResult.VIOLATED
    elif not tally.examined:
        result = CheckResult.NOT_APPLICABLE
    else:
        result = CheckResult.OK
    return CheckReport(
        name, result, PROVES[name], tally.examined, tally.violated, tally.witnesses, note
    )
