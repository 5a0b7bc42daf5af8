"""`anabranch topics`: scalable topics, their segments and their subscriptions."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from anabranch.admin import Admin, AdminError, Layout, LoadStats, Segment, TopicStats
from anabranch.admin import RefusedError as Refusal
from anabranch.cli.shared.api import (
    answers,
    as_seen_by,
    changes,
    connect,
    json_option,
    lines,
    refused,
    url_option,
)
from anabranch.cli.shared.command import LazyGroup
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.streams import can_be_asked
from anabranch.cli.shared.terminal import escaped
from anabranch.cli.topics import dag
from anabranch.cli.topics.subscriptions import subscriptions, tell
from anabranch.cli.topics.words import count_of, full_of, properties_of
from anabranch.core.autoscale.load import rate_in_words
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.names import parse_scalable_topic

_RATES: Final[dict[str, Callable[[LoadStats], float]]] = {  # by column
    "MSG/S IN": lambda load: load.msg_rate_in,
    "BYTES/S IN": lambda load: load.bytes_rate_in,
    "MSG/S OUT": lambda load: load.msg_rate_out,
    "BYTES/S OUT": lambda load: load.bytes_rate_out,
}
_COLUMNS_MAX: Final = 160
_SHOWN_MAX: Final = 10  # new segments
_topic = click.argument("topic")
_segment = click.argument("segment", type=click.IntRange(0))
# They need the SDK, which the others need not wait for.
_WITH_SDK: Final = {
    "produce": ("cli.topics.produce", "Send each line to TOPIC, as KEY<TAB>VALUE."),
    "consume": ("cli.topics.consume", "Print the messages of TOPIC, each with its place."),
    "peek": ("cli.topics.consume", "Print some messages of TOPIC, which stay as they are."),
    "flatten": ("cli.topics.flatten", "Copy TOPIC into a plain Kafka topic, in order by key."),
    "survey": ("cli.topics.survey", "Look at a Kafka topic before its adoption."),
    "adopt": ("cli.topics.adopt", "Let a Kafka topic become a scalable topic where it lies."),
    "release": ("cli.topics.adopt", "Forget an adopted topic that was not cut over."),
}


@click.group(cls=LazyGroup, modules=_WITH_SDK)
def topics() -> None:
    """Scalable topics: keyed topics whose segments split and merge while they are used.

    TOPIC is [topic://]tenant/namespace/name.

    Example: anabranch topics show public/default/orders
    """


@topics.command()
@_topic
@click.option("--segments", default=1, help="Number to begin with.")
@click.option(
    "--property", "given", multiple=True, metavar="K=V", help="A property; may be repeated."
)
@url_option
@json_option
def create(topic: str, segments: int, given: tuple[str, ...], url: str, as_json: bool) -> None:
    """Create TOPIC.

    Example: anabranch topics create public/default/orders --segments 4
    """
    properties = properties_of(given)
    admin = connect(url)
    admin.scalable_topics.create_scalable_topic(topic, segments, properties)
    if as_json:
        write_json({"topic": full_of(topic), "segments": segments, "properties": properties})
        return
    click.echo(f"{full_of(topic)} is created, with {count_of(segments, 'segment')}")
    _say_scaling(as_seen_by(admin), topic)


@topics.command("list")
@click.argument("namespace", default="public/default")
@click.option(
    "--property",
    "given",
    multiple=True,
    metavar="K=V",
    help="Only topics that have it; may be repeated.",
)
@answers(lines)
def list_(admin: Admin, namespace: str, given: tuple[str, ...]) -> list[str]:
    """List the topics of NAMESPACE.

    NAMESPACE is tenant/name; public/default if left out.

    Example: anabranch topics list public/default --property team=shop
    """
    wanted = properties_of(given)
    return sorted(admin.scalable_topics.list_scalable_topics(namespace, wanted))


@topics.command()
@_topic
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also if it has consumers, which end.")
@changes
def delete(admin: Admin, topic: str, yes: bool, force: bool) -> str:
    """Delete TOPIC with its subscriptions, segments and messages.

    Asks before, and wants --yes if nobody can be asked.

    Example: anabranch topics delete public/default/orders --yes
    """
    full = full_of(topic)
    if not yes:
        if not can_be_asked():
            raise click.UsageError(
                f"deleting {full} loses all its messages, and nobody can be asked here: say --yes"
            )
        found = admin.scalable_topics.get_stats(topic)
        subscribed = count_of(len(found.subscriptions), "subscription")
        segments = count_of(found.total_segments, "segment")
        question = f"Delete {full} with its {subscribed}, {segments} and all messages?"
        click.confirm(question, abort=True, err=True)
    admin.scalable_topics.delete_scalable_topic(topic, force=force)
    return f"{full} is deleted"


def _draw(found: Layout, topic: str) -> None:
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


@topics.command()
@_topic
@answers(_draw, "topic")
def show(admin: Admin, topic: str) -> Layout:
    """Draw the segments of TOPIC.

    The hash ring goes across, epochs downwards. A box is a segment. Segments that touch the double
    line at the foot take messages. The others are sealed, and lie above those that they were split
    or merged into. EPOCHS: from the one that made a segment to the one that sealed it. END OFFSETS:
    the ends of the buckets of a sealed segment.

    Example: anabranch topics show public/default/orders
    """
    return admin.scalable_topics.get_metadata(topic)


def _tell_stats(found: TopicStats, topic: str) -> None:
    under_way = "" if found.operation == "NONE" else f", {found.operation} under way"
    click.echo(
        f"{full_of(topic)}: epoch {found.epoch}, "
        f"{count_of(found.active_segments, 'active segment')}, {found.sealed_segments} sealed"
        f"{under_way}"
    )
    segments = sorted(found.segments.items())
    for number, part in segments:
        for what in part.findings:
            click.echo(f"segment {number}: {what}")
    if found.last_failure:
        click.echo(f"last failure: {escaped(found.last_failure)}")
    click.echo()
    table(
        ("SEGMENT", "STATE", "BUCKETS", *_RATES, "KAFKA TOPIC"),
        [
            (str(number), each.state, str(each.entry_buckets), *_rates(each.load), each.kafka_topic)
            for number, each in segments
        ],
    )
    if found.subscriptions:
        click.echo()
        tell(found.subscriptions)
    _tell_transactions(found)
    scale = found.auto_scale
    click.echo(f"\nauto-scaling now: {scale.now.action} ({scale.fault or scale.now.why})")
    for decision in scale.decisions:
        at = datetime.fromtimestamp(decision.at_ms / 1000, UTC)
        click.echo(f"  {at:%Y-%m-%d %H:%M:%S}Z  {decision.action}: {decision.why}")


@topics.command()
@_topic
@answers(_tell_stats, "topic")
def stats(admin: Admin, topic: str) -> TopicStats:
    """Show segments with their load, subscriptions with their backlogs, and auto-scaling of TOPIC.

    Any client of Kafka can read the segments' Kafka topics; a group is that of a subscription.
    Rates are per second.

    Example: anabranch topics stats public/default/orders --json
    """
    return admin.scalable_topics.get_stats(topic)


def _tell_transactions(found: TopicStats) -> None:
    """Says what keeps sealed segments from being read, if anything does."""
    held = [
        f"segment {number}, bucket {each.bucket}: read up to {each.start_offset} only, because a "
        "transaction is open there; `kafka-transactions.sh describe-producers` shows whose"
        for number, part in sorted(found.segments.items())
        for each in part.open_transactions
    ]
    if found.open_transactions_unknown:
        held.append(f"open transactions are not known: {found.open_transactions_unknown}")
    if held:
        click.echo("\n" + "\n".join(held))


def _rates(load: LoadStats | None) -> tuple[str, ...]:
    if load is None:
        return ("-",) * len(_RATES)
    return tuple(rate_in_words(rate_of(load)) for rate_of in _RATES.values())


@topics.command()
@_topic
@click.option("--set", "given", multiple=True, metavar="K=V", help="Set it; may be repeated.")
@click.option("--remove", "gone", multiple=True, metavar="K", help="Remove it; may be repeated.")
@answers(lambda found: lines("=".join(each) for each in sorted(found.items())))
def properties(
    admin: Admin, topic: str, given: tuple[str, ...], gone: tuple[str, ...]
) -> dict[str, str]:
    """Show the properties of TOPIC, after changing them.

    Example: anabranch topics properties public/default/orders --set team=shop --remove x
    """
    wanted = properties_of(given, "--set")
    both = sorted(wanted.keys() & set(gone))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be set and removed at once")
    known = admin.scalable_topics
    if wanted:
        known.update_properties(topic, wanted)
    for name in gone:
        known.remove_property(topic, name)
    # The topic's controller answers, which has seen the changes.
    return known.get_properties(topic)


# --- segments ---------------------------------------------------------------------------


@topics.command()
@_topic
@click.option(
    "--dest",
    metavar="HOST:PORT",
    default="",
    show_default=False,
    help="The broker that shall own its bundle next.",
)
@changes
def unload(admin: Admin, topic: str, dest: str) -> str:
    """Take the bundle of TOPIC, and all topics of that, from its owner.

    TOPIC may be of another domain, too: persistent://tenant/namespace/name. The next look-up gives
    it to any broker, or to the one named.

    Example: anabranch topics unload acme/shop/orders --dest node-2:8080
    """
    admin.bundles.unload_topic(topic, dest)
    return f"the bundle of {topic} {f'belongs to {dest}' if dest else 'is unloaded'}"


def _replaces(act: Callable[..., Iterator[tuple[list[int], str]]]) -> Callable[..., None]:
    """Makes a command of what replaces segments, and yields their ids with what was done."""

    @url_option
    @json_option
    @functools.wraps(act)
    def command(topic: str, url: str, as_json: bool, **given: Any) -> None:
        admin = connect(url)
        try:
            for parents, what in act(admin, topic, **given):
                _say_children(admin, topic, parents, what, as_json)
        except Refusal as error:  # the segments may not be as was thought
            look = f"`anabranch topics show {parse_scalable_topic(topic)}` has the segments"
            raise refused(error, look if "egment" in error.reason else "") from error

    return command


@topics.command()
@_topic
@_segment
@_replaces
def split(admin: Admin, topic: str, segment: int) -> Iterator[tuple[list[int], str]]:
    """Split a segment at the middle of its range.

    SEGMENT is its id, as `topics show` has it. Messages of its keys go to the two new ones.

    Example: anabranch topics split public/default/orders 1
    """
    admin.scalable_topics.split_segment(topic, segment)
    yield [segment], f"segment {segment} is split"


@topics.command()
@_topic
@click.argument("first", type=click.IntRange(0))
@click.argument("second", type=click.IntRange(0))
@_replaces
def merge(admin: Admin, topic: str, first: int, second: int) -> Iterator[tuple[list[int], str]]:
    """Merge two neighbouring segments.

    FIRST and SECOND are their ids, in any order, as `topics show` has them.

    Example: anabranch topics merge public/default/orders 2 3
    """
    admin.scalable_topics.merge_segments(topic, first, second)
    yield [first, second], f"segments {first} and {second} are merged"


@topics.command()
@_topic
@_segment
@click.argument("buckets", type=click.IntRange(1))
@_replaces
def rebucket(
    admin: Admin, topic: str, segment: int, buckets: int
) -> Iterator[tuple[list[int], str]]:
    """Give a segment another number of buckets.

    SEGMENT (an id) is replaced by one of the same range with BUCKETS buckets (Kafka partitions).

    Example: anabranch topics rebucket public/default/orders 1 8
    """
    admin.scalable_topics.rebucket_segment(topic, segment, buckets)
    yield [segment], f"segment {segment} is replaced"


@topics.command()
@_topic
@click.option(
    "--segments",
    required=True,
    type=click.IntRange(1),
    help="So many active segments, of equal size.",
)
@click.option(
    "--buckets",
    type=click.IntRange(1),
    help="The buckets of each; without it new segments share out those that they replace.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="At the cut-over of an adopted topic: its Kafka topic stays in the layout for ever.",
)
@click.option("--yes", is_flag=True, help="Do not ask before the cut-over of an adopted topic.")
@_replaces
def prepare(
    admin: Admin, topic: str, segments: int, buckets: int | None, keep: bool, yes: bool
) -> Iterator[tuple[list[int], str]]:
    """Give a topic more or fewer segments at once, before its load changes.

    All segments that have another range are replaced in one operation. Auto-scaling goes on with
    the new ones; with `anabranch policy set TOPIC minSegments=8` it keeps so many at least.

    Example: anabranch topics prepare public/default/orders --segments 8
    """
    before = admin.scalable_topics.get_metadata(topic).segments
    if not yes and any(part.legacy and part.active for part in before.values()):
        if not can_be_asked():
            raise click.UsageError(
                "plain producers of the adopted Kafka topic are refused from then on, and nobody "
                "can be asked here: say --yes"
            )
        question = "Cut the adopted Kafka topic over? Its plain producers are refused then."
        click.confirm(question, abort=True, err=True)
    admin.scalable_topics.prepare_segments(topic, segments, buckets, keep=keep)
    active = [each for each, part in before.items() if part.state == "ACTIVE"]
    yield active, f"{full_of(topic)} has {count_of(segments, 'active segment')}"


def _say_children(admin: Admin, topic: str, parents: list[int], what: str, as_json: bool) -> None:
    """Prints the children; another change may have followed, or cleaned the parents away.

    Another node than the one that made the change may still tell the layout before it.
    """
    did = as_seen_by(admin)
    segments = did.scalable_topics.get_metadata(topic).segments
    gone = [each for each in parents if each not in segments or segments[each].state != "ACTIVE"]
    ids = {child for each in gone if each in segments for child in segments[each].child_ids}
    children = [segments[each] for each in sorted(ids) if each in segments]
    if as_json:
        write_json({"topic": full_of(topic), "parents": gone, "children": children})
        return
    shown = ", ".join(map(_ranged, children[:_SHOWN_MAX]))
    shown += f" and {len(children) - _SHOWN_MAX} more" if len(children) > _SHOWN_MAX else ""
    click.echo(f"{what}: {shown or ('see `topics show`' if gone else 'nothing to do')}")
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


topics.add_command(subscriptions)
