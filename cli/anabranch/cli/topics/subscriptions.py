"""`anabranch topics subscriptions`: the readers of a scalable topic, and their positions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import click

from anabranch.admin import Admin, Place, SubscriptionStats, SubscriptionType
from anabranch.cli.shared.api import (
    CommandRefusedError,
    as_seen_by,
    connect,
    json_option,
    url_option,
)
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable
from anabranch.cli.topics.dead_letters import dead_letters
from anabranch.cli.topics.words import full_of
from anabranch.core.names import subscription as subscription_name

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@click.group(epilog="Example: anabranch topics subscriptions create public/default/orders billing")
def subscriptions() -> None:
    """Subscriptions of a topic: each sees every message once."""


subscriptions.add_command(dead_letters)


def tell(found: Mapping[str, SubscriptionStats]) -> None:
    """Prints subscriptions as `stats` has them; a backlog that is not known is `?`."""
    rows = [
        (
            name,
            each.type,
            str(each.consumer_count),
            "?" if each.msg_backlog is None else str(each.msg_backlog),
            each.group_id,
        )
        for name, each in found.items()
    ]
    table(("SUBSCRIPTION", "TYPE", "CONSUMERS", "BACKLOG", "KAFKA GROUP"), rows)
    for name, each in found.items():
        if each.consumers:
            who = [c.consumer_name + ("" if c.connected else " (away)") for c in each.consumers]
            click.echo(f"{name} is read by {', '.join(who)}")
        if each.backlog_unknown:
            click.echo(f"backlog of {name} is not known: {each.backlog_unknown}")


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
    help="Type of the subscription. stream: in order by key. queue: each message to any "
    "consumer. checkpoint: in order, with positions in the consumer's own hands.",
)
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="Its beginning. TIME is that of the messages: ISO 8601 (UTC unless it says otherwise), or "
    "milliseconds since 1970.",
)
@url_option
def create(topic: str, name: str, kind: str, start: str, url: str) -> None:
    """Create the subscription NAME of TOPIC."""
    place = place_of(start, "--start")
    subscription_name(name)  # before anything is asked
    admin = connect(url)
    wanted = cast(SubscriptionType, kind.upper())
    was_there = name in _subscriptions(admin, topic)
    if not was_there:
        admin.scalable_topics.create_subscription(topic, name, wanted, place)
    # A node leaves one of another type as it is, and says nothing.
    known = _subscriptions(as_seen_by(admin), topic).get(name)
    if known is not None and known.type != wanted:
        raise CommandRefusedError(
            f"subscription {name} of {full_of(topic)} is there, with the type "
            f"{known.type.lower()}: use it as such, delete it first, or choose another name"
        )
    done = "was there" if was_there else "is created"
    click.echo(f"subscription {name} of {full_of(topic)} {done}")


def _subscriptions(admin: Admin, topic: str) -> dict[str, SubscriptionStats]:
    return admin.scalable_topics.get_stats(topic).subscriptions


@subscriptions.command(
    "list", epilog="Example: anabranch topics subscriptions list public/default/orders"
)
@click.argument("topic")
@url_option
@json_option
@watchable
def list_(topic: str, url: str, as_json: bool) -> None:
    """List the subscriptions of TOPIC with their backlogs.

    JSON also has consumers, and backlogs by segment.
    """
    found = _subscriptions(connect(url), topic)
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
@click.option("--force", is_flag=True, help="Also if it has consumers, which end.")
@url_option
def delete(topic: str, name: str, force: bool, url: str) -> None:
    """Delete the subscription NAME of TOPIC, with its positions."""
    connect(url).scalable_topics.delete_subscription(topic, name, force=force)
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
    help="TIME is that of the messages: ISO 8601 (UTC unless it says otherwise), or milliseconds "
    "since 1970.",
)
@url_option
def seek(topic: str, name: str, to: str, url: str) -> None:
    """Put the subscription NAME of TOPIC elsewhere.

    All its consumers go on with the messages of that time or a later one. Acknowledged messages
    come again if they lie behind that place.
    """
    connect(url).scalable_topics.seek_subscription(topic, name, place_of(to, "--to"))
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

    It goes on with messages that come after, and does not read the present ones any more.
    """
    connect(url).scalable_topics.skip_all(topic, name)
    click.echo(f"subscription {name} of {full_of(topic)} has nothing left to read")


def place_of(given: str, option: str) -> Place:
    """Returns the place that an option names. Raises BadParameter."""
    if given == "earliest":
        return "earliest"
    if given == "latest":
        return "latest"
    try:
        if given.isascii() and given.isdecimal():
            return _EPOCH + timedelta(milliseconds=int(given))
        when = datetime.fromisoformat(given)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{given!r} is not earliest, latest, a time like 2026-01-31T12:00:00Z, or "
            "milliseconds since 1970",
            param_hint=option,
        ) from None
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    if aware < _EPOCH:
        raise click.BadParameter(f"{given!r} is before 1970", param_hint=option)
    return aware
