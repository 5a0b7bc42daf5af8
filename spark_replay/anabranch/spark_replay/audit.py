"""The audit: replays the whole log in Spark with the core's rules and says whether it was sound."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from anabranch.channel.connection import KafkaConnection
from anabranch.channel.embedded.errors import EmbeddedError
from anabranch.channel.embedded.java import find_java
from anabranch.channel.topics import Topics
from anabranch.core.effects import BrokerState
from anabranch.core.errors import AnabranchError
from anabranch.spark_replay import sources
from anabranch.spark_replay.checks.digests import Claim
from anabranch.spark_replay.checks.offsets import Chunk
from anabranch.spark_replay.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.job import replayed
from anabranch.spark_replay.replay import Part, Plan, SchemaNeededError
from anabranch.spark_replay.report import output
from anabranch.spark_replay.report.html import page
from anabranch.spark_replay.report.summary import Log, Summary, summarized
from anabranch.spark_replay.report.table import table
from anabranch.spark_replay.segment_ends import ask_kafka
from anabranch.spark_replay.session import default_parallelism, local_session
from anabranch.spark_replay.sources import AuditError, Beat, Extent, KafkaSource, Snapshot
from anabranch.spark_replay.verdict import Context, Findings, judged

SOUND: Final = 0
VIOLATED: Final = 1
COULD_NOT_RUN: Final = 2

_CHUNK: Final = 10_000  # offsets that are counted or compared together
_RUNS_MAX: Final = 100_000  # stretches without a gap that are looked at
_SMALL: Final = 100_000  # records; below, more parts only cost their start
_ATTEMPTS_MAX: Final = 3
_BINS_MAX: Final = 240
_BINS_MS: Final = (1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000)


class AuditOptions(msgspec.Struct, frozen=True):
    """What to audit, what to hold against it, and where to report."""

    bootstrap_servers: str
    kafka_properties: Mapping[str, str] = {}
    topic_prefix: str = "anabranch."
    archive_dir: Path | None = None
    json_path: str = ""  # "-": standard output
    html_path: Path | None = None
    stuck_after_s: float = 120.0  # nodes repair after 30 s, at the next round of 60 s
    orphaned_after_s: float = 30.0
    clock_tolerance_s: float = 0.25  # of log timestamps, between topics and of clocks' rates
    flap_moves: int = 5
    flap_window_s: float = 60.0
    parts: int = 0  # 0: as many as the size and the machine ask for
    scratch_dir: Path | None = None


class _Gathered(msgspec.Struct, frozen=True):
    """The log and all that speaks of it, at one moment."""

    log: DataFrame
    archive: DataFrame | None
    archived: Extent | None
    wal: Extent
    snapshot: Snapshot
    beats: Sequence[Beat]
    first_offset: int
    from_snapshot: bool
    first_ms: int
    last_ms: int


def run_audit(options: AuditOptions) -> int:
    """Audits, reports as asked, and answers 0 (sound), 1 (violations) or 2 (could not run)."""
    try:
        find_java()
        kafka = _source(options)
        kafka.extent(kafka.names.wal)  # a clear message before Spark is started
        with local_session("anabranch audit", options.scratch_dir) as spark:
            summary = audit(spark, options)
        output.write(
            summary,
            lambda: table(summary),
            lambda: page(summary),
            options.json_path,
            options.html_path,
        )
    except (AnabranchError, EmbeddedError) as error:
        sys.stderr.write(f"The audit could not run: {error}\n")
        return COULD_NOT_RUN
    except OSError as error:
        sys.stderr.write(
            f"The audit could not write its report: {error.filename}: {error.strerror}\n"
        )
        return COULD_NOT_RUN
    return SOUND if summary.sound else VIOLATED


def audit(spark: SparkSession, options: AuditOptions) -> Summary:
    """The audit's result. Raises AnabranchError when it cannot be made, or nothing is replayed."""
    started = time.monotonic()
    kafka = _source(options)
    with_schemas = False  # few logs need them, and they are a good part of what is read
    for attempt in range(1, _ATTEMPTS_MAX + 2):
        gathered = _gather(spark, kafka, options, with_schemas=with_schemas)
        try:
            plan, findings = _examine(spark, kafka, gathered, options, with_schemas=with_schemas)
            break
        except SchemaNeededError:
            with_schemas = True
        except SPARK_ERRORS as error:
            # The WAL may be trimmed while it is read; the archive then has what is gone.
            moved = kafka.extent(kafka.names.wal).first_offset != gathered.wal.first_offset
            if not moved or attempt > _ATTEMPTS_MAX:
                raise AuditError(f"Spark failed: {cause(error)}") from error
        finally:
            gathered.snapshot.forget()
    archived = gathered.archived
    if gathered.from_snapshot and not findings.records:
        raise AuditError(
            f"nothing of {kafka.names.wal} can be replayed: its beginning is gone (it starts at "
            f"offset {gathered.wal.first_offset}), and nothing came after the snapshot, which "
            f"stands for offset {gathered.first_offset}; name the archive with --archive-dir, or "
            "come back when the log has grown"
        )
    log = Log(
        topic=kafka.names.wal,
        first_offset=gathered.first_offset,
        next_offset=gathered.wal.next_offset,
        archived_until=archived.next_offset if archived else -1,
        wal_from=gathered.wal.first_offset,
        from_snapshot=gathered.from_snapshot,
        first_ms=gathered.first_ms,
        last_ms=findings.log_end_ms,
        horizon=plan.horizon,
        heartbeats=len(gathered.beats),
    )
    return summarized(log, findings, plan.bin_ms, time.monotonic() - started)


