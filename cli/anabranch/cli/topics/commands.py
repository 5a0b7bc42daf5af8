"""`anabranch topics`: scalable topics, their segments and their subscriptions."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from anabranch.admin import Admin, AdminError, AutoScaleStats, LoadStats, Segment, TopicStats
from anabranch.admin import RefusedError as Refusal
from anabranch.cli.shared.api import as_seen_by, connect, json_option, refused, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.streams import can_be_asked
from anabranch.cli.shared.terminal import escaped
from anabranch.cli.shared.watching import watchable
from anabranch.cli.topics import dag
from anabranch.cli.topics.segments import held_back
from anabranch.cli.topics.subscriptions import subscriptions, tell
from anabranch.cli.topics.words import count_of, full_of, properties_of
from anabranch.core.autoscale.load import rate_in_words
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.names import parse_scalable_topic

_RATES: Final[dict[str, tuple[str, Callable[[LoadStats], float]]]] = {  # by column
    "MSG/S IN": ("msgRateIn", lambda load: load.msg_rate_in),
    "BYTES/S IN": ("bytesRateIn", lambda load: load.bytes_rate_in),
    "MSG/S OUT": ("msgRateOut", lambda load: load.msg_rate_out),
    "BYTES/S OUT": ("bytesRateOut", lambda load: load.bytes_rate_out),
}
_COLUMNS_MAX: Final = 160
# name: module of the commands that need the SDK, which the others need not wait for.
_WITH_SDK: Final = {
    "produce": "produce",
    "consume": "consume",
    "peek": "peek",
    "watch": "watch",
}


class _Topics(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *_WITH_SDK]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _WITH_SDK:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f".{_WITH_SDK[cmd_name]}", __package__)
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
@click.option("--segments", default=1, show_default=True, help="Number to begin with.")
@click.option(
    "--property", "given", multiple=True, metavar="K=V", help="A property; may be repeated."
)
@url_option
@json_option
def create(topic: str, segments: int, given: tuple[str, ...], url: str, as_json: bool) -> None:
    """Create TOPIC."""
    properties = properties_of(given)
    admin = connect(url)
    admin.scalable_topics.create_scalable_topic(topic, segments, properties)
    if as_json:
        write_json({"topic": full_of(topic), "segments": segments, "properties": properties})
        return
    click.echo(f"{full_of(topic)} is created, with {count_of(segments, 'segment')}")
    _say_scaling(as_seen_by(admin), topic)


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
@watchable
def list_(namespace: str, given: tuple[str, ...], url: str, as_json: bool) -> None:
    """List the topics of NAMESPACE.

    NAMESPACE is tenant/name; public/default if left out.
    """
    wanted = properties_of(given)
    found = sorted(connect(url).scalable_topics.list_scalable_topics(namespace, wanted))
    if as_json:
        write_json(found)
    else:
        click.echo("".join(f"{escaped(name)}\n" for name in found), nl=False)


@topics.command(epilog="Example: anabranch topics delete public/default/orders --yes")
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also if it has consumers, which end.")
@url_option
def delete(topic: str, yes: bool, force: bool, url: str) -> None:
    """Delete TOPIC with its subscriptions, segments and messages.

    Asks before, and wants --yes if nobody can be asked.
    """
    admin = connect(url)
    full = full_of(topic)
    if not yes:
        _ask_to_delete(admin, topic, full)
    admin.scalable_topics.delete_scalable_topic(topic, force=force)
    click.echo(f"{full} is deleted")


def _ask_to_delete(admin: Admin, topic: str, full: str) -> None:
    """Raises Abort when the answer is no, UsageError when nobody can give one."""
    if not can_be_asked():
        raise click.UsageError(
            f"deleting {full} loses all its messages, and nobody can be asked here: say --yes"
        )
    found = admin.scalable_topics.get_stats(topic)
    subscribed = count_of(len(found.subscriptions), "subscription")
    segments = count_of(found.total_segments, "segment")
    click.confirm(
        f"Delete {full} with its {subscribed}, {segments} and all messages?", abort=True, err=True
    )


@topics.command(epilog="Example: anabranch topics show public/default/orders")
@click.argument("topic")
@url_option
@json_option
@watchable
def show(topic: str, url: str, as_json: bool) -> None:
    """Draw the segments of TOPIC.

    The hash ring goes across, epochs downwards. A box is a segment. Segments that touch the double
    line at the foot take messages. The others are sealed, and lie above those that they were split
    or merged into. EPOCHS: from the one that made a segment to the one that sealed it. END OFFSETS:
    the ends of the buckets of a sealed segment.
    """
    found = connect(url).scalable_topics.get_metadata(topic)
    if as_json:
        write_json(found)
        return
    layout = SegmentLayout.from_metadata(msgspec.to_builtins(found, str_keys=True))
    active = len(layout.active)
    click.echo(
        f"{full_of(topic)}: epoch {layout.epoch}, {count_of(active, 'active segment')}, "
        f"{len(layout.segments) - active} sealed"
    )
    if layout.properties:
        click.echo(", ".join(escaped("=".join(each)) for each in layout.properties.items()))
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
@watchable
def stats(topic: str, url: str, as_json: bool) -> None:
    """Show segments with their load, subscriptions with their backlogs, and auto-scaling of TOPIC.

    Any client of Kafka can read the segments' Kafka topics; a group is that of a subscription.
    Rates are per second; one with a ~ is an estimate.
    """
    found = connect(url).scalable_topics.get_stats(topic)
    if as_json:
        write_json(found)
        return
    under_way = "" if found.operation == "NONE" else f", {found.operation} under way"
    click.echo(
        f"{full_of(topic)}: epoch {found.epoch}, "
        f"{count_of(found.active_segments, 'active segment')}, {found.sealed_segments} sealed"
        f"{under_way}"
    )
    for number, part in sorted(found.segments.items()):
        for what in part.findings:
            click.echo(f"segment {number}: {what}")
    if found.last_failure:
        click.echo(f"last failure: {escaped(found.last_failure)}")
    click.echo()
    table(
        ("SEGMENT", "STATE", "BUCKETS", *_RATES, "KAFKA TOPIC"),
        [
            (
                str(number),
                each.state,
                str(each.entry_buckets),
                *_rates(each.load),
                each.kafka_topic,
            )
            for number, each in sorted(found.segments.items())
        ],
    )
    if found.subscriptions:
        click.echo()
        tell(found.subscriptions)
    _tell_transactions(found)
    click.echo()
    _tell_scaling(found.auto_scale)


def _tell_transactions(found: TopicStats) -> None:
    """Says what keeps sealed segments from being read, if anything does."""
    lines = [
        each
        for number in sorted(found.segments)
        for each in held_back(number, found.segments[number])
    ]
    if found.open_transactions_unknown:
        lines.append(f"open transactions are not known: {found.open_transactions_unknown}")
    if lines:
        click.echo("\n" + "\n".join(lines))


def _rates(load: LoadStats | None) -> tuple[str, ...]:
    if load is None:
        return ("-",) * len(_RATES)
    return tuple(
        ("~" if field in load.estimated else "") + rate_in_words(rate_of(load))
        for field, rate_of in _RATES.values()
    )


def _tell_scaling(scale: AutoScaleStats) -> None:
    now = scale.now
    click.echo(f"auto-scaling now: {now.action} ({scale.fault or now.why})")
    for each in scale.decisions:
        at = datetime.fromtimestamp(each.at_ms / 1000, UTC)
        click.echo(f"  {at:%Y-%m-%d %H:%M:%S}Z  {each.action}: {each.why}")


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
    known = connect(url).scalable_topics
    if wanted:
        known.update_properties(topic, wanted)
    for name in gone:
        known.remove_property(topic, name)
    # The topic's controller answers, which has seen the changes.
    found = known.get_properties(topic)
    if as_json:
        write_json(found)
    else:
        click.echo(
            "".join(f"{escaped('='.join(each))}\n" for each in sorted(found.items())), nl=False
        )


# --- segments ---------------------------------------------------------------------------


@topics.command(epilog="Example: anabranch topics unload acme/shop/orders --dest node-2:8080")
@click.argument("topic")
@click.option(
    "--dest", metavar="HOST:PORT", default="", help="The broker that shall own its bundle next."
)
@url_option
def unload(topic: str, dest: str, url: str) -> None:
    """Take the bundle of TOPIC, and all topics of that, from its owner.

    TOPIC may be of another domain, too: persistent://tenant/namespace/name. The next look-up gives
    it to any broker, or to the one named.
    """
    connect(url).bundles.unload_topic(topic, dest)
    click.echo(f"the bundle of {topic} {f'belongs to {dest}' if dest else 'is unloaded'}")


@topics.command(epilog="Example: anabranch topics split public/default/orders 1")
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@url_option
@json_option
def split(topic: str, segment: int, url: str, as_json: bool) -> None:
    """Split a segment at the middle of its range.

    SEGMENT is its id, as `topics show` has it. Messages of its keys go to the two new ones.
    """
    admin = connect(url)
    with _looking_at(topic):
        admin.scalable_topics.split_segment(topic, segment)
    _say_children(admin, topic, [segment], f"segment {segment} is split", as_json)


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
    admin = connect(url)
    with _looking_at(topic):
        admin.scalable_topics.merge_segments(topic, first, second)
    what = f"segments {first} and {second} are merged"
    _say_children(admin, topic, [first, second], what, as_json)


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
    admin = connect(url)
    with _looking_at(topic):
        admin.scalable_topics.rebucket_segment(topic, segment, buckets)
    _say_children(admin, topic, [segment], f"segment {segment} is replaced", as_json)


@topics.command(epilog="Example: anabranch topics relocate public/default/orders 1 --off 3")
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0), required=False)
@click.option(
    "--off",
    type=click.IntRange(0),
    metavar="BROKER",
    help="Kafka's id of the broker to leave; else those that lead it, where others are there.",
)
@url_option
@json_option
def relocate(topic: str, segment: int | None, off: int | None, url: str, as_json: bool) -> None:
    """Move a segment to other brokers of Kafka.

    A new segment of the same range and buckets replaces SEGMENT (an id), and takes new messages.
    Messages of the old one stay, and are read there. Without SEGMENT each active one of TOPIC is
    moved, or with --off those that have a copy on that broker.
    """
    admin = connect(url)
    brokers = () if off is None else (off,)
    wanted = [segment] if segment is not None else _on(admin, topic, off)
    if not wanted:
        click.echo(f"no active segment of {full_of(topic)} has a copy on broker {off} of Kafka")
    for each in wanted:
        with _looking_at(topic):
            admin.scalable_topics.relocate_segment(topic, each, brokers)
        _say_children(admin, topic, [each], f"segment {each} is relocated", as_json)


def _on(admin: Admin, topic: str, broker: int | None) -> list[int]:
    """Returns the ids of the active segments; with `broker`, those that may have a copy there."""
    segments = admin.scalable_topics.get_stats(topic).segments
    return [
        number
        for number, each in sorted(segments.items())
        if each.state == "ACTIVE"
        and (broker is None or not each.kafka_replicas or broker in each.kafka_replicas)
    ]


@contextlib.contextmanager
def _looking_at(topic: str) -> Iterator[None]:
    """Says where to look if the segments are not as was thought. Raises RefusedError."""
    try:
        yield
    except Refusal as error:
        look = f"`anabranch topics show {parse_scalable_topic(topic)}` has the segments"
        raise refused(error, look if "egment" in error.reason else "") from error


def _say_children(admin: Admin, topic: str, parents: list[int], what: str, as_json: bool) -> None:
    """Prints the children; another change may have followed, or cleaned the parents away.

    Another node than the one that made the change may still tell the layout before it.
    """
    did = as_seen_by(admin)
    segments = did.scalable_topics.get_metadata(topic).segments
    ids = segments[parents[0]].child_ids if parents[0] in segments else []
    children = [segments[each] for each in ids if each in segments]
    if as_json:
        write_json({"topic": full_of(topic), "parents": parents, "children": children})
        return
    shown = ", ".join(map(_ranged, children))
    click.echo(f"{what}: {shown or 'see `topics show`'}")
    _say_scaling(did, topic)


def _ranged(part: Segment) -> str:
    return f"{part.segment_id} [{part.hash_range.start:04x}-{part.hash_range.end:04x}]"


def _say_scaling(did: Admin, topic: str) -> None:
    """Warns people that auto-scaling may change segments made by hand.

    It asks the node that made them. The change is done, so a node that cannot answer is no failure.
    """
    with contextlib.suppress(AdminError):
        scale = did.scalable_topics.get_stats(topic).auto_scale
        if scale.policy["enabled"].value and not scale.fault:
            name = parse_scalable_topic(topic)
            click.echo(
                "auto-scaling is on and may split and merge these segments again; to decide by "
                f"yourself: anabranch policy set {name} enabled=false",
                err=True,
            )


# --- subscriptions ----------------------------------------------------------------------

topics.add_command(subscriptions)
