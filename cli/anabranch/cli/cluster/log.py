"""`anabranch log tail`: the log, decoded, with the verdict that every reader gives each record."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from itertools import chain
from typing import Any, Final

import click
import msgspec

from anabranch.broker.node.startup import connect
from anabranch.broker.settings import Settings
from anabranch.broker.snapshots.replayed import log_bounds, state_before
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import Entry, read_until
from anabranch.channel.log.kafka_log import KafkaLogReader
from anabranch.cli.shared.api import json_lines_option
from anabranch.cli.shared.command import CommandGroup
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import setting_flags, settings_of
from anabranch.cli.shared.terminal import escaped
from anabranch.cli.topics.words import count_of
from anabranch.core.entities.topic import TopicMove
from anabranch.core.errors import InvalidInputError
from anabranch.core.fold.replica import MemoryReplica
from anabranch.core.log.records import (
    ClusterSettings,
    PermissionChange,
    Record,
    SessionChange,
    SubscriptionChange,
    TopicChange,
    UnitMove,
)
from anabranch.core.log.verdicts import Verdict
from anabranch.core.security.changes import asker_of

_BATCH_MAX: Final = 5_000
_POLL_S: Final = 0.25
_LISTED_MAX: Final = 8


@click.group(cls=CommandGroup)
def log() -> None:
    """Read the log.

    Example: anabranch log tail --no-follow
    """


@log.command()
@setting_flags
@click.option(
    "--from",
    "start",
    metavar="OFFSET",
    help="First offset to print, or `end` for new records only; the oldest there is if left.",
)
@click.option("--follow/--no-follow", default=True, help="Go on at the end of the log, or not.")
@json_lines_option
def tail(start: str | None, follow: bool, as_json: bool, **given: Any) -> int:
    """Print the log's records, winners and losers, each with its verdict.

    Verdicts depend on all earlier records. So the command folds the log from its beginning whatever
    --from says, or from the snapshot if its beginning was trimmed. Records that the log still holds
    from before that snapshot have no verdict (`?`, or null).

    Example: anabranch log tail --bootstrap-servers localhost:9092 --from 0 --json
    """
    try:
        for shown in lines(settings_of(**given), start, follow=follow):
            sys.stdout.write(_json(shown) if as_json else _line(shown))
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # the way to end it
    return ExitStatus.DONE


class LogLine(msgspec.Struct, frozen=True):
    """A line: an entry of the log and, where that is known, its verdict."""

    offset: int
    timestamp_ms: int
    record: Record | None
    verdict: Verdict | None


def lines(settings: Settings, start: str | None, *, follow: bool) -> Iterator[LogLine]:
    """The log from an offset or `end`, to its end or for ever; notes on it go to standard error."""
    connection = connect(settings)
    topics = Topics(settings.topic_prefix)
    first, end = log_bounds(connection, topics)
    replica = state_before(connection, topics, first)
    begin, notes = shown_from(start, first, replica.next_offset, end)
    for note in notes:
        click.echo(f"anabranch: {note}", err=True)
    reader = KafkaLogReader(
        connection,
        topics.wal,
        max(first, min(begin, replica.next_offset)),
        passed_over=settings.passed_over,
        to_end=not follow,
    )
    entries = (
        _endless(reader)
        if follow
        else read_until(reader, end, lambda: connection.unreachable(f"to read {topics.wal}"))
    )
    try:
        for shown in _judged(chain.from_iterable(entries), replica):
            if shown.offset >= begin:
                yield shown
    finally:
        reader.close()


def shown_from(start: str | None, first: int, judged: int, end: int) -> tuple[int, list[str]]:
    """Returns the first offset to print, and notes on it. Raises InvalidInputError.

    `first`: the first offset that the log holds. `judged`: the offset at which verdicts begin,
    because the snapshot stands for all before it.
    """
    if start == "end":
        return end, []
    if start is not None and not start.isdecimal():
        raise InvalidInputError(f"--from {start!r} is neither an offset nor `end`")
    asked = 0 if start is None else int(start)
    if asked > end:
        return asked, [f"--from {asked} lies behind the end of the log, which is {end}"]
    notes = []
    if asked < first:
        notes.append(f"the log begins at offset {first}: earlier records were trimmed")
    begin = max(asked, first)
    if begin < judged:
        notes.append(
            f"offsets {begin} to {judged - 1} are shown without verdicts: these depend on what was "
            f"trimmed, and the snapshot, from which they are known, stands for offset {judged}"
        )
    return begin, notes


def _endless(reader: KafkaLogReader) -> Iterator[list[Entry]]:
    """Yields the entries that come, until somebody ends it."""
    while True:
        yield reader.poll(_BATCH_MAX, _POLL_S)


def _judged(entries: Iterable[Entry], replica: MemoryReplica) -> Iterator[LogLine]:
    """Yields each entry with its verdict; only the verdict on bytes of no schema needs no state."""
    for entry in entries:
        record = entry.record()
        verdict = Verdict.UNREADABLE if record is None else None
        if entry.offset >= replica.next_offset:
            verdict = replica.read(record, entry.offset, entry.timestamp_ms).outcome.verdict
        yield LogLine(entry.offset, entry.timestamp_ms, record, verdict)


def _json(shown: LogLine) -> str:
    record = shown.record
    fields = {
        "offset": shown.offset,
        "timestampMs": shown.timestamp_ms,
        "verdict": shown.verdict.name if shown.verdict is not None else None,
        "key": record.key if record else None,
        "type": type(record).__name__ if record else None,
        "record": _fields(record) if record else None,
    }
    return msgspec.json.encode(fields).decode() + "\n"


def _fields(record: Record) -> dict[str, Any]:
    """Returns a record's fields, with names in place of the log's numbers."""
    return {name: _shown(value) for name, value in msgspec.structs.asdict(record).items()}


def _shown(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, msgspec.Struct):
        return {name: _shown(each) for name, each in msgspec.structs.asdict(value).items()}
    return [_shown(each) for each in value] if isinstance(value, tuple) else value


def _line(shown: LogLine) -> str:
    when = datetime.fromtimestamp(shown.timestamp_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    verdict = shown.verdict.name if shown.verdict is not None else "?"
    what = sentence(shown.record) if shown.record else "bytes of no known schema"
    return f"{shown.offset:>8}  {when}  {verdict:<16}  {escaped(what)}\n"


def sentence(record: Record) -> str:
    """Says in words what a record asks for."""
    match record:
        case UnitMove():
            target = f" to {record.broker}" if record.broker else ""
            parts = f" into {', '.join(record.children)}" if record.children else ""
            what = f"{record.move.name} {record.unit}{target}{parts}{_grounds(record)}"
        case SessionChange():
            what = f"SESSION {record.op.name} {record.broker}"
        case ClusterSettings():
            what = f"CLUSTER {record.cluster}"
        case TopicChange():
            what = f"{record.move.name} {record.key}{_of_topic(record)}"
        case PermissionChange():
            granted = ", ".join(record.actions)
            given = f"GRANT {granted} to" if granted else "REVOKE from"
            what = f"{given} {record.role} on {record.scope}"
        case SubscriptionChange():
            who = f" {record.consumer}" if record.consumer else ""
            what = f"{record.op.name}{who} {record.key}{_listed(record.segment_ids)}"
        case _:
            what = f"{record.op.name} {record.key}"
    cause = getattr(record, "cause", None)
    why = f", {cause.name.lower()}" if cause is not None else ""
    asker = asker_of(record)
    who = f" for {asker.role}" if asker.role else ""
    if asker.proxied_by:
        who += f" through {asker.proxied_by}"
    return f"{what}  (version {record.version}, by {record.actor}{who}{why})"


def _grounds(record: UnitMove) -> str:
    """Says in short why the load balancer chose so."""
    for made in record.choice:
        weighed = [each for each in made.weighed if not each.removed_by]
        named = next((each.load for each in weighed if each.broker == record.broker), -1.0)
        load = f", load {named:.2f}" if named >= 0 else ""
        deviation = f", deviation {made.deviation:.2f}" if made.deviation >= 0 else ""
        predicted = f" to {made.predicted:.2f}" if deviation and made.predicted >= 0 else ""
        brokers = f" among {count_of(made.brokers, 'broker')}" if made.brokers else ""  # no split
        return f"{brokers}: {made.rule}{load}{deviation}{predicted}"
    return ""


def _of_topic(record: TopicChange) -> str:
    """Says which segments a move is about, by descriptor or id."""
    into = ", ".join(part.descriptor for part in record.segments)
    match record.move:
        case TopicMove.CREATE:
            return (
                f" of {len(record.segments)} segments" if len(record.segments) > 4 else f" {into}"
            )
        case TopicMove.BEGIN:
            lost = f", lost before{_listed(record.end_offsets)}" if record.end_offsets else ""
            return f" {record.operation.name}{_listed(record.parents)} into {into}{lost}"
        case TopicMove.LOST:
            return f"{_listed(record.segment_ids)} before{_listed(record.end_offsets)}"
        case TopicMove.COMMIT:
            return f" with end offsets{_listed(record.end_offsets)}"
        case _:
            return _listed(record.segment_ids)


def _listed(numbers: Sequence[int]) -> str:
    shown = ",".join(str(number) for number in numbers[:_LISTED_MAX])
    return f" {shown}{',...' if len(numbers) > _LISTED_MAX else ''}" if numbers else ""