def _source(options: AuditOptions) -> KafkaSource:
    connection = KafkaConnection(options.bootstrap_servers, options.kafka_properties, "audit")
    return KafkaSource(connection, Topics(options.topic_prefix))


# --- what there is --------------------------------------------------------------------------


def _gather(
    spark: SparkSession, kafka: KafkaSource, options: AuditOptions, *, with_schemas: bool
) -> _Gathered:
    """Asks in an order in which nothing speaks of what is asked for earlier."""
    tasks = default_parallelism()
    kafka.extent(kafka.names.wal)  # a clear message, not Spark's
    beats = sources.read_beats(spark, kafka)
    snapshot = sources.read_snapshot(spark, kafka, tasks)
    for _ in range(_ATTEMPTS_MAX):
        archive = sources.read_archive(spark, options.archive_dir)
        archived = sources.archive_extent(archive)
        wal = kafka.extent(kafka.names.wal)
        if archived is None or wal.first_offset <= archived.next_offset:
            break
    next_offset = max(wal.next_offset, archived.next_offset if archived else 0)
    tail_from = max(wal.first_offset, archived.next_offset if archived else 0)
    size = max(0, wal.next_offset - tail_from)
    tail = sources.log_columns(
        kafka.reader(
            spark,
            kafka.names.wal,
            Extent(min(tail_from, next_offset), next_offset),
            _tasks(size),
            headers=with_schemas,
        )
    )
    log = tail if archive is None or archived is None else archive.unionByName(tail)
    first_offset = archived.first_offset if archived else wal.first_offset
    from_snapshot = first_offset > 0
    if from_snapshot:
        first_offset = _beginning(snapshot, first_offset, kafka)
        log = log.where(F.col("offset") >= first_offset)
    return _Gathered(
        log,
        archive,
        archived,
        Extent(wal.first_offset, next_offset),
        snapshot,
        beats,
        first_offset,
        from_snapshot,
        *_times(spark, kafka, archive, archived, wal),
    )


def _beginning(snapshot: Snapshot, first_offset: int, kafka: KafkaSource) -> int:
    """The snapshot's horizon, from which a log without its beginning can be replayed."""
    if snapshot.horizon is None or snapshot.horizon.next_offset < first_offset:
        at = "there is none" if snapshot.horizon is None else f"at {snapshot.horizon.next_offset}"
        raise AuditError(
            f"{kafka.names.wal} begins at offset {first_offset}, and no snapshot stands for what "
            f"is gone ({at}): name the directory of the archive that holds the beginning"
        )
    return snapshot.horizon.next_offset


def _times(
    spark: SparkSession,
    kafka: KafkaSource,
    archive: DataFrame | None,
    archived: Extent | None,
    wal: Extent,
) -> tuple[int, int]:
    """The log's first and last timestamp, roughly: they decide how wide the plots' bins are."""
    found: list[int] = []
    if archive is not None and archived is not None:
        low, high = archive.agg(F.min("timestamp_ms"), F.max("timestamp_ms")).first() or (0, 0)
        found += [low, high]
    if wal.first_offset < wal.next_offset:
        for offset in (wal.first_offset, wal.next_offset - 1):
            one = kafka.reader(spark, kafka.names.wal, Extent(offset, offset + 1), 1)
            found += [row[0] for row in one.select(F.unix_millis("timestamp")).collect()]
    return (min(found), max(found)) if found else (0, 0)


def _tasks(records: int) -> int:
    cores = default_parallelism()
    return cores if records < _SMALL else 4 * cores


# --- what to make of it ---------------------------------------------------------------------


