"""`anabranch topics watch`: topics that come and go become lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import click
import msgspec

from anabranch.cli.shared.api import json_lines_option, url_option
from anabranch.cli.shared.terminal import escaped
from anabranch.cli.topics.sdk import (
    client_options,
    open_client,
    run_stoppable,
    selected,
    unless_stopped,
)
from anabranch.client import Client, ListChange, TopicSelection
from anabranch.core.names import full_name


class ListEvent(Enum):
    """The event that a line tells of a topic; the value begins the line."""

    PRESENT = "="  # there when the watch began
    ADDED = "+"
    REMOVED = "-"


class TopicEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A line of `--json`. `time`: the time at which this command heard of the event."""

    event: str
    topic: str
    time: str


Show = Callable[[ListEvent, str], None]


@click.command(epilog="Example: anabranch topics watch public/default --pattern 'orders-.*'")
@click.argument("namespace", default="public/default")
@click.option(
    "--pattern", metavar="REGEX", help="Only those whose name in the namespace matches, whole."
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only those that have it; give several for all of them.",
)
@click.option("--changes-only", is_flag=True, help="Leaves out those that are there at first.")
@client_options
@url_option
@json_lines_option
def watch(
    namespace: str,
    pattern: str | None,
    properties: tuple[str, ...],
    changes_only: bool,
    service_url: str | None,
    kafka_properties: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Follow which scalable topics NAMESPACE has, public/default if left.

    It prints a line for each: "= TOPIC" for a topic that is there at first, "+ TOPIC" for one that
    comes. "- TOPIC" stands for one that goes, is deleted or does not match any more. With --json,
    {"event": "present", "added" or "removed", "topic": ..., "time": ...}.

    It goes on until Ctrl-C. If its node ends, the command asks another one, which then tells the
    changes made meanwhile.
    """
    chosen = selected(namespace, pattern, properties)
    show = _print_json if as_json else _print_line

    async def main(stopping: asyncio.Event) -> None:
        async with open_client(None, url, service_url, kafka_properties) as client:
            await unless_stopped(follow(client, chosen, show, changes_only=changes_only), stopping)

    run_stoppable(main)


async def follow(
    client: Client, chosen: TopicSelection, show: Show, *, changes_only: bool = False
) -> None:
    """Shows the present topics and their changes, until it is cancelled."""
    async with await client.watch_topics(chosen) as following:
        if not changes_only:
            for topic in sorted(following.topics):
                show(ListEvent.PRESENT, topic)

        def changed(change: ListChange) -> None:
            for topic in change.removed:
                show(ListEvent.REMOVED, topic)
            for topic in change.added:
                show(ListEvent.ADDED, topic)

        following.listeners.append(changed)
        await asyncio.Event().wait()


def _print_line(event: ListEvent, topic: str) -> None:
    click.echo(f"{event.value} {escaped(full_name(topic))}")


def _print_json(event: ListEvent, topic: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = TopicEvent(event=event.name.lower(), topic=full_name(topic), time=now)
    click.echo(msgspec.json.encode(line).decode())
