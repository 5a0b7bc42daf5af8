"""`anabranch archive --list` and `--retire`: the archives that the log knows."""

from __future__ import annotations

import secrets
import socket
from contextlib import closing

import click

from anabranch.broker.settings import Settings
from anabranch.broker.startup import connect
from anabranch.channel.archives import ArchiveRegistry
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection, close_consumer
from anabranch.channel.kafka.topics import Topics, check_kafka
from anabranch.channel.log.kafka_log import offsets
from anabranch.channel.snapshots.compactor import archive_mark
from anabranch.cli.shared.output import table


def list_archives(settings: Settings) -> int:
    """Prints each with its beginning, its progress and the records that the log keeps for it."""
    connection, topics = _reached(settings)
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
    return 0


def retire_archive(settings: Settings, archive: str) -> int:
    """Lets the log forget an archive."""
    connection, topics = _reached(settings)
    with closing(_registry(connection, topics, settings)) as registry:
        registry.retire(archive)
        left = len(registry.read())
    click.echo(f"archive {archive} is retired: nothing is kept in the log for it any more")
    if not left:
        click.echo("no archive is left, so nothing is trimmed until there is one again", err=True)
    return 0


def _reached(settings: Settings) -> tuple[KafkaConnection, Topics]:
    connection = connect(settings)
    check_kafka(connection, KAFKA_S_MAX)  # a consumer does not hear that it is not let in
    return connection, Topics(settings.topic_prefix)


def _registry(connection: KafkaConnection, topics: Topics, settings: Settings) -> ArchiveRegistry:
    return ArchiveRegistry(
        connection,
        topics,
        f"cli@{socket.gethostname()}",
        lambda: secrets.token_hex(16),
        passed_over=settings.passed_over,
    )
