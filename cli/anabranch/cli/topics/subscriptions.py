"""`anabranch topics subscriptions`: the readers of a scalable topic, and their positions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, cast

import click

from anabranch.admin import (
    Admin,
    DeadLetterPolicy,
    FromGroup,
    Place,
    SubscriptionStats,
    SubscriptionType,
)
from anabranch.cli.shared.api import CommandRefusedError, answers, as_seen_by, changes
from anabranch.cli.shared.command import CommandGroup
from anabranch.cli.shared.output import table
from anabranch.cli.topics.words import full_of
from anabranch.core.entities.subscription import DELIVERIES, DELIVERIES_MAX
from anabranch.core.names import subscription as subscription_name

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = (
    "TIME is that of the messages: ISO 8601 (UTC unless it says otherwise), or milliseconds since "
    "1970."
)
_topic = click.argument("topic")
_name = click.argument("name")


@click.group(cls=CommandGroup)
def subscriptions() -> None:
    """Subscriptions of a topic: each sees every message once.

    Example: anabranch topics subscriptions create public/default/orders billing
    """


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


@subscriptions.command()
@_topic
@_name
@click.option(
    "--type",
    "kind",
    type=click.Choice(("stream", "queue", "checkpoint")),
    default="stream",
    help="Type of the subscription. stream: in order by key. queue: each message to any "
    "consumer. checkpoint: in order, with positions in the consumer's own hands.",
)
@click.option(
    "--start", metavar="earliest|latest|TIME", help=f"Its beginning, else earliest. {_TIME}"
)
@click.option(
    "--from-group",
    "group",
    metavar="GROUP",
    help="Begin where this group of an adopted Kafka topic has come to; its consumers must be "
    "stopped.",
)
@click.option(
    "--missing",
    type=click.Choice(("earliest", "latest", "refuse")),
    default="refuse",
    help="The beginning in partitions for which GROUP has no position.",
)
@changes
def create(
    admin: Admin,
    topic: str,
    name: str,
    kind: str,
    start: str | None,
    group: str | None,
    missing: Literal["earliest", "latest", "refuse"],
) -> str:
    """Create the subscription NAME of TOPIC.

    Example: anabranch topics subscriptions create public/default/orders billing
    """
    if group is not None and start is not None:
        raise click.UsageError("say where to begin by --start or by --from-group, not by both")
    place: Place | FromGroup = place_of(start or "earliest", "--start")
    if group is not None:
        place = FromGroup(group, missing)
    subscription_name(name)  # before anything is asked
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
    return f"subscription {name} of {full_of(topic)} {done}"


def _subscriptions(admin: Admin, topic: str) -> dict[str, SubscriptionStats]:
    return admin.scalable_topics.get_stats(topic).subscriptions


@subscriptions.command("list")
@_topic
@answers(lambda found: tell(found) if found else None)
def list_(admin: Admin, topic: str) -> dict[str, SubscriptionStats]:
    """List the subscriptions of TOPIC with their backlogs.

    JSON also has consumers, and backlogs by segment.

    Example: anabranch topics subscriptions list public/default/orders
    """
    return _subscriptions(admin, topic)


@subscriptions.command()
@_topic
@_name
@click.option("--force", is_flag=True, help="Also if it has consumers, which end.")
@changes
def delete(admin: Admin, topic: str, name: str, force: bool) -> str:
    """Delete the subscription NAME of TOPIC, with its positions.

    Example: anabranch topics subscriptions delete public/default/orders billing
    """
    admin.scalable_topics.delete_subscription(topic, name, force=force)
    return f"subscription {name} of {full_of(topic)} is deleted"


@subscriptions.command()
@_topic
@_name
@click.option("--to", required=True, metavar="earliest|latest|TIME", help=_TIME)
@changes
def seek(admin: Admin, topic: str, name: str, to: str) -> str:
    """Put the subscription NAME of TOPIC elsewhere.

    All its consumers go on with the messages of that time or a later one. Acknowledged messages
    come again if they lie behind that place.

    Example: anabranch topics subscriptions seek public/default/orders billing
    --to 2026-01-31T12:00:00Z
    """
    admin.scalable_topics.seek_subscription(topic, name, place_of(to, "--to"))
    return f"subscription {name} of {full_of(topic)} goes on at {to}"


@subscriptions.command("skip-all")
@_topic
@_name
@changes
def skip_all(admin: Admin, topic: str, name: str) -> str:
    """Clear the backlog of the subscription NAME of TOPIC.

    It goes on with messages that come after, and does not read the present ones any more.

    Example: anabranch topics subscriptions skip-all public/default/orders billing
    """
    admin.scalable_topics.skip_all(topic, name)
    return f"subscription {name} of {full_of(topic)} has nothing left to read"


# --- dead letters -----------------------------------------------------------------------


@subscriptions.group("dead-letters")
def dead_letters() -> None:
    """Messages that consumers could not process.

    They put them aside in a topic. Without one a queue loses them in the end, and a stream waits.

    Example: anabranch topics subscriptions dead-letters set public/default/orders jobs
    """


def _aside(found: DeadLetterPolicy | None, topic: str, name: str) -> str:
    if found is None:
        return f"subscription {name} of {full_of(topic)} has no dead letters"
    was = "could not process"
    if found.max_deliveries:
        was = f"was given {found.max_deliveries} times in vain"
    return (
        f"messages that subscription {name} of {full_of(topic)} {was} go to "
        f"{found.dead_letter_topic}"
    )


@dead_letters.command()
@_topic
@_name
@answers(lambda *found: click.echo(_aside(*found)), "topic", "name")
def show(admin: Admin, topic: str, name: str) -> DeadLetterPolicy | None:
    """Show where the subscription NAME of TOPIC puts its dead letters.

    Example: anabranch topics subscriptions dead-letters show public/default/orders jobs
    """
    return admin.scalable_topics.get_dead_letter_policy(topic, name)


@dead_letters.command("set")
@_topic
@_name
@click.option(
    "--deliveries",
    type=click.IntRange(1, DELIVERIES_MAX),
    show_default=False,
    help=f"A queue's deliveries of a message before it is put aside; {DELIVERIES} if left.",
)
@click.option(
    "--to",
    "where",
    default="",
    show_default=False,
    help="A scalable topic, made if needed; TOPIC-NAME-DLQ if left.",
)
@changes
def set_(admin: Admin, topic: str, name: str, deliveries: int | None, where: str) -> str:
    """Let the subscription NAME of TOPIC put messages aside that it could not process.

    A queue's message goes to that topic after so many deliveries without an acknowledgement, or
    when a consumer rejects it. A stream's goes there as the handlers of its consumers say. Its
    headers tell its origin and the reason.

    Example: anabranch topics subscriptions dead-letters set public/default/orders jobs
    --deliveries 3
    """
    admin.scalable_topics.set_dead_letter_policy(topic, name, deliveries, where)
    return _aside(admin.scalable_topics.get_dead_letter_policy(topic, name), topic, name)


@dead_letters.command()
@_topic
@_name
@changes
def remove(admin: Admin, topic: str, name: str) -> str:
    """Let the subscription NAME of TOPIC put nothing aside any more; the topic stays.

    Example: anabranch topics subscriptions dead-letters remove public/default/orders jobs
    """
    admin.scalable_topics.remove_dead_letter_policy(topic, name)
    return _aside(None, topic, name)


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
