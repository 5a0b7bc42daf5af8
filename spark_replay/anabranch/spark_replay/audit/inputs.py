"""The log and all that speaks of it, read by the audit at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.spark_replay import sources
from anabranch.spark_replay.archive.contents import archive_extent, read_archive
from anabranch.spark_replay.archive.folders import Place
from anabranch.spark_replay.sources import (
    AuditError,
    Extent,
    KafkaSource,
    Snapshot,
    StampedHeartbeat,
)

_ATTEMPTS_MAX: Final = 3
_SMALL: Final = 100_000  # records; below, more parts only cost their start


class AuditInputs(msgspec.Struct, frozen=True):
    """The log and all that speaks of it, at one moment."""

    log: DataFrame
    archive: DataFrame | None
    archived: Extent | None
    wal: Extent
    snapshot: Snapshot
    beats: Sequence[StampedHeartbeat]
    strange_beats: int
    first_offset: int
    from_snapshot: bool
    first_ms: int
    last_ms: int
    gap: Extent | None = None  # offsets between archive and WAL, which neither holds


def gather(
    spark: SparkSession, kafka: KafkaSource, archive_dir: Place | None, *, with_schemas: bool
) -> AuditInputs:
    """Reads all inputs, in an order in which nothing speaks of what is asked for earlier.

    Raises AuditError, and Spark's errors if the WAL is trimmed meanwhile.
    """
    tasks = spark.sparkContext.defaultParallelism
    beats = sources.read_beats(spark, kafka)
    snapshot = sources.read_snapshot(spark, kafka, tasks)
    try:
        return _with_log(spark, kafka, archive_dir, snapshot, beats, with_schemas=with_schemas)
    except BaseException:
        snapshot.forget()
        raise


def _with_log(
    spark: SparkSession,
    kafka: KafkaSource,
    archive_dir: Place | None,
    snapshot: Snapshot,
    beats: tuple[Sequence[StampedHeartbeat], int],
    *,
    with_schemas: bool,
) -> AuditInputs:
    for _ in range(_ATTEMPTS_MAX):
        archive = read_archive(spark, archive_dir)
        archived = archive_extent(archive)
        wal = kafka.extent(kafka.names.wal)
        if archived is None or wal.first_offset <= archived.next_offset:
            break
    gap = None
    if archived is not None and wal.first_offset > archived.next_offset:
        gap = Extent(archived.next_offset, wal.first_offset)
        archive = archived = None  # only what follows the gap is judged
    next_offset = max(wal.next_offset, archived.next_offset if archived else 0)
    tail_from = max(wal.first_offset, archived.next_offset if archived else 0)
    size = max(0, wal.next_offset - tail_from)
    tail = sources.log_columns(
        kafka.reader(
            spark,
            kafka.names.wal,
            Extent(min(tail_from, next_offset), next_offset),
            tasks_for(spark, size),
            headers=with_schemas,
        )
    )
    log = tail if archive is None or archived is None else archive.unionByName(tail)
    first_offset = archived.first_offset if archived else wal.first_offset
    from_snapshot = first_offset > 0
    if from_snapshot:
        first_offset = _beginning(snapshot, first_offset, kafka)
        log = log.where(F.col("offset") >= first_offset)
    return AuditInputs(
        log,
        archive,
        archived,
        Extent(wal.first_offset, next_offset),
        snapshot,
        *beats,
        first_offset,
        from_snapshot,
        *_times(spark, kafka, archive, archived, wal),
        gap,
    )


def _beginning(snapshot: Snapshot, first_offset: int, kafka: KafkaSource) -> int:
    """Returns the snapshot's horizon, from which a log without its beginning can be replayed."""
    if snapshot.horizon is None or snapshot.horizon.next_offset < first_offset:
        at = "there is none" if snapshot.horizon is None else f"at {snapshot.horizon.next_offset}"
        raise AuditError(
            f"{kafka.names.wal} begins at offset {first_offset}, and no snapshot stands for what "
            f"is gone ({at}): name the directory of an archive that holds the beginning"
        )
    return snapshot.horizon.next_offset


def _times(
    spark: SparkSession,
    kafka: KafkaSource,
    archive: DataFrame | None,
    archived: Extent | None,
    wal: Extent,
) -> tuple[int, int]:
    """Returns the log's first and last timestamp, roughly.
    They decide the width of the plots' bins.
    """
    found: list[int] = []
    if archive is not None and archived is not None:
        low, high = archive.agg(F.min("timestamp_ms"), F.max("timestamp_ms")).first() or (0, 0)
        found += [low, high]
    if wal.first_offset < wal.next_offset:
        for offset in (wal.first_offset, wal.next_offset - 1):
            one = kafka.reader(spark, kafka.names.wal, Extent(offset, offset + 1), 1)
            found += [row[0] for row in one.select(F.unix_millis("timestamp")).collect()]
    return (min(found), max(found)) if found else (0, 0)


def tasks_for(spark: SparkSession, records: int) -> int:
    """Returns the number of tasks for so many records."""
    cores = spark.sparkContext.defaultParallelism
    return cores if records < _SMALL else 4 * cores
