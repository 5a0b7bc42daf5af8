"""`anabranch topics`: scalable topics, their segments and their subscriptions."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from anabranch.broker.cli import dag
from anabranch.broker.cli.api import Api, json_option, quoted, url_option
from anabranch.broker.cli.output import table, write_json
from anabranch.core.layout import SegmentLayout
from anabranch.core.names import full_name, parse_namespace, parse_scalable_topic
from anabranch.core.names import subscription as subscription_name

_SCALABLE: Final = "/admin/v2/scalable"
_COLUMNS_MAX: Final = 160
# name: module of the commands that need the SDK, which the others need not wait for.
_WITH_SDK: Final = {"produce": "produce", "consume": "consume"}


class _Topics(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *_WITH_SDK]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _WITH_SDK:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"anabranch.broker.cli.{_WITH_SDK[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Topics, epilog="Example: anabranch topics show public/default/orders")
def topics() -> None:
    """Scalable topics: keyed topics whose segments split and merge while they are used.

    TOPIC is [topic://]tenant/namespace/name.
    """


def _path(topic: str, *more: str | int) -> str:
    """The REST path of a topic. Raises InvalidInputError."""
    tenant, namespace, local = parse_scalable_topic(topic).split("/")
    parts = (tenant, namespace, local, *map(str, more))
    return "/".join((_SCALABLE, *map(quoted, parts)))


def _full(topic: str) -> str:
    return full_name(parse_scalable_topic(topic))


def properties_of(given: Sequence[str]) -> dict[str, str]:
    """`k=v`, repeated. Raises BadParameter."""
    found = {}
    for one in given:
        name, sep, value = one.partition("=")
        if not sep or not name:
            raise click.BadParameter(f"{one!r} is not of the form k=v", param_hint="--property")
        found[name] = value
    return found


# --- topics -----------------------------------------------------------------------------


@topics.command(epilog="Example: anabranch topics create public/default/orders --segments 4")
@click.argument("topic")
@click.option("--segments", default=1, show_default=True, help="How many to begin with.")
@click.option("--property", "given", multiple=True, metavar="K=V", help="May be repeated.")
@url_option
def create(topic: str, segments: int, given: tuple[str, ...], url: str) -> None:
    """Create TOPIC."""
    path, properties = _path(topic), properties_of(given)
    Api(url).send("PUT", path, properties or None, numInitialSegments=segments)
    click.echo(f"{_full(topic)} is created, with {_count(segments, 'segment')}")


@topics.command("list", epilog="Example: anabranch topics list public/default --property team=shop")
@click.argument("namespace", default="public/default")
@click.option("--property", "given", multiple=True, metavar="K=V", help="Only topics that have it.")
@url_option
@json_option
def list_(namespace: str, given: tuple[str, ...], url: str, as_json: bool) -> None:
    """List the topics of NAMESPACE.

    NAMESPACE is tenant/name; public/default if left out.
    """
    home = parse_namespace(namespace)
    wanted = [f"{name}={value}" for name, value in properties_of(given).items()]
    query = {"property": wanted} if wanted else {}
    found = sorted(Api(url).get(f"{_SCALABLE}/{home}", **query))
    if as_json:
        write_json(found)
    else:
        click.echo("".join(f"{name}\n" for name in found), nl=False)


@topics.command(epilog="Example: anabranch topics delete public/default/orders")
@click.argument("topic")
@url_option
def delete(topic: str, url: str) -> None:
    """Delete TOPIC with its subscriptions, segments and messages."""
    Api(url).send("DELETE", _path(topic))
    click.echo(f"{_full(topic)} is deleted")


@topics.command(epilog="Example: anabranch topics show public/default/orders")
@click.argument("topic")
@url_option
@json_option
def show(topic: str, url: str, as_json: bool) -> None:
    """Draw the segments of TOPIC.

    The hash ring goes across, epochs downwards. A box is a segment. What touches the double line
    at the foot takes messages; the others are sealed, and lie above those that they were split or
    merged into. EPOCHS: from the one that made a segment to the one that sealed it. END OFFSETS:
    where each bucket of a sealed one ends.
    """
    found = Api(url).get(_path(topic))
    if as_json:
        write_json(found)
        return
    layout = SegmentLayout.from_metadata(found)
    active = len(layout.active)
    click.echo(
        f"{_full(topic)}: epoch {layout.epoch}, {_count(active, 'active segment')}, "
        f"{len(layout.segments) - active} sealed"
    )
    if layout.properties:
        click.echo(", ".join(f"{name}={value}" for name, value in layout.properties.items()))
    click.echo()
    columns = min(_COLUMNS_MAX, max(dag.COLUMNS, shutil.get_terminal_size((dag.COLUMNS, 1))[0]))
    picture = dag.draw(layout, columns)
    if picture:
        click.echo(dag.fitting(picture, sys.stdout.encoding) + "\n")
    table(dag.HEAD, dag.describe(layout))


@topics.command(epilog="Example: anabranch topics stats public/default/orders --json")
@click.argument("topic")
@url_option
@json_option
def stats(topic: str, url: str, as_json: bool) -> None:
    """Show the Kafka topics, subscriptions and consumers of TOPIC.

    Any client of Kafka can read those topics; a group is that of a subscription.
    """
    found = Api(url).get(_path(topic, "stats"))
    if as_json:
        write_json(found)
        return
    under_way = "" if found["operation"] == "NONE" else f", {found['operation']} under way"
    click.echo(
        f"{_full(topic)}: epoch {found['epoch']}, "
        f"{_count(found['activeSegments'], 'active segment')}, {found['sealedSegments']} sealed"
        f"{under_way}"
    )
    if found["lastFailure"]:
        click.echo(f"last failure: {found['lastFailure']}")
    click.echo()
    segments = sorted(found["segments"].items(), key=lambda item: int(item[0]))
    table(
        ("SEGMENT", "STATE", "BUCKETS", "KAFKA TOPIC"),
        [
            (number, each["state"], str(each["entryBuckets"]), each["kafkaTopic"])
            for number, each in segments
        ],
    )
    if found["subscriptions"]:
        click.echo()
        table(
            ("SUBSCRIPTION", "TYPE", "CONSUMERS", "KAFKA GROUP"),
            [
                (name, each["type"], str(each["consumerCount"]), each["groupId"])
                for name, each in found["subscriptions"].items()
            ],
        )


# --- segments ---------------------------------------------------------------------------


@topics.command(epilog="Example: anabranch topics split public/default/orders 1")
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@url_option
def split(topic: str, segment: int, url: str) -> None:
    """Split a segment at the middle of its range.

    SEGMENT is its id, as `topics show` has it. Messages of its keys go to the two new ones.
    """
    api = Api(url)
    api.send("POST", _path(topic, "split", segment))
    _say_children(api, topic, segment, f"segment {segment} is split")


@topics.command(epilog="Example: anabranch topics merge public/default/orders 2 3")
@click.argument("topic")
@click.argument("first", type=click.IntRange(0))
@click.argument("second", type=click.IntRange(0))
@url_option
def merge(topic: str, first: int, second: int, url: str) -> None:
    """Merge two neighbouring segments.

    FIRST and SECOND are their ids, in any order, as `topics show` has them.
    """
    api = Api(url)
    api.send("POST", _path(topic, "merge", first, second))
    _say_children(api, topic, first, f"segments {first} and {second} are merged")


@topics.command(epilog="Example: anabranch topics rebucket public/default/orders 1 8")
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@click.argument("buckets", type=click.IntRange(1))
@url_option
def rebucket(topic: str, segment: int, buckets: int, url: str) -> None:
    """Give a segment another number of buckets.

    SEGMENT (an id) is replaced by one of the same range with BUCKETS buckets (Kafka partitions).
    """
    api = Api(url)
    api.send("POST", _path(topic, "rebucket", segment), bucketCount=buckets)
    _say_children(api, topic, segment, f"segment {segment} is replaced")


def _say_children(api: Api, topic: str, parent: int, what: str) -> None:
    """What came of it; another change may have followed, or cleaned the parent away."""
    segments: dict[str, Any] = api.get(_path(topic))["segments"]
    children = [segments[str(each)] for each in segments.get(str(parent), {}).get("childIds", [])]
    shown = ", ".join(
        f"{each['segmentId']} [{each['hashRange']['start']:04x}-{each['hashRange']['end']:04x}]"
        for each in children
    )
    click.echo(f"{what}: {shown or 'see `topics show`'}")


# --- subscriptions ----------------------------------------------------------------------


@topics.group(epilog="Example: anabranch topics subscriptions create public/default/orders billing")
def subscriptions() -> None:
    """Subscriptions of a topic: each sees every message once."""


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
    help="stream: in order by key. queue: each message to any consumer. checkpoint: in order, with "
    "positions in the consumer's own hands.",
)
@url_option
def create_subscription(topic: str, name: str, kind: str, url: str) -> None:
    """Create the subscription NAME of TOPIC, from the earliest message on."""
    path = _path(topic, "subscriptions", subscription_name(name))
    Api(url).send("PUT", path, type=kind.upper())
    click.echo(f"subscription {name} of {_full(topic)} is there")


@subscriptions.command(
    "delete",
    epilog="Example: anabranch topics subscriptions delete public/default/orders billing",
)
@click.argument("topic")
@click.argument("name")
@url_option
def delete_subscription(topic: str, name: str, url: str) -> None:
    """Delete the subscription NAME of TOPIC, with its positions."""
    Api(url).send("DELETE", _path(topic, "subscriptions", subscription_name(name)))
    click.echo(f"subscription {name} of {_full(topic)} is deleted")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
