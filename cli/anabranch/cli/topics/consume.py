"""`anabranch topics consume`: messages become lines."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import click
import msgspec

from anabranch.cli.shared.api import json_lines_option, url_option
from anabranch.cli.shared.numbers import POSITIVE
from anabranch.cli.shared.output import said_as, shown
from anabranch.cli.shared.terminal import print_data
from anabranch.cli.topics.sdk import (
    client_options,
    open_client,
    run_stoppable,
    selected,
    unless_stopped,
)
from anabranch.client import (
    Checkpoint,
    CheckpointConsumer,
    Client,
    DeadlineError,
    Message,
    QueueConsumer,
    QueueTopicsConsumer,
    StreamConsumer,
    StreamTopicsConsumer,
    TopicSelection,
)
from anabranch.core.errors import InvalidInputError

_BATCH_MAX: Final = 1_000
_SAVE_S: Final = 0.5  # at most so much is received again after a crash
_TOLD_MAX: Final = 10
_QUIET: Final = 3  # exit status: nothing came for as long as may be waited
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


class _Reader(Protocol):
    """One kind of consumer, as this command uses it."""

    async def read(self, most: int, wait_s: float | None) -> Iterable[Message]:
        """Returns the messages that have come. Raises DeadlineError if none comes in that time."""
        ...

    async def done(self) -> None:
        """Takes note that all messages read so far have been printed."""
        ...

    async def close(self) -> None: ...


@click.command(
    epilog="Example: anabranch topics consume public/default/orders --subscription billing --max 10"
)
@click.argument("topic", required=False)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="In place of TOPIC: all whose name in the namespace matches, those to come included.",
)
@click.option(
    "--namespace",
    help="Namespace of --pattern and --property, public/default if left; alone: all its topics.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="In place of TOPIC: all that were created with it; give several for all of them.",
)
@click.option("--subscription", required=True, help="Made, from the first message on, if needed.")
@click.option("--name", default="", help="Name of this consumer; it keeps its share for a minute.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(("stream", "queue", "checkpoint")),
    default="stream",
    show_default=True,
    help="Type of the subscription. stream: in order by key, positions in Kafka. queue: each "
    "message to any consumer. checkpoint: in order, positions in a file.",
)
@click.option(
    "--checkpoint", "file", type=_FILE, help="Begin at the positions in it, if it is there."
)
@click.option("--max", "most", type=click.IntRange(1), help="End after that many messages.")
@click.option(
    "--timeout",
    "wait_s",
    type=POSITIVE,
    metavar="SECONDS",
    help="End with status 3 when nothing came for that time.",
)
@click.option("--raw", is_flag=True, help="Escape no control characters on a terminal.")
@client_options
@url_option
@json_lines_option
def consume(
    topic: str | None,
    pattern: str | None,
    namespace: str | None,
    properties: tuple[str, ...],
    subscription: str,
    name: str,
    kind: str,
    file: Path | None,
    most: int | None,
    wait_s: float | None,
    raw: bool,
    service_url: str | None,
    kafka_properties: Path | None,
    url: str,
    as_json: bool,
) -> int:
    """Print the messages of TOPIC, each with its place: SEGMENT/BUCKET@OFFSET, key and value.

    A message without key or value has - there; --json tells that from a value of -.

    With --pattern, --namespace or --property each message has its topic before that.

    Several commands with one --subscription share the messages. The command acknowledges the
    messages that it has printed. It goes on until --max, --timeout or Ctrl-C, and gives this
    consumer's share to the others at once. With --json, a key or value that is no UTF-8 is in
    keyBase64 or valueBase64 too, and a header's content behind its text. `anabranch topics produce
    --from-json` takes that.

    Exit status 0: --max. 1: refused. 2: could not go on. 3: --timeout.
    """
    if (kind == "checkpoint") != (file is not None):
        raise click.UsageError("--type checkpoint and --checkpoint FILE go together")
    chosen = _selected(topic, pattern, namespace, properties)
    if chosen is not None and kind == "checkpoint":
        raise click.UsageError("--type checkpoint is for one TOPIC; the SDK has it for many")
    is_named = chosen is not None
    line = functools.partial(print_line, named=is_named, raw=raw)
    show = functools.partial(print_json, named=is_named) if as_json else line
    known = stored(file) if file and file.exists() else None

    async def main(stopping: asyncio.Event) -> DeadlineError | None:
        async with open_client(topic, url, service_url, kafka_properties) as client:
            who = subscription, name
            reader: _Reader
            if chosen is not None:
                reader = await _of_many(client, chosen, kind, who)
            elif topic is not None:
                reader = await _of_one(client, topic, kind, who, file, known)
            quiet = await _print_all(reader, most, wait_s, show, stopping)
            await reader.close()
            return quiet

    quiet = run_stoppable(main)
    if quiet is not None:
        click.echo(f"anabranch: {quiet}", err=True)
    return 0 if quiet is None else _QUIET


def _selected(
    topic: str | None, pattern: str | None, namespace: str | None, properties: tuple[str, ...]
) -> TopicSelection | None:
    """Returns the selection that is consumed in place of one topic, if there is one.

    Raises InvalidInputError, UsageError.
    """
    is_selection = pattern is not None or namespace is not None or bool(properties)
    if is_selection == (topic is not None):
        raise click.UsageError("give a TOPIC, or some of --pattern, --namespace and --property")
    if not is_selection:
        return None
    return selected(namespace, pattern, properties)


async def _of_many(
    client: Client, chosen: TopicSelection, kind: str, who: tuple[str, str]
) -> _Reader:
    if kind == "queue":
        queue = await client.subscribe_queue_topics(chosen, *who)
        tell_what_is_missing(chosen, queue.topics, queue.failing)
        return _Queue(queue)
    stream = await client.subscribe_topics(chosen, *who)
    tell_what_is_missing(chosen, stream.topics, stream.failing)
    return _Stream(stream)


def tell_what_is_missing(
    chosen: TopicSelection, topics: Sequence[str], failing: Mapping[str, str]
) -> None:
    """Says at the beginning why nothing may come: else a wrong name would look like silence."""
    for topic, why in sorted(failing.items())[:_TOLD_MAX]:
        click.echo(f"anabranch: {topic} is tried again, and not consumed for now: {why}", err=True)
    if len(failing) > _TOLD_MAX:
        click.echo(f"anabranch: so are {len(failing) - _TOLD_MAX} more", err=True)
    if not topics and not failing:
        click.echo(
            f"anabranch: there is no topic {chosen} yet; waiting for those to come", err=True
        )


async def _of_one(
    client: Client,
    topic: str,
    kind: str,
    who: tuple[str, str],
    file: Path | None,
    known: Checkpoint | None,
) -> _Reader:
    if kind == "queue":
        return _Queue(await client.subscribe_queue(topic, *who))
    if file is None:
        return _Stream(await client.subscribe(topic, *who))
    return _Saved(await client.subscribe_checkpoint(topic, *who, checkpoint=known), file, known)


async def _print_all(
    reader: _Reader,
    most: int | None,
    wait_s: float | None,
    show: Callable[[Message], None],
    stopping: asyncio.Event,
) -> DeadlineError | None:
    """Until so many, or until it is stopped; or until nothing comes, which is returned."""
    left = most
    while left != 0:
        part = _BATCH_MAX if left is None else min(left, _BATCH_MAX)
        try:
            messages = await unless_stopped(reader.read(part, wait_s), stopping)
        except DeadlineError as quiet:
            return quiet
        if messages is None:
            break
        for message in messages:
            show(message)
            left = None if left is None else left - 1
        await reader.done()
    return None


def stored(file: Path) -> Checkpoint:
    """Returns an earlier run's checkpoint. Raises InvalidInputError, which names the file."""
    try:
        return Checkpoint.from_json(file.read_bytes())
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{file}: {error}; delete it to begin at the first message again"
        ) from error


class _Stream:
    def __init__(self, consumer: StreamConsumer | StreamTopicsConsumer) -> None:
        self._consumer = consumer

    async def read(self, most: int, wait_s: float | None) -> Iterable[Message]:
        return await self._consumer.receive_many(most, timeout_s=wait_s)

    async def done(self) -> None:
        self._consumer.acknowledge_all()

    async def close(self) -> None:
        await self._consumer.close()


class _Queue:
    def __init__(self, consumer: QueueConsumer | QueueTopicsConsumer) -> None:
        self._consumer = consumer

    async def read(self, _most: int, wait_s: float | None) -> Iterable[Message]:
        return (await self._consumer.receive(wait_s),)

    async def done(self) -> None:
        self._consumer.acknowledge_all()

    async def close(self) -> None:
        await self._consumer.close()


class _Saved:
    """Keeps the file: the positions of earlier runs, and those that this run has reached since."""

    def __init__(self, consumer: CheckpointConsumer, file: Path, known: Checkpoint | None) -> None:
        self._consumer = consumer
        self._file = file
        self._known = known
        self._written: Checkpoint | None = None
        self._save_at = 0.0

    async def read(self, most: int, wait_s: float | None) -> Iterable[Message]:
        try:
            return await self._consumer.receive_many(most, timeout_s=_SAVE_S)
        except DeadlineError:
            self._save()
        return await self._consumer.receive_many(most, timeout_s=wait_s)

    async def done(self) -> None:
        if time.monotonic() >= self._save_at:
            self._save()

    async def close(self) -> None:
        self._save()
        await self._consumer.close()

    def _save(self) -> None:
        self._save_at = time.monotonic() + _SAVE_S
        now = self._consumer.checkpoint()
        if now == self._written or not now.positions:
            return
        # Places that the new checkpoint does not name stay as they were stored.
        self._known = now if self._known is None else now.over(self._known)
        fresh = self._file.with_name(self._file.name + ".new")
        fresh.write_bytes(self._known.to_json())
        fresh.replace(self._file)
        self._consumer.saved(now)
        self._written = now


def print_line(message: Message, *, named: bool = False, raw: bool = False) -> None:
    """With its place, between tabs; `named`: the topic, too; `raw`: also on a terminal as it is."""
    where = f"{message.segment_id}/{message.bucket}@{message.offset}"
    topic = [message.topic] if named else []
    print_data([*topic, where, shown(message.key), shown(message.value)], raw=raw)


def print_json(message: Message, *, named: bool = False) -> None:
    """Prints a message as a document of its own; `named`: with the topic."""
    said = {
        **({"topic": message.topic} if named else {}),
        **said_as("key", message.key),
        **said_as("value", message.value),
        "headers": [[name, *said_as("", value).values()] for name, value in message.headers],
        "eventTimeMs": message.event_time_ms,
        "segmentId": message.segment_id,
        "bucket": message.bucket,
        "offset": message.offset,
    }
    click.echo(msgspec.json.encode(said).decode())
