"""`anabranch topics subscriptions`: who reads a scalable topic, and how far."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from anabranch.broker.cli.api import Api, RefusedError, json_option, url_option
from anabranch.broker.cli.output import table, write_json
from anabranch.broker.cli.topic_paths import full_of, path_of
from anabranch.core.names import subscription as subscription_name


@click.group(epilog="Example: anabranch topics subscriptions create public/default/orders billing")
def subscriptions() -> None:
    """Subscriptions of a topic: each sees every message once."""


def tell(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints subscriptions as `stats` has them; a backlog that is not known is `?`."""
    rows = [
        (
            name,
            each["type"],
            str(each["consumerCount"]),
            "?" if each["msgBacklog"] is None else str(each["msgBacklog"]),
            each["groupId"],
        )
        for name, each in found.items()
    ]
    table(("SUBSCRIPTION", "TYPE", "CONSUMERS", "BACKLOG", "KAFKA GROUP"), rows)
    for name, each in found.items():
        if each["backlogUnknown"]:
            click.echo(f"backlog of {name} is not known: {each['backlogUnknown']}")


@subscriptions.command(
    "create",
    epilog="Example: anabranch topics subscriptions create public/default/orders billing",
)
@click.argument("topic")
@click.argument("name")
@click.option(
    "--type",
    "kind",
    type=click.Choice(("stream", "queue", "checkpoint")),
    default="stream",
    show_default=True,
    help="Of the subscription. stream: in order by key. queue: each message to any consumer. "
    "checkpoint: in order, with positions in the consumer's own hands.",
)
@url_option
def create(topic: str, name: str, kind: str, url: str) -> None:
    """Create the subscription NAME of TOPIC, from the earliest message on."""
    path = path_of(topic, "subscriptions", subscription_name(name))
    api = Api(url)
    was_there = name in _subscriptions(api, topic)
    if not was_there:
        api.send("PUT", path, type=kind.upper())
    # A node leaves one of another type as it is, and says nothing.
    found = _subscriptions(Api(api.answered_by), topic).get(name, {}).get("type", kind.upper())
    if found != kind.upper():
        raise RefusedError(
            f"subscription {name} of {full_of(topic)} is there, with the type {found.lower()}: use "
            "it as such, delete it first, or choose another name"
        )
    done = "was there" if was_there else "is created"
    click.echo(f"subscription {name} of {full_of(topic)} {done}")


def _subscriptions(api: Api, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(path_of(topic, "stats"))["subscriptions"]
    return found


@subscriptions.command(
    "list", epilog="Example: anabranch topics subscriptions list public/default/orders"
)
@click.argument("topic")
@url_option
@json_option
def list_(topic: str, url: str, as_json: bool) -> None:
    """List the subscriptions of TOPIC with what they have yet to read.

    JSON also has consumers, and backlogs by segment.
    """
    found = _subscriptions(Api(url), topic)
    if as_json:
        write_json(found)
    elif found:
        tell(found)


@subscriptions.command(
    "delete",
    epilog="Example: anabranch topics subscriptions delete public/default/orders billing",
)
@click.argument("topic")
@click.argument("name")
@url_option
def delete(topic: str, name: str, url: str) -> None:
    """Delete the subscription NAME of TOPIC, with its positions."""
    Api(url).send("DELETE", path_of(topic, "subscriptions", subscription_name(name)))
    click.echo(f"subscription {name} of {full_of(topic)} is deleted")


@subscriptions.command(
    "seek",
    epilog="Example: anabranch topics subscriptions seek public/default/orders billing "
    "--to 2026-01-31T12:00:00Z",
)
@click.argument("topic")
@click.argument("name")
@click.option(
    "--to",
    required=True,
    metavar="earliest|latest|TIME",
    help="TIME: ISO 8601 (UTC unless it says otherwise), or milliseconds since 1970; of the "
    "messages.",
)
@url_option
def seek(topic: str, name: str, to: str, url: str) -> None:
    """Put the subscription NAME of TOPIC elsewhere.

    All its consumers go on with what has that time or a later one. What is acknowledged already
    comes again if it lies behind that place.
    """
    query: dict[str, Any] = {"position": to} if to in ("earliest", "latest") else {}
    query = query or {"timestamp": _milliseconds(to)}
    path = path_of(topic, "subscriptions", subscription_name(name), "seek")
    Api(url).send("POST", path, **query)
    click.echo(f"subscription {name} of {full_of(topic)} goes on at {to}")


@subscriptions.command(
    "skip-all",
    epilog="Example: anabranch topics subscriptions skip-all public/default/orders billing",
)
@click.argument("topic")
@click.argument("name")
@url_option
def skip_all(topic: str, name: str, url: str) -> None:
    """Clear the backlog of the subscription NAME of TOPIC.

    It goes on with what comes after; what is there now is not read by it any more.
    """
    path = path_of(topic, "subscriptions", subscription_name(name), "skip-all")
    Api(url).send("POST", path)
    click.echo(f"subscription {name} of {full_of(topic)} has nothing left to read")


def _milliseconds(given: str) -> int:
    """Raises BadParameter."""
    if given.isascii() and given.isdecimal():
        return int(given)
    try:
        when = datetime.fromisoformat(given)
    except ValueError:
        raise click.BadParameter(
            f"{given!r} is not earliest, latest, a time like 2026-01-31T12:00:00Z, or "
            "milliseconds since 1970",
            param_hint="--to",
        ) from None
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    milliseconds = round(aware.timestamp() * 1000)
    if milliseconds < 0:
        raise click.BadParameter(f"{given!r} is before 1970", param_hint="--to")
    return milliseconds