def _examine(
    spark: SparkSession,
    kafka: KafkaSource,
    gathered: _Gathered,
    options: AuditOptions,
    *,
    with_schemas: bool,
) -> tuple[Plan, Findings]:
    plan = _plan(gathered, options, with_schemas=with_schemas)
    parts = replayed(spark, gathered.log, gathered.snapshot.rows, plan)
    beats = gathered.beats
    last_beats_ms: dict[str, int] = {}
    for beat in beats:
        last_beats_ms[beat.beat.broker] = max(beat.log_ms, last_beats_ms.get(beat.beat.broker, 0))
    context = Context(
        first_offset=gathered.first_offset,
        horizon=gathered.snapshot.horizon,
        claims=_claims(beats),
        last_beats_ms=last_beats_ms,
        chunks=_chunks(gathered, parts, plan),
        disagreements=_disagreements(spark, kafka, gathered),
        stuck_after_ms=round(options.stuck_after_s * 1000),
        orphaned_after_ms=round(options.orphaned_after_s * 1000),
        segment_ends=lambda left: ask_kafka(kafka.connection, kafka.names.prefix, left),
    )
    return plan, judged(parts, plan, context)


def _claims(beats: Sequence[Beat]) -> list[Claim]:
    """Each thing that a node said, once, however often it said it."""
    found = {
        Claim(beat.beat.broker, beat.beat.next_offset, beat.beat.digest): None for beat in beats
    }
    return list(found)


def _plan(gathered: _Gathered, options: AuditOptions, *, with_schemas: bool) -> Plan:
    first, end = gathered.first_offset, gathered.wal.next_offset
    offsets = {beat.beat.next_offset for beat in gathered.beats}
    times: dict[str, list[int]] = {}
    for beat in gathered.beats:
        # A node in safe mode says itself that its lease has lapsed: no sign of life.
        if beat.beat.state != BrokerState.SAFE.value:
            name = f"{beat.beat.broker} {beat.beat.session}"
            times.setdefault(name, []).append(beat.log_ms)
    horizon = gathered.snapshot.horizon
    size = end - first
    return Plan(
        parts=options.parts or _tasks(size),
        next_offset=end,
        horizon=horizon.next_offset if horizon else -1,
        from_snapshot=gathered.from_snapshot,
        checkpoints=tuple(sorted(offset for offset in offsets if first <= offset <= end)),
        beats={name: sorted(one) for name, one in times.items()},
        bin_ms=_bin_ms(gathered.last_ms - gathered.first_ms),
        tolerance_ms=round(options.clock_tolerance_s * 1000),
        flap_moves=options.flap_moves,
        flap_window_ms=round(options.flap_window_s * 1000),
        with_schemas=with_schemas,
    )


def _bin_ms(span_ms: int) -> int:
    """The width of the plots' bins: a round number that gives not too many of them."""
    for width in _BINS_MS:
        if span_ms <= width * _BINS_MAX:
            return width
    minutes = -(-span_ms // (_BINS_MAX * 60_000))
    return minutes * 60_000


def _chunks(gathered: _Gathered, parts: Sequence[Part], plan: Plan) -> list[Chunk] | None:
    """Where the log has holes; None when the replay has counted every offset once."""
    expected = plan.next_offset - gathered.first_offset
    whole = sum(part.records for part in parts) == expected
    if whole and not any(part.repeated for part in parts):
        return None
    # Runs of offsets without a gap: within one, offset less rank is the same.
    order = Window.partitionBy(F.floor(F.col("offset") / _CHUNK)).orderBy("offset")
    runs = gathered.log.select(
        "offset", (F.col("offset") - F.dense_rank().over(order)).alias("run")
    )
    rows = (
        runs.groupBy(F.floor(F.col("offset") / _CHUNK), "run")
        .agg(F.min("offset"), F.max("offset"), F.count(F.lit(1)), F.count_distinct(F.col("offset")))
        .orderBy(F.min("offset"))
        .limit(_RUNS_MAX)
        .collect()
    )
    return [Chunk(low, high, count, distinct) for _, _, low, high, count, distinct in rows]


def _disagreements(
    spark: SparkSession, kafka: KafkaSource, gathered: _Gathered
) -> list[tuple[int, int]]:
    """The stretches of offsets that archive and WAL both hold, and differ in."""
    archive, archived, wal = gathered.archive, gathered.archived, gathered.wal
    if archive is None or archived is None or wal.first_offset >= archived.next_offset:
        return []
    both = Extent(wal.first_offset, archived.next_offset)
    kept = sources.log_columns(
        kafka.reader(
            spark,
            kafka.names.wal,
            both,
            _tasks(both.next_offset - both.first_offset),
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
