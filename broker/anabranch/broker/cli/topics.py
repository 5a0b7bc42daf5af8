"""`anabranch topics`: scalable topics, their segments and their subscriptions."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click

from anabranch.broker.cli import dag
from anabranch.broker.cli.api import Api, RefusedError, UnreachableError, json_option, url_option
from anabranch.broker.cli.output import table, write_json
from anabranch.broker.cli.subscriptions import subscriptions, tell
from anabranch.broker.cli.topic_paths import SCALABLE, count_of, full_of, path_of, properties_of
from anabranch.core.layout import SegmentLayout
from anabranch.core.names import parse_namespace, parse_scalable_topic
from anabranch.core.segment_load import rate_in_words

_RATES: Final = {  # column: field of a segment's load
    "MSG/S IN": "msgRateIn",
    "BYTES/S IN": "bytesRateIn",
    "MSG/S OUT": "msgRateOut",
    "BYTES/S OUT": "bytesRateOut",
}
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


# --- topics -----------------------------------------------------------------------------


@topics.command(epilog="Example: anabranch topics create public/default/orders --segments 4")
@click.argument("topic")
@click.option("--segments", default=1, show_default=True, help="How many to begin with.")
@click.option(
    "--property", "given", multiple=True, metavar="K=V", help="Of the topic; may be repeated."
)
@url_option
@json_option
def create(topic: str, segments: int, given: tuple[str, ...], url: str, as_json: bool) -> None:
    """Create TOPIC."""
    path, properties = path_of(topic), properties_of(given)
    api = Api(url)
    api.send("PUT", path, properties or None, numInitialSegments=segments)
    if as_json:
        write_json({"topic": full_of(topic), "segments": segments, "properties": properties})
        return
    click.echo(f"{full_of(topic)} is created, with {count_of(segments, 'segment')}")
    _say_scaling(Api(api.answered_by), topic)


@topics.command("list", epilog="Example: anabranch topics list public/default --property team=shop")
@click.argument("namespace", default="public/default")
@click.option(
    "--property",
    "given",
    multiple=True,
    metavar="K=V",
    help="Only topics that have it; may be repeated.",
)
@url_option
@json_option
def list_(namespace: str, given: tuple[str, ...], url: str, as_json: bool) -> None:
    """List the topics of NAMESPACE.

    NAMESPACE is tenant/name; public/default if left out.
    """
    home = parse_namespace(namespace)
    wanted = [f"{name}={value}" for name, value in properties_of(given).items()]
    query = {"property": wanted} if wanted else {}
    found = sorted(Api(url).get(f"{SCALABLE}/{home}", **query))
    if as_json:
        write_json(found)
    else:
        click.echo("".join(f"{name}\n" for name in found), nl=False)


@topics.command(epilog="Example: anabranch topics delete public/default/orders")
@click.argument("topic")
@url_option
def delete(topic: str, url: str) -> None:
    """Delete TOPIC with its subscriptions, segments and messages."""
    Api(url).send("DELETE", path_of(topic))
    click.echo(f"{full_of(topic)} is deleted")


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
    found = Api(url).get(path_of(topic))
    if as_json:
        write_json(found)
        return
    layout = SegmentLayout.from_metadata(found)
    active = len(layout.active)
    click.echo(
        f"{full_of(topic)}: epoch {layout.epoch}, {count_of(active, 'active segment')}, "
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
    """Show segments with their load, subscriptions with their backlogs, and auto-scaling of TOPIC.

    Any client of Kafka can read the segments' Kafka topics; a group is that of a subscription.
    Rates are per second; one with a ~ is an estimate.
    """
    found = Api(url).get(path_of(topic, "stats"))
    if as_json:
        write_json(found)
        return
    under_way = "" if found["operation"] == "NONE" else f", {found['operation']} under way"
    click.echo(
        f"{full_of(topic)}: epoch {found['epoch']}, "
        f"{count_of(found['activeSegments'], 'active segment')}, {found['sealedSegments']} sealed"
        f"{under_way}"
    )
    if found["lastFailure"]:
        click.echo(f"last failure: {found['lastFailure']}")
    click.echo()
    segments = sorted(found["segments"].items(), key=lambda item: int(item[0]))
    table(
        ("SEGMENT", "STATE", "BUCKETS", *_RATES, "KAFKA TOPIC"),
        [
            (
                number,
                each["state"],
                str(each["entryBuckets"]),
                *_rates(each["load"]),
                each["kafkaTopic"],
            )
            for number, each in segments
        ],
    )
    if found["subscriptions"]:
        click.echo()
        tell(found["subscriptions"])
    click.echo()
    _tell_scaling(found["autoScale"])


def _rates(load: dict[str, Any] | None) -> tuple[str, ...]:
    if load is None:
        return ("-",) * len(_RATES)
    return tuple(
        ("~" if field in load["estimated"] else "") + rate_in_words(load[field])
        for field in _RATES.values()
    )


def _tell_scaling(scale: dict[str, Any]) -> None:
    now = scale["now"]
    click.echo(f"auto-scaling now: {now['action']} ({scale['fault'] or now['why']})")
    for each in scale["decisions"]:
        at = datetime.fromtimestamp(each["atMs"] / 1000, UTC)
        click.echo(f"  {at:%Y-%m-%d %H:%M:%S}Z  {each['action']}: {each['why']}")


@topics.command(
    epilog="Example: anabranch topics properties public/default/orders --set team=shop --remove x"
)
@click.argument("topic")
@click.option("--set", "given", multiple=True, metavar="K=V", help="Set it; may be repeated.")
@click.option("--remove", "gone", multiple=True, metavar="K", help="Remove it; may be repeated.")
@url_option
@json_option
def properties(
    topic: str, given: tuple[str, ...], gone: tuple[str, ...], url: str, as_json: bool
) -> None:
    """Show the properties of TOPIC, after changing them."""
    wanted = properties_of(given, "--set")
    both = sorted(wanted.keys() & set(gone))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be set and removed at once")
    api, path = Api(url), path_of(topic, "properties")
    if wanted:
        api.send("PUT", path, wanted)
    for name in gone:
        api.send("DELETE", path, key=name)
    # The topic's controller answers, which has seen the changes.
    found = api.get(path)
    if as_json:
        write_json(found)
    else:
        click.echo("".join(f"{name}={found[name]}\n" for name in sorted(found)), nl=False)


# --- segments ---------------------------------------------------------------------------


@topics.command(epilog="Example: anabranch topics split public/default/orders 1")
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@url_option
@json_option
def split(topic: str, segment: int, url: str, as_json: bool) -> None:
    """Split a segment at the middle of its range.

    SEGMENT is its id, as `topics show` has it. Messages of its keys go to the two new ones.
    """
    api = Api(url)
    _change(api, topic, "split", segment)
    _say_children(api, topic, [segment], f"segment {segment} is split", as_json)


@topics.command(epilog="Example: anabranch topics merge public/default/orders 2 3")
@click.argument("topic")
@click.argument("first", type=click.IntRange(0))
@click.argument("second", type=click.IntRange(0))
@url_option
@json_option
def merge(topic: str, first: int, second: int, url: str, as_json: bool) -> None:
    """Merge two neighbouring segments.

    FIRST and SECOND are their ids, in any order, as `topics show` has them.
    """
    api = Api(url)
    _change(api, topic, "merge", first, second)
    what = f"segments {first} and {second} are merged"
    _say_children(api, topic, [first, second], what, as_json)


@topics.command(epilog="Example: anabranch topics rebucket public/default/orders 1 8")
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@click.argument("buckets", type=click.IntRange(1))
@url_option
@json_option
def rebucket(topic: str, segment: int, buckets: int, url: str, as_json: bool) -> None:
    """Give a segment another number of buckets.

    SEGMENT (an id) is replaced by one of the same range with BUCKETS buckets (Kafka partitions).
    """
    api = Api(url)
    _change(api, topic, "rebucket", segment, bucketCount=buckets)
    _say_children(api, topic, [segment], f"segment {segment} is replaced", as_json)


def _change(api: Api, topic: str, *how: str | int, **query: int) -> None:
    """Raises RefusedError, which says where to look if the segments are not as was thought."""
    try:
        api.send("POST", path_of(topic, *how), **query)
    except RefusedError as error:
        if "egment" not in error.message:
            raise
        look = f"`anabranch topics show {parse_scalable_topic(topic)}` has the segments"
        raise RefusedError(f"{error.message}; {look}") from None


def _say_children(api: Api, topic: str, parents: list[int], what: str, as_json: bool) -> None:
    """What came of it; another change may have followed, or cleaned the parents away.

    The node that did it is asked: others may not have read so far.
    """
    did = Api(api.answered_by)
    segments: dict[str, Any] = did.get(path_of(topic))["segments"]
    ids = segments.get(str(parents[0]), {}).get("childIds", [])
    children = [segments[str(each)] for each in ids if str(each) in segments]
    if as_json:
        write_json({"topic": full_of(topic), "parents": parents, "children": children})
        return
    shown = ", ".join(
        f"{each['segmentId']} [{each['hashRange']['start']:04x}-{each['hashRange']['end']:04x}]"
        for each in children
    )
    click.echo(f"{what}: {shown or 'see `topics show`'}")
    _say_scaling(did, topic)


def _say_scaling(did: Api, topic: str) -> None:
    """What may become of segments made by hand, where it may, for people; the node that made them
    is asked. What is done is done: that it cannot tell is no failure.
    """
    with contextlib.suppress(RefusedError, UnreachableError):
        scale = did.get(path_of(topic, "stats"))["autoScale"]
        if scale["policy"]["enabled"]["value"] and not scale["fault"]:
            name = parse_scalable_topic(topic)
            click.echo(
                "auto-scaling is on and may split and merge these segments again; to decide by "
                f"yourself: anabranch policy set {name} enabled=false",
                err=True,
            )


# --- subscriptions ----------------------------------------------------------------------

topics.add_command(subscriptions)
