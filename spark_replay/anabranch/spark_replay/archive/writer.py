"""The archive: the WAL as Parquet, each record exactly once, even if the writer is killed often.

Spark's Structured Streaming writes it. A batch's files count only once the sink's own log
(`_spark_metadata`) lists them. A batch that was cut short is written again under the same number.
The cluster is told the archive's end (`registration`), and the compactor trims the WAL up to there.
That is told late rather than early: only when a batch is in the sink's log, is committed in the
checkpoint, and is on the disk.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.core.errors import AnabranchError
from anabranch.jars.java import find_java
from anabranch.spark_replay.archive.contents import (
    CHECKPOINT,
    committed_batch,
    next_offset,
    offset_of,
    sound_files,
    sync_batches,
)
from anabranch.spark_replay.archive.folders import Folder, LocalFolder, Place, folder_at
from anabranch.spark_replay.archive.registration import ArchiveRegistration
from anabranch.spark_replay.sources import AuditError, LogOptions, log_columns
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.session import spark_session

STOPPED: Final = 0
COULD_NOT_RUN: Final = 2

_PUBLISH_EVERY_S: Final = 1.0
_RESTARTS_MAX: Final = 5  # in a row, without a batch in between
_log = structlog.get_logger(__name__)


class ArchiveOptions(LogOptions, frozen=True, kw_only=True):
    """The log to archive, and the place for it."""

    archive_dir: Place
    once: bool = False  # archive what is there, then end
    interval_s: float = 10.0  # between two batches
    batch_records_max: int = 500_000


def run_archive(options: ArchiveOptions) -> int:
    """Archives until SIGTERM, or once. Returns 0, or 2 if it could not go on."""
    try:
        find_java()
        kafka = options.source("archive")
        kafka.extent(kafka.names.wal)  # a clear message before Spark is started
        sys.stderr.write("archive: starting Spark\n")
        with spark_session("archive", options.scratch_dir, options.spark) as spark:
            if options.once:
                sys.stderr.write("archive: copying the log\n")
                until = archive_once(spark, options)
                sys.stdout.write(f"archived up to offset {until} in {options.archive_dir}\n")
            else:
                with _told_to_stop() as stop:
                    archive_until(spark, options, stop)
    except AnabranchError as error:
        sys.stderr.write(f"The archive could not go on: {error}\n")
        return COULD_NOT_RUN
    except OSError as error:
        where = error.filename or options.archive_dir  # an open file that is full names nothing
        sys.stderr.write(
            f"The archive could not go on: {where}: {error.strerror}; make room there or make it "
            "writable, then start it again: it goes on where it stopped\n"
        )
        return COULD_NOT_RUN
    return STOPPED


def archive_once(spark: SparkSession, options: ArchiveOptions) -> int:
    """Archives all that is there now. Returns the first offset that is not archived."""
    with _opened(spark, options) as archive:
        query = archive.start(spark, once=True)
        try:
            query.awaitTermination()
        except SPARK_ERRORS as error:
            raise AuditError(f"Spark failed: {cause(error)}") from error
        finally:
            query.stop()
        return archive.publish()


def archive_until(spark: SparkSession, options: ArchiveOptions, stop: threading.Event) -> None:
    """Archives until `stop` is set. Raises AnabranchError if Spark fails for good."""
    with _opened(spark, options) as archive:
        failures = 0
        while not stop.is_set():
            before = archive.publish()
            query = archive.start(spark, once=False)
            sys.stderr.write(f"archiving from offset {before} into {options.archive_dir}\n")
            try:
                while query.isActive and not stop.wait(_PUBLISH_EVERY_S):
                    archive.publish()
            finally:
                query.stop()
            reached = archive.publish()
            error = query.exception()
            if error is None or stop.is_set():
                continue
            failures = 1 if reached > before else failures + 1
            _log.warning("archive_failed", reason=cause(error), in_a_row=failures)
            if failures > _RESTARTS_MAX:
                raise AuditError(f"Spark failed: {cause(error)}") from error
            stop.wait(options.interval_s)


class ArchiveFolder:
    """One archive directory and its registration. `_opened` makes it."""

    def __init__(self, options: ArchiveOptions, folder: Folder) -> None:
        self._options = options
        self._folder = folder
        self._kafka = options.source("archive")
        self._topic = self._kafka.names.wal
        until = next_offset(self._folder)
        self._standing = ArchiveRegistration(self._kafka, self._folder, until, options.passed_over)
        self._first_offset = self._standing.first_offset
        if until is None and self._first_offset > 0:
            sys.stderr.write(
                f"{self._topic} begins at offset {self._first_offset}: this archive will "
                "not hold what came before\n"
            )
        if self._standing.is_new:
            sys.stderr.write(f"registered as archive {self._standing.id}: the log waits for it\n")
        self._synced = -1

    def start(self, spark: SparkSession, *, once: bool) -> StreamingQuery:
        """Starts to write at the place of the checkpoint."""
        stream = (
            spark.readStream.format("kafka")
            .options(**self._kafka.options())
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .option("maxOffsetsPerTrigger", self._options.batch_records_max)
            .load()
        )
        writer = (
            log_columns(stream)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{self._folder.url}/{CHECKPOINT}")
            .outputMode("append")
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._options.interval_s} seconds")
        return writer.start(self._folder.url)

    def publish(self) -> int:
        """Tells the cluster the archive's end, even if it is the same, and returns it.

        Raises AnabranchError if the archive is not registered any more.
        """
        batch = committed_batch(self._folder)
        if batch is not None and batch > self._synced and isinstance(self._folder, LocalFolder):
            sync_batches(self._folder, self._synced)
            self._synced = batch
        until = self._first_offset
        if batch is not None:
            until = offset_of(self._folder, batch)
        self._standing.tell(until)
        return until

    def close(self) -> None:
        """Ends the publishing."""
        self._standing.close()


@contextmanager
def _opened(spark: SparkSession, options: ArchiveOptions) -> Iterator[ArchiveFolder]:
    """Opens the archive, locked against a second writer."""
    folder = folder_at(options.archive_dir, spark)
    folder.make()
    with folder.locked():
        sound_files(folder)  # raises for a missing file before anything is written
        with closing(ArchiveFolder(options, folder)) as archive:
            yield archive


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Returns an event that SIGTERM sets. A Ctrl-C breaks off at once, as a kill does."""
    stop = threading.Event()
    former = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, former)
