"""`anabranch log tail`: the log, decoded, with the verdict that every reader gives each record."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final

import click
import msgspec

from anabranch.broker.cli.api import json_lines_option
from anabranch.broker.cli.flags import collect, setting_flags
from anabranch.broker.startup import connect
from anabranch.channel.bootstrap import SnapshotReader
from anabranch.channel.codec import decode_entity
from anabranch.channel.connection import KafkaConnection, close_consumer
from anabranch.channel.errors import SnapshotLostError
from anabranch.channel.kafka_log import KafkaLogReader, offsets
from anabranch.channel.topics import Topics, check_kafka
from anabranch.core.errors import InvalidInputError
from anabranch.core.outcome import Folded
from anabranch.core.records import (
    ClusterSettings,
    Record,
    SessionChange,
    SubscriptionChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.replica import MemoryReplica
from anabranch.core.segments import SegmentInfo
from anabranch.core.state import Entity
from anabranch.core.topics import TopicMove

_BATCH_MAX: Final = 5_000
_POLL_S: Final = 0.25
_KAFKA_S_MAX: Final = 10.0
_LISTED_MAX: Final = 8


@click.group(epilog="Example: anabranch log tail --no-follow")
def log() -> None:
    """Read the log."""


@log.command(
    epilog="Example: anabranch log tail --bootstrap-servers localhost:9092 --from 0 --json"
)
@setting_flags
@click.option(
    "--from",
    "start",
    metavar="OFFSET",
    help="First offset to print, or `end` for new records only; the oldest there is if left.",
)
@click.option(
    "--follow/--no-follow", default=True, show_default=True, help="Whether to go on at the end."
)
@json_lines_option
def tail(start: str | None, follow: bool, as_json: bool, **given: Any) -> int:
    """Print the log's records, winners and losers, each with its verdict.

    Verdicts depend on all that came before, so the log is folded from its beginning, or from the
    snapshot where its beginning was trimmed, whatever --from says.
    """
    settings = collect(http_port=None, **given).load()
    connection = connect(settings)
    topics = Topics(settings.topic_prefix)
    check_kafka(connection, _KAFKA_S_MAX)  # a consumer does not hear that it is not let in
    probe = connection.consumer()
    try:
        first, end = offsets(connection, probe, topics.wal, _KAFKA_S_MAX)
    finally:
        close_consumer(probe, _KAFKA_S_MAX)
    replica = _replica(connection, topics, first)
    begin, note = shown_from(start, replica.next_offset, end)
    if note:
        click.echo(f"anabranch: {note}", err=True)
    try:
        for folded in _folded(connection, topics, replica, None if follow else end):
            if folded.offset >= begin:
                sys.stdout.write(_json(folded) if as_json else _line(folded))
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # the way to end it
    return 0


def shown_from(start: str | None, oldest: int, end: int) -> tuple[int, str]:
    """The first offset to print, and what to say about it, or "". Raises InvalidInputError.

    `oldest`: the first that can be judged; all before it is in the snapshot alone.
    """
    if start == "end":
        return end, ""
    if start is not None and not start.isdecimal():
        raise InvalidInputError(f"--from {start!r} is neither an offset nor `end`")
    first = 0 if start is None else int(start)
    if first > end:
        return first, f"--from {first} lies behind the end of the log, which is {end}"
    if first < oldest:
        return oldest, (
            f"what lies before offset {oldest} was trimmed or can no longer be judged; "
            "the archive has it"
        )
    return first, ""


def _replica(connection: KafkaConnection, topics: Topics, first_offset: int) -> MemoryReplica:
    """The state from which the verdicts of the rest follow."""
    replica = MemoryReplica()
    if first_offset == 0:
        return replica
    snapshot = SnapshotReader(connection, topics)
    entities: dict[str, Entity] = {}
    for batch in snapshot.batches():
        for key, value in batch:
            if value is None:
                entities.pop(key.decode(), None)
            else:
                entities[key.decode()] = decode_entity(value)
    if snapshot.horizon is None:
        raise SnapshotLostError(
            f"{topics.wal} begins at {first_offset} and {topics.snapshot} holds no snapshot: "
            "what the records before it did is not known, so no verdict is"
        )
    replica.load(entities.items(), snapshot.horizon.next_offset)
    return replica


def _folded(
    connection: KafkaConnection, topics: Topics, replica: MemoryReplica, end: int | None
) -> Iterator[Folded]:
    """Every entry from the replica's place on; up to an offset, or without end."""
    reader = KafkaLogReader(connection, topics.wal, replica.next_offset)
    try:
        while end is None or reader.next_offset < end:
            for entry in reader.poll(_BATCH_MAX, _POLL_S):
                yield replica.read(entry.record(), entry.offset, entry.timestamp_ms)
    finally:
        reader.close()


def _json(folded: Folded) -> str:
    record = folded.record
    shown = {
        "offset": folded.offset,
        "timestampMs": folded.timestamp_ms,
        "verdict": folded.outcome.verdict.name,
        "key": record.key if record else None,
        "type": type(record).__name__ if record else None,
        "record": _fields(record) if record else None,
    }
    return msgspec.json.encode(shown).decode() + "\n"


def _fields(record: Record) -> dict[str, Any]:
    """A record's fields; what is a number in the log is a name here."""
    return {name: _shown(value) for name, value in msgspec.structs.asdict(record).items()}


def _shown(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, SegmentInfo):
        return {name: _shown(each) for name, each in msgspec.structs.asdict(value).items()}
    return [_shown(each) for each in value] if isinstance(value, tuple) else value


def _line(folded: Folded) -> str:
    when = datetime.fromtimestamp(folded.timestamp_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    verdict = folded.outcome.verdict.name
    what = _sentence(folded.record) if folded.record else "bytes of no known schema"
    return f"{folded.offset:>8}  {when}  {verdict:<16}  {what}\n"


def _sentence(record: Record) -> str:
    match record:
        case UnitMove():
            target = f" to {record.broker}" if record.broker else ""
            parts = f" into {', '.join(record.children)}" if record.children else ""
            what = f"{record.move.name} {record.unit}{target}{parts}"
        case SessionChange():
            what = f"SESSION {record.op.name} {record.broker}"
        case ClusterSettings():
            what = f"CLUSTER {record.cluster}"
        case TopicChange():
            what = f"{record.move.name} {record.key}{_of_topic(record)}"
        case SubscriptionChange():
            who = f" {record.consumer}" if record.consumer else ""
            what = f"{record.op.name}{who} {record.key}{_listed(record.segment_ids)}"
        case _:
            what = f"{record.op.name} {record.key}"
    cause = getattr(record, "cause", None)
    why = f", {cause.name.lower()}" if cause is not None else ""
    return f"{what}  (version {record.version}, by {record.actor}{why})"


def _of_topic(record: TopicChange) -> str:
    """What a move is about: segments by descriptor or id."""
    into = ", ".join(part.descriptor for part in record.segments)
    match record.move:
        case TopicMove.CREATE:
            return (
                f" of {len(record.segments)} segments" if len(record.segments) > 4 else f" {into}"
            )
        case TopicMove.BEGIN:
            return f" {record.operation.name}{_listed(record.parents)} into {into}"
        case TopicMove.COMMIT:
            return f" with end offsets{_listed(record.end_offsets)}"
        case _:
            return _listed(record.segment_ids)


def _listed(numbers: Sequence[int]) -> str:
    shown = ",".join(str(number) for number in numbers[:_LISTED_MAX])
    return f" {shown}{',...' if len(numbers) > _LISTED_MAX else ''}" if numbers else ""
