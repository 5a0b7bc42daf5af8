"""`anabranch archive` and `anabranch audit`: the Spark jobs over the log, and its archives."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from anabranch.broker.node.startup import connect
from anabranch.broker.settings import Settings
from anabranch.broker.settings.overrides import setting_fault
from anabranch.channel.archives import ArchiveRegistry
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection, close_consumer
from anabranch.channel.kafka.topics import Topics, check_kafka
from anabranch.channel.log.kafka_log import offsets
from anabranch.channel.snapshots.compactor import archive_mark
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import report_flags, setting_flags, settings_of
from anabranch.cli.shared.numbers import NOT_NEGATIVE, Finite
from anabranch.cli.shared.output import table

if TYPE_CHECKING:  # its imports take a while
    from anabranch.spark_replay.spark.settings import SparkSettings

_AGAIN_S: Final = 0.05
_ARCHIVE_CONF: Final = {"spark.cores.max": "1"}  # the log is one partition; an archive never ends


_F = TypeVar("_F", bound=Callable[..., Any])
DIRECTORY_OR_URL: Final = "DIRECTORY|URL"


def spark_flags(command: _F) -> _F:
    """Adds the flags; the command takes them as `**given`, for `spark_settings_of`."""
    # `broker.settings.environment` reads the variables as no settings of a node.
    master = click.option(
        "--master",
        default="local[*]",
        envvar="ANABRANCH_SPARK_MASTER",
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Spark's master: local[CORES], this machine; or spark://HOST:PORT, a standalone "
        "cluster.",
    )
    conf = click.option(
        "--spark-conf",
        multiple=True,
        envvar="ANABRANCH_SPARK_CONF",
        show_envvar=True,
        metavar="NAME=VALUE",
        help="A setting of Spark, as spark.driver.memory=4g, or of Hadoop after spark.hadoop.; "
        "may be repeated.",
    )
    return master(conf(command))


def spark_settings_of(given: dict[str, Any], **defaults: str) -> SparkSettings:
    """Takes the flags of Spark out of `given`. `defaults`: settings that they may replace.

    Raises InvalidInputError.
    """
    from anabranch.spark_replay.spark.settings import SparkSettings

    conf = dict(defaults)
    for setting in given.pop("spark_conf"):
        name, sep, value = setting.partition("=")
        if not sep or not name.startswith("spark."):
            raise click.BadParameter(
                f"{setting!r} is not of the form spark.NAME=VALUE", param_hint="--spark-conf"
            )
        conf[name] = value
    return SparkSettings(given.pop("master"), conf)


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


def _connected(settings: Settings) -> KafkaConnection:
    """Returns a connection once Kafka has answered: neither Spark nor a consumer would tell a
    refusal's reason.
    """
    connection = connect(settings)
    check_kafka(connection, KAFKA_S_MAX)
    return connection


def _kafka(settings: Settings) -> dict[str, Any]:
    """Returns Spark's access to Kafka."""
    connection = _connected(settings)
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
    listed: bool,
    retire: str | None,
    **given: Any,
) -> int:
    """Copy the log to Parquet, each record exactly once, until stopped.

    May be killed at any time; the next run goes on where this one ended. The log knows each
    archive, and is trimmed only of records that all archives hold.

    Exit status 0: stopped, or done with --once, --list, --retire. 2: could not go on.
    """
    spark = spark_settings_of(given, **_ARCHIVE_CONF)
    settings = settings_of(**given)
    if (archive_dir is not None) + listed + (retire is not None) != 1:
        raise click.UsageError("give one of --archive-dir, --list and --retire")
    if archive_dir is None:
        return _list_archives(settings) if retire is None else _retire_archive(settings, retire)
    tidy_when_terminated()
    from anabranch.spark_replay.archive.folders import checked_place
    from anabranch.spark_replay.archive.writer import ArchiveOptions, run_archive

    options = ArchiveOptions(
        archive_dir=checked_place(archive_dir),
        once=once,
        interval_s=interval,
        passed_over=settings.passed_over,
        spark=spark,
        **_kafka(settings),
    )
    return run_archive(options)


def _list_archives(settings: Settings) -> int:
    """Prints each with its beginning, its progress and the records that the log keeps for it."""
    connection, topics = _connected(settings), Topics(settings.topic_prefix)
    with closing(_registry(connection, topics, settings)) as registry:
        found = registry.read()
    consumer = connection.consumer(isolation_level="read_uncommitted")
    try:
        _, end = offsets(connection, consumer, topics.wal, KAFKA_S_MAX)
    finally:
        close_consumer(consumer)
    if not found:
        click.echo("no archive is registered, so nothing is trimmed from the log", err=True)
    rows = []
    for archive, known in found.items():
        mark = archive_mark(connection, topics, archive)
        behind = end - (known.first_offset if mark is None else mark)
        until = "-" if mark is None else str(mark)
        rows.append((archive, known.place, str(known.first_offset), until, str(max(0, behind))))
    if rows:
        table(("ARCHIVE", "PLACE", "FROM", "UNTIL", "BEHIND"), rows)
    return ExitStatus.DONE


def _retire_archive(settings: Settings, archive: str) -> int:
    """Lets the log forget an archive."""
    connection, topics = _connected(settings), Topics(settings.topic_prefix)
    with closing(_registry(connection, topics, settings)) as registry:
        registry.retire(archive)
        left = len(registry.read())
    click.echo(f"archive {archive} is retired: nothing is kept in the log for it any more")
    if not left:
        click.echo("no archive is left, so nothing is trimmed until there is one again", err=True)
    return ExitStatus.DONE


def _registry(connection: KafkaConnection, topics: Topics, settings: Settings) -> ArchiveRegistry:
    return ArchiveRegistry(
        connection,
        topics,
        f"cli@{socket.gethostname()}",
        lambda: secrets.token_hex(16),
        passed_over=settings.passed_over,
    )


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
def audit(
    archive_dir: str | None,
    json_path: str,
    html_path: Path | None,
    stuck_after: float,
    orphaned_after: float,
    **given: Any,
) -> int:
    """Replay the whole log with Spark, archive and Kafka as one, and check every promise.

    Exit status 0: sound. 1: violations found. 2: could not run. 3: no violations, but a gap.
    """
    tidy_when_terminated()
    spark = spark_settings_of(given)
    settings = settings_of(**given)
    from anabranch.spark_replay.archive.folders import checked_place
    from anabranch.spark_replay.audit.run import AuditOptions, run_audit

    options = AuditOptions(
        archive_dir=None if archive_dir is None else checked_place(archive_dir),
        json_path=json_path,
        html_path=html_path,
        stuck_after_s=stuck_after,
        orphaned_after_s=orphaned_after,
        passed_over=settings.passed_over,
        setting_fault=setting_fault,
        spark=spark,
        **_kafka(settings),
    )
    return run_audit(options)
