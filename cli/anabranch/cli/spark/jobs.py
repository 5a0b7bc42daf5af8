"""`anabranch archive` and `anabranch audit`: the Spark jobs over the log."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from anabranch.broker.settings import Settings
from anabranch.broker.settings.overrides import setting_fault
from anabranch.channel.kafka.connection import KAFKA_S_MAX
from anabranch.cli.shared.flags import report_flags, setting_flags, settings_of
from anabranch.cli.shared.numbers import NOT_NEGATIVE, Finite
from anabranch.cli.spark.flags import (
    DIRECTORY_OR_URL,
    place_of_archive,
    spark_flags,
    spark_settings_of,
)

_AGAIN_S: Final = 0.05
_ARCHIVE_CORES: Final = 1  # the log is one partition, and an archive never ends


def tidy_when_terminated() -> None:
    """Makes SIGTERM end the command as Ctrl-C does, which leaves no files of Spark's behind.

    The bridge to Spark (py4j) logs a trace of the error that interrupts a call, and raises it as
    well. It logs another trace if Spark's process has ended before it.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, _interrupt)
    logging.getLogger().addFilter(_tells_more_than_that_it_was_interrupted)
    sys.unraisablehook = _interrupt_again


def _tells_more_than_that_it_was_interrupted(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    raise KeyboardInterrupt


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """Sends the signal once more if it came while Python ran a finalizer, where it is dropped."""
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True
    again.start()


def _kafka(settings: Settings) -> dict[str, Any]:
    """Returns Spark's access to Kafka, once Kafka has answered: Spark would not tell a refusal's
    reason.
    """
    from anabranch.broker.startup import connect
    from anabranch.channel.kafka.topics import check_kafka

    connection = connect(settings)
    check_kafka(connection, KAFKA_S_MAX)
    return {
        "bootstrap_servers": connection.bootstrap_servers,
        "kafka_properties": connection.security,
        "topic_prefix": settings.topic_prefix,
    }


@click.command(
    epilog="Example: anabranch archive --bootstrap-servers localhost:9092 --archive-dir /srv/river"
)
@setting_flags
@spark_flags
@click.option(
    "--archive-dir",
    metavar=DIRECTORY_OR_URL,
    help="Directory of the Parquet: a path, or any URL that Hadoop knows.",
)
@click.option("--once", is_flag=True, help="Archive the present records, then end.")
@click.option(
    "--interval",
    default=10.0,
    show_default=True,
    type=Finite(0.1),
    help="Seconds between two looks at the log.",
)
@click.option(
    "--loads",
    is_flag=True,
    help="Archive segments' loads, for `backtest`, not the log; in a directory of its own.",
)
@click.option(
    "--list", "listed", is_flag=True, help="Show the archives that the log knows, and how far."
)
@click.option(
    "--retire",
    metavar="ID",
    help="Let the log forget an archive that is gone for good: nothing is kept for it any more.",
)
def archive(
    archive_dir: str | None,
    once: bool,
    interval: float,
    loads: bool,
    listed: bool,
    retire: str | None,
    **given: Any,
) -> int:
    """Copy the log to Parquet, each record exactly once, until stopped.

    May be killed at any time; the next run goes on where this one ended. The log knows each
    archive, and is trimmed only of records that all archives hold.

    Exit status 0: stopped, or done with --once, --list, --retire. 2: could not go on.
    """
    spark = spark_settings_of(given, cores=_ARCHIVE_CORES)
    settings = settings_of(**given)
    if (archive_dir is not None) + listed + (retire is not None) != 1:
        raise click.UsageError("give one of --archive-dir, --list and --retire")
    if archive_dir is None:
        from anabranch.cli.spark.archives import list_archives, retire_archive

        return list_archives(settings) if retire is None else retire_archive(settings, retire)
    tidy_when_terminated()
    from anabranch.spark_replay.archive.writer import ArchiveOptions, run_archive

    options = ArchiveOptions(
        archive_dir=place_of_archive(archive_dir),
        loads=loads,
        once=once,
        interval_s=interval,
        passed_over=settings.passed_over,
        spark=spark,
        **_kafka(settings),
    )
    return run_archive(options)


@click.command(
    epilog="Example: anabranch audit --bootstrap-servers localhost:9092 --archive-dir /srv/river "
    "--html audit.html"
)
@setting_flags
@spark_flags
@click.option(
    "--archive-dir",
    metavar=DIRECTORY_OR_URL,
    help="The archive's Parquet, if there is one.",
)
@report_flags
@click.option(
    "--stuck-after",
    default=120.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Seconds that a bundle may be on the move.",
)
@click.option(
    "--orphaned-after",
    default=30.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Seconds that a bundle may belong to a broker whose session is over.",
)
@click.option(
    "--who",
    default="",
    metavar="ROLE",
    help="Also tell what this role was allowed, did, and passed on as a proxy, by offset and time.",
)
def audit(
    archive_dir: str | None,
    json_path: str,
    html_path: Path | None,
    stuck_after: float,
    orphaned_after: float,
    who: str,
    **given: Any,
) -> int:
    """Replay the whole log with Spark, archive and Kafka as one, and check every promise.

    Exit status 0: sound. 1: violations found. 2: could not run. 3: no violations, but a gap.
    """
    tidy_when_terminated()
    spark = spark_settings_of(given)
    settings = settings_of(**given)
    from anabranch.spark_replay.audit.run import AuditOptions, run_audit

    options = AuditOptions(
        archive_dir=None if archive_dir is None else place_of_archive(archive_dir),
        json_path=json_path,
        html_path=html_path,
        stuck_after_s=stuck_after,
        orphaned_after_s=orphaned_after,
        passed_over=settings.passed_over,
        setting_fault=setting_fault,
        who=who,
        spark=spark,
        **_kafka(settings),
    )
    return run_audit(options)
