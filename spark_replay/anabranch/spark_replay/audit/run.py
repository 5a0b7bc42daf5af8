"""The audit: replays the whole log in Spark with the core's rules, and tells if it was sound."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from anabranch.core.effects import BrokerState
from anabranch.core.errors import AnabranchError
from anabranch.jars.java import find_java
from anabranch.spark_replay import sources
from anabranch.spark_replay.archive.folders import Place, folder_at
from anabranch.spark_replay.archive.registration import identity_of
from anabranch.spark_replay.audit.checks.cluster.settings import SettingFault
from anabranch.spark_replay.audit.checks.log.digests import Claim
from anabranch.spark_replay.audit.checks.log.offsets import Chunk
from anabranch.spark_replay.audit.inputs import AuditInputs, gather, tasks_for
from anabranch.spark_replay.audit.job import replayed
from anabranch.spark_replay.audit.replay import PartResult, ReplayPlan, SchemaNeededError
from anabranch.spark_replay.audit.report import Log, Summary, page, summarized, table
from anabranch.spark_replay.audit.segment_edges import read_edges
from anabranch.spark_replay.audit.segment_ends import ask_kafka
from anabranch.spark_replay.audit.verdict import AuditFindings, AuditStatus, Context, judged
from anabranch.spark_replay.sources import (
    AuditError,
    Extent,
    KafkaSource,
    LogOptions,
    StampedHeartbeat,
)
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.session import spark_session

_CHUNK: Final = 10_000  # offsets that are counted or compared together
_RUNS_MAX: Final = 100_000  # stretches without a gap that are looked at
_ATTEMPTS_MAX: Final = 3
_BINS_MAX: Final = 240
_BINS_MS: Final = (1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000)


class AuditOptions(LogOptions, frozen=True, kw_only=True):
    """The log to audit, the limits to hold against it, and the places for reports."""

    archive_dir: Place | None = None
    json_path: str = ""  # "-": standard output
    html_path: Path | None = None
    stuck_after_s: float = 120.0  # nodes repair after 30 s, at the next round of 60 s
    orphaned_after_s: float = 30.0
    clock_tolerance_s: float = 0.25  # for log timestamps, between topics, and for clocks' rates
    # Returns the fault of a setting's value, by the release that asks.
    setting_fault: SettingFault | None = None
    parts: int = 0  # 0: by the size and the machine


def run_audit(options: AuditOptions) -> AuditStatus:
    """Audits and reports."""
    try:
        find_java()
        kafka = options.source("audit")
        kafka.extent(kafka.names.wal)  # a clear message before Spark is started
        sys.stderr.write("audit: starting Spark\n")
        with spark_session("audit", options.scratch_dir, options.spark) as spark:
            sys.stderr.write("audit: replaying the log\n")
            summary = audit(spark, options)
        _write(summary, options)
    except AnabranchError as error:
        sys.stderr.write(f"The audit could not run: {error}\n")
        return AuditStatus.COULD_NOT_RUN
    except OSError as error:
        sys.stderr.write(
            f"The audit could not write its report: {error.filename}: {error.strerror}\n"
        )
        return AuditStatus.COULD_NOT_RUN
    if not summary.sound:
        return AuditStatus.VIOLATED
    return AuditStatus.SOUND if summary.log.gap is None else AuditStatus.INCOMPLETE


def _write(summary: Summary, options: AuditOptions) -> None:
    """Writes the report. A reader may end early (`| head`): files and the status tell as much."""
    said = [table(summary)]
    if options.json_path == "-":
        said = [f"{summary.json()}\n"]
    elif options.json_path:
        Path(options.json_path).write_text(f"{summary.json()}\n", encoding="utf-8")
    if options.html_path is not None:
        options.html_path.write_text(page(summary), encoding="utf-8")
        if options.json_path != "-":
            said.append(f"report: {options.html_path}\n")
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write("".join(said))


def audit(spark: SparkSession, options: AuditOptions) -> Summary:
    """Returns the audit's result.
    Raises AnabranchError if it cannot be made, or if nothing is replayed.
    """
    started = time.monotonic()
    kafka = options.source("audit")
    if options.archive_dir is not None:
        identity_of(kafka, folder_at(options.archive_dir, spark))
    with_schemas = False  # few logs need them, and they are a good part of what is read
    for attempt in range(1, _ATTEMPTS_MAX + 2):
        begins_at = kafka.extent(kafka.names.wal).first_offset  # also a clear message, not Spark's
        try:
            inputs = gather(spark, kafka, options.archive_dir, with_schemas=with_schemas)
            plan, findings = _examined(spark, kafka, options, inputs, with_schemas=with_schemas)
            break
        except SchemaNeededError:
            with_schemas = True
        except SPARK_ERRORS as error:
            # The WAL may be trimmed while it is read; the archive then has what is gone.
            moved = kafka.extent(kafka.names.wal).first_offset != begins_at
            if not moved or attempt > _ATTEMPTS_MAX:
                raise AuditError(f"Spark failed: {cause(error)}") from error
    archived = inputs.archived
    if inputs.from_snapshot and not findings.records:
        raise AuditError(
            f"nothing of {kafka.names.wal} can be replayed: its beginning is gone (it starts at "
            f"offset {inputs.wal.first_offset}), and nothing came after the snapshot, which "
            f"stands for offset {inputs.first_offset}; name an archive that holds it with "
            "--archive-dir, or come back when the log has grown"
        )
    log = Log(
        topic=kafka.names.wal,
        first_offset=inputs.first_offset,
        next_offset=inputs.wal.next_offset,
        archived_until=archived.next_offset if archived else -1,
        wal_from=inputs.wal.first_offset,
        from_snapshot=inputs.from_snapshot,
        first_ms=inputs.first_ms,
        last_ms=findings.log_end_ms,
        gap=(inputs.gap.first_offset, inputs.gap.next_offset) if inputs.gap else None,
        horizon=plan.horizon,
        heartbeats=len(inputs.beats),
    )
    return summarized(log, findings, plan.bin_ms, time.monotonic() - started)


# --- what to make of it ---------------------------------------------------------------------


def _examined(
    spark: SparkSession,
    kafka: KafkaSource,
    options: AuditOptions,
    inputs: AuditInputs,
    *,
    with_schemas: bool,
) -> tuple[ReplayPlan, AuditFindings]:
    """Replays and judges the inputs, and frees the disk then."""
    try:
        plan = _plan(spark, inputs, options, with_schemas=with_schemas)
        parts = replayed(spark, inputs.log, inputs.snapshot.rows, plan)
        return plan, judged(parts, plan, _context(spark, kafka, options, inputs, parts, plan))
    finally:
        inputs.snapshot.forget()


def _context(
    spark: SparkSession,
    kafka: KafkaSource,
    options: AuditOptions,
    inputs: AuditInputs,
    parts: Sequence[PartResult],
    plan: ReplayPlan,
) -> Context:
    beats = inputs.beats
    last_beats_ms: dict[str, int] = {}
    for beat in beats:
        last_beats_ms[beat.beat.broker] = max(beat.log_ms, last_beats_ms.get(beat.beat.broker, 0))
    return Context(
        first_offset=inputs.first_offset,
        horizon=inputs.snapshot.horizon,
        claims=_claims(beats),
        strange_beats=inputs.strange_beats,
        last_beats_ms=last_beats_ms,
        chunks=_chunks(inputs, parts, plan),
        disagreements=_disagreements(spark, kafka, inputs),
        stuck_after_ms=round(options.stuck_after_s * 1000),
        orphaned_after_ms=round(options.orphaned_after_s * 1000),
        segment_ends=lambda left: ask_kafka(
            kafka.connection, kafka.names.prefix, left, inputs.wal.next_offset
        ),
        segment_edges=lambda left: read_edges(kafka.connection, kafka.names.prefix, left),
        setting_fault=options.setting_fault,
        tolerance_ms=plan.tolerance_ms,
    )


def _claims(beats: Sequence[StampedHeartbeat]) -> list[Claim]:
    """Returns each claim of a node once, even if the node repeated it."""
    found = {
        Claim(beat.beat.broker, beat.beat.next_offset, beat.beat.digest): None for beat in beats
    }
    return list(found)


def _plan(
    spark: SparkSession, inputs: AuditInputs, options: AuditOptions, *, with_schemas: bool
) -> ReplayPlan:
    first, end = inputs.first_offset, inputs.wal.next_offset
    offsets = {beat.beat.next_offset for beat in inputs.beats}
    times: dict[str, list[int]] = {}
    for beat in inputs.beats:
        # A node in safe mode says itself that its lease has lapsed: no sign of life.
        if beat.beat.state != BrokerState.SAFE.value:
            name = f"{beat.beat.broker} {beat.beat.session}"
            times.setdefault(name, []).append(beat.log_ms)
    horizon = inputs.snapshot.horizon
    size = end - first
    return ReplayPlan(
        parts=options.parts or tasks_for(spark, size),
        next_offset=end,
        horizon=horizon.next_offset if horizon else -1,
        from_snapshot=inputs.from_snapshot,
        checkpoints=tuple(sorted(offset for offset in offsets if first <= offset <= end)),
        beats={name: sorted(one) for name, one in times.items()},
        bin_ms=_bin_ms(inputs.last_ms - inputs.first_ms),
        tolerance_ms=round(options.clock_tolerance_s * 1000),
        with_schemas=with_schemas,
        passed_over=options.passed_over,
    )


def _bin_ms(span_ms: int) -> int:
    """Returns the width of the plots' bins: a round number that makes not too many of them."""
    for width in _BINS_MS:
        if span_ms <= width * _BINS_MAX:
            return width
    minutes = -(-span_ms // (_BINS_MAX * 60_000))
    return minutes * 60_000


def _chunks(
    inputs: AuditInputs, parts: Sequence[PartResult], plan: ReplayPlan
) -> list[Chunk] | None:
    """Returns the stretches of a log with holes, None if the replay has counted every
    offset once.
    """
    expected = plan.next_offset - inputs.first_offset
    whole = sum(part.records for part in parts) == expected
    if whole and not any(part.repeated for part in parts):
        return None
    # Runs of offsets without a gap: within one, offset less rank is the same.
    order = Window.partitionBy(F.floor(F.col("offset") / _CHUNK)).orderBy("offset")
    runs = inputs.log.select("offset", (F.col("offset") - F.dense_rank().over(order)).alias("run"))
    rows = (
        runs.groupBy(F.floor(F.col("offset") / _CHUNK), "run")
        .agg(F.min("offset"), F.max("offset"), F.count(F.lit(1)), F.count_distinct(F.col("offset")))
        .orderBy(F.min("offset"))
        .limit(_RUNS_MAX)
        .collect()
    )
    return [Chunk(low, high, count, distinct) for _, _, low, high, count, distinct in rows]


def _disagreements(
    spark: SparkSession, kafka: KafkaSource, inputs: AuditInputs
) -> list[tuple[int, int]]:
    """Returns the stretches of offsets that archive and WAL both hold, and differ in."""
    archive, archived, wal = inputs.archive, inputs.archived, inputs.wal
    if archive is None or archived is None or wal.first_offset >= archived.next_offset:
        return []
    both = Extent(wal.first_offset, archived.next_offset)
    kept = sources.log_columns(
        kafka.reader(
            spark,
            kafka.names.wal,
            both,
            tasks_for(spark, both.next_offset - both.first_offset),
            headers=True,
        )
    )
    sums = [
        frame.groupBy(F.floor(F.col("offset") / _CHUNK).alias("chunk")).agg(
            F.bit_xor(F.xxhash64("offset", "timestamp_ms", "key", "value", "schema")).alias(name)
        )
        for frame, name in (
            (archive.where(F.col("offset") >= both.first_offset), "archived"),
            (kept, "kept"),
        )
    ]
    differ = (
        sums[0]
        .join(sums[1], "chunk", "full_outer")
        .where(~F.col("archived").eqNullSafe(F.col("kept")))
        .select("chunk")
        .collect()
    )
    return sorted(
        (
            max(both.first_offset, chunk * _CHUNK),
            min(both.next_offset, (chunk + 1) * _CHUNK) - 1,
        )
        for (chunk,) in differ
    )
