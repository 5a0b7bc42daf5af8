"""`anabranch topics consume` and `peek`: messages become lines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from anabranch.cli.shared.api import json_lines_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.numbers import POSITIVE
from anabranch.cli.shared.output import said_as, shown
from anabranch.cli.shared.stopping import run_stoppable, unless_stopped
from anabranch.cli.shared.terminal import print_data
from anabranch.cli.topics.sdk import client_options, open_client
from anabranch.cli.topics.subscriptions import place_of
from anabranch.cli.topics.words import properties_of
from anabranch.client import (
    Client,
    DeadlineError,
    Message,
    QueueConsumer,
    StreamConsumer,
    StreamTopicsConsumer,
    TopicSelection,
)

_BATCH_MAX: Final = 1_000
_TOLD_MAX: Final = 10
_Reader = StreamConsumer | StreamTopicsConsumer | QueueConsumer


@click.command(cls=Command)
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
@click.option(
    "--name",
    default="",
    show_default=False,
    help="Name of this consumer; it keeps its share for a minute.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(("stream", "queue")),
    default="stream",
    help="Type of the subscription. stream: in order by key, positions in Kafka. queue: each "
    "message to any consumer.",
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
@json_lines_option
def consume(
    topic: str | None,
    pattern: str | None,
    namespace: str | None,
    properties: tuple[str, ...],
    subscription: str,
    name: str,
    kind: str,
    most: int | None,
    wait_s: float | None,
    raw: bool,
    as_json: bool,
    **how: Any,
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

    Example: anabranch topics consume public/default/orders --subscription billing --max 10
    """
    chosen = _selected(topic, pattern, namespace, properties)
    if chosen is not None and kind == "queue":
        raise click.UsageError("a queue has one topic: give TOPIC, one command for each")
    is_named = chosen is not None
    line = functools.partial(print_line, named=is_named, raw=raw)
    show = functools.partial(print_json, named=is_named) if as_json else line

    async def main(stopping: asyncio.Event) -> DeadlineError | None:
        async with open_client(topic, **how) as client:
            reader = await _reader(client, chosen or topic or "", kind, (subscription, name))
            quiet = await _print_all(reader, most, wait_s, show, stopping)
            await reader.close()
            return quiet

    quiet = run_stoppable(main)
    if quiet is not None:
        click.echo(f"anabranch: {quiet}", err=True)
    return ExitStatus.DONE if quiet is None else ExitStatus.PARTLY


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
    if pattern == "":  # a variable of a script that is not set, and would mean all topics
        raise click.UsageError("--pattern is empty; leave it out, or give .* for all topics")
    wanted = properties_of(properties)
    if len(wanted) < len(properties):
        raise click.UsageError("--property is given twice with one name, and a topic has it once")
    home = "public/default" if namespace is None else namespace
    return TopicSelection(home, pattern or "", wanted)


async def _reader(
    client: Client, source: TopicSelection | str, kind: str, who: tuple[str, str]
) -> _Reader:
    if isinstance(source, str):
        one = client.subscribe_queue if kind == "queue" else client.subscribe
        return await one(source, *who)
    many = await client.subscribe_topics(source, *who)
    tell_what_is_missing(source, many.topics, many.failing)
    return many


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
            messages = await unless_stopped(_read(reader, part, wait_s), stopping)
        except DeadlineError as quiet:
            return quiet
        if messages is None:
            break
        for message in messages:
            show(message)
            left = None if left is None else left - 1
        reader.acknowledge_all()
    return None


async def _read(reader: _Reader, most: int, wait_s: float | None) -> Iterable[Message]:
    """Returns the messages that have come. Raises DeadlineError if none comes in that time."""
    if isinstance(reader, QueueConsumer):
        return (await reader.receive(wait_s),)  # a delivery may be more than `most`
    return await reader.receive_many(most, timeout_s=wait_s)


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "--max", "most", type=click.IntRange(1, 10_000), default=10, help="Number of messages."
)
@click.option(
    "--from",
    "start",
    default="latest",
    metavar="earliest|latest|TIME",
    help="The first ones, the last ones, or those of a time (ISO 8601, or milliseconds since 1970) "
    "and later.",
)
@client_options
@json_lines_option
def peek(topic: str, most: int, start: str, as_json: bool, **how: Any) -> None:
    """Print some messages of TOPIC, in the order of their event times; nothing is acknowledged.

    Each with its place: SEGMENT/BUCKET@OFFSET, key and value. It needs no subscription, and leaves
    none. With --json, a key or value that is no UTF-8 is in keyBase64 or valueBase64 too.

    Example: anabranch topics peek public/default/orders --max 3
    """
    begin = place_of(start, "--from")

    async def main() -> list[Message]:
        async with open_client(topic, **how) as client:
            return await client.peek(topic, most, start=begin)

    show = print_json if as_json else print_line
    for message in asyncio.run(main()):
        show(message)


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
