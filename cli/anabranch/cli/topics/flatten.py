"""`anabranch topics flatten`: a scalable topic is copied into a plain Kafka topic, in order.

The copy reads as a consumer of its own subscription does. So a segment's messages come after those
of its parents, and nothing is deleted before it is copied.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import click

from anabranch.admin import SubscriptionStats
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.cli.shared.access import access
from anabranch.cli.shared.api import CommandRefusedError, connect
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.stopping import run_stoppable, unless_stopped
from anabranch.cli.topics.flat_groups import begin_groups
from anabranch.cli.topics.flat_topic import FlatSource, FlatTopic, Place
from anabranch.cli.topics.sdk import client_options, kafka_of, open_client
from anabranch.cli.topics.words import count_of, full_of, names_of
from anabranch.client import (
    BucketLostError,
    CheckpointConsumer,
    Client,
    DeadlineError,
    LayoutWatch,
    PositionGoneError,
    Segment,
    TopicLayout,
)
from anabranch.core.names import subscription as subscription_name
from anabranch.core.partitioners import Partitioner

_T = TypeVar("_T")

_ALL: Final = "all"
_CONSUMER: Final = "flatten"  # one name, so that a run takes over from one that was killed
_AT_ONCE: Final = 2_000  # messages of a transaction
_QUIET_S: Final = 0.5


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "--into",
    "kafka_topic",
    required=True,
    metavar="KAFKA_TOPIC",
    help="A plain Kafka topic, which is there and empty, or filled by this command before.",
)
@click.option(
    "--partitioner",
    type=click.Choice([each.value for each in Partitioner]),
    help="How a key finds its partition there; else as in the Kafka topic that TOPIC was made of, "
    "or murmur2, as Java's producers do.",
)
@click.option(
    "--groups",
    metavar="SUBSCRIPTION,...|all",
    help="Let a Kafka group of the same name begin in the copy where each of these has come to.",
)
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@client_options
def flatten(
    topic: str,
    kafka_topic: str,
    partitioner: str | None,
    groups: str | None,
    follow: bool,
    **how: Any,
) -> None:
    """Copy all messages of TOPIC into KAFKA_TOPIC, for clients without the SDK.

    Each key's messages keep their order, whatever splits and merges TOPIC has seen. Readers of
    committed messages get each once. The command ends when it has copied what was there when it
    began. Run it again for what came since: it goes on where it was, also after a crash.

    A subscription named flatten-KAFKA_TOPIC keeps its place. Delete that at the end. With ACLs the
    command needs Write on KAFKA_TOPIC, Write on transactional ids and Read on groups that begin
    with flatten-, and Read on the groups of --groups.

    Example: anabranch topics flatten public/default/orders --into orders-flat --groups all
    """
    subscription = subscription_name(f"flatten-{kafka_topic}")

    async def main(stopping: asyncio.Event) -> None:
        async with open_client(topic, **how) as client, _watched(client, topic) as watch:
            layout = watch.layout
            _must_be_another(kafka_topic, layout)
            chosen = Partitioner(partitioner or _partitioner_of(layout))
            connection = kafka_of(client, layout)
            flat = FlatTopic(connection, kafka_topic, chosen)
            thread = _Thread()
            known = await asyncio.to_thread(_subscriptions, how["url"], topic)
            try:
                was_filled = await thread.run(lambda: flat.open(_source_of(layout)))
                _must_be_whole(was_filled and subscription not in known, kafka_topic)
                _warn_of_retention(flat)
                copies = _Copies(thread, flat, watch)
                count = await copies.run(client, topic, subscription, stopping, follow=follow)
                click.echo(f"{count_of(count, 'message')} copied to Kafka topic {kafka_topic}")
                if groups:
                    known = await asyncio.to_thread(_subscriptions, how["url"], topic)
                    for said in await thread.run(lambda: _begun(connection, flat, known, groups)):
                        click.echo(said)
            except PositionGoneError as error:
                raise CommandRefusedError(
                    f"{error}. Kafka topic {kafka_topic} would have a gap: name an empty one"
                ) from None
            finally:
                await thread.run(flat.close)
                thread.end()

    run_stoppable(main)


class _Thread:
    """The one thread in which blocking calls are made."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "flatten")

    async def run(self, call: Callable[[], _T]) -> _T:
        """Waits for the call, also if it is cancelled meanwhile."""
        work = asyncio.get_running_loop().run_in_executor(self._pool, call)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def end(self) -> None:
        self._pool.shutdown()


class _Copies:
    """The copying of one run, on its event loop."""

    def __init__(self, thread: _Thread, flat: FlatTopic, watch: LayoutWatch) -> None:
        self._thread = thread
        self._flat = flat
        self._watch = watch

    async def run(
        self,
        client: Client,
        topic: str,
        subscription: str,
        stopping: asyncio.Event,
        *,
        follow: bool,
    ) -> int:
        """Copies what is there now, or until it is stopped; returns the number of messages."""
        count = 0
        async with await client.subscribe_checkpoint(
            topic, subscription, _CONSUMER, position_of=self._position_of
        ) as consumer:
            opened = _places(self._watch.layout.active)
            ends = None if follow else await self._thread.run(lambda: self._flat.ends(opened))
            while not stopping.is_set() and not self._is_done(consumer, ends):
                try:
                    batch = await unless_stopped(
                        consumer.receive_many(_AT_ONCE, timeout_s=_QUIET_S), stopping
                    )
                except DeadlineError:
                    batch = None
                if batch is not None:
                    count += await self._thread.run(partial(self._flat.copy, batch))
                with contextlib.suppress(BucketLostError):  # its copies are known all the same
                    consumer.saved(consumer.checkpoint())
            reached = self._reached(consumer)
            await self._thread.run(lambda: self._flat.note(reached))
        return count

    def _reached(self, consumer: CheckpointConsumer) -> dict[Place, int]:
        """Returns the positions, which pass over the ends of transactions, too."""
        parts, found = self._watch.layout.segments, consumer.checkpoint().positions
        return {
            (parts[number].kafka_topic, bucket): offset
            for number, buckets in found.items()
            if number in parts
            for bucket, offset in buckets.items()
        }

    async def _position_of(self, segment_id: int, bucket: int) -> int | None:
        part = self._watch.layout.segments.get(segment_id)
        if part is None:
            return None
        return await self._thread.run(lambda: self._flat.position((part.kafka_topic, bucket)))

    def _is_done(self, consumer: CheckpointConsumer, ends: Mapping[Place, int] | None) -> bool:
        """Tells whether all is copied up to there; what left the layout was copied before.

        A bucket has no position before all that its segment descends from is copied.
        """
        if ends is None:
            return False
        checkpoint, parts = consumer.checkpoint(), self._watch.layout.segments
        numbers = {part.kafka_topic: number for number, part in parts.items()}

        def has_begun(number: int) -> bool:
            children = [each for each in parts[number].info.child_ids if each in parts]
            return number in checkpoint.positions or any(map(has_begun, children))

        def is_copied(place: Place, end: int) -> bool:
            if place[0] not in numbers:
                return True
            number = numbers[place[0]]
            info = parts[number].info
            if info.end_offsets:  # a probe of its seal is no message
                end = min(end, info.end_offsets[place[1]])
            known = checkpoint.position(number, place[1]), self._flat.reached(place)
            if any(position is not None and position >= end for position in known):
                return True
            return any(has_begun(each) for each in info.child_ids if each in parts)

        return all(is_copied(place, end) for place, end in ends.items())


@contextlib.asynccontextmanager
async def _watched(client: Client, topic: str) -> AsyncIterator[LayoutWatch]:
    watch = await client.watch(topic)
    try:
        yield watch
    finally:
        await watch.close()


def _must_be_another(kafka_topic: str, layout: TopicLayout) -> None:
    """Raises CommandRefusedError for a Kafka topic of the scalable topic itself."""
    own = {part.kafka_topic for part in (*layout.segments.values(), *layout.children)}
    if kafka_topic in own or kafka_topic == layout.adopted_from:
        raise CommandRefusedError(
            f"Kafka topic {kafka_topic} is a part of {full_of(layout.topic)}: name another one"
        )


def _partitioner_of(layout: TopicLayout) -> str:
    legacy = (part.info.partitioner for part in layout.segments.values() if part.info.is_legacy)
    return next(filter(None, legacy), Partitioner.MURMUR2.value)


def _places(parts: Iterable[Segment]) -> list[Place]:
    return [(part.kafka_topic, bucket) for part in parts for bucket in range(part.info.buckets)]


def _source_of(layout: TopicLayout) -> FlatSource:
    names = {number: part.kafka_topic for number, part in layout.segments.items()}
    return FlatSource(layout.incarnation, names, _places(layout.segments.values()))


def _must_be_whole(is_bare: bool, kafka_topic: str) -> None:
    """Raises CommandRefusedError if nothing has kept the messages since the last run."""
    if is_bare:
        raise CommandRefusedError(
            f"Kafka topic {kafka_topic} has copies, and the subscription flatten-{kafka_topic} was "
            "deleted since, so that messages may be gone: name an empty Kafka topic"
        )


def _warn_of_retention(flat: FlatTopic) -> None:
    settings = flat.settings
    found = [
        f"{name}={settings[name]}"
        for name, for_ever in (
            ("cleanup.policy", "delete"),
            ("retention.ms", "-1"),
            ("retention.bytes", "-1"),
        )
        if settings.get(name, for_ever) != for_ever
    ]
    if found:
        click.echo(
            f"anabranch: Kafka deletes copies from {flat.name} by {', '.join(found)}; they have "
            "the times of their messages",
            err=True,
        )


def _subscriptions(url: str, topic: str) -> Mapping[str, SubscriptionStats]:
    with connect(url, access()) as admin:
        return admin.scalable_topics.get_stats(topic).subscriptions


def _begun(
    connection: KafkaConnection,
    flat: FlatTopic,
    known: Mapping[str, SubscriptionStats],
    groups: str,
) -> list[str]:
    """Lets the groups begin; returns what became of each."""
    streams = {name: each.positions for name, each in known.items() if each.type == "STREAM"}
    wanted = list(streams) if groups == _ALL else names_of(groups)
    said = [
        f"subscription {each} has no position that is known: it is not there, or no stream, or "
        "Kafka does not tell"
        for each in wanted
        if not streams.get(each)
    ]
    found = {each: streams[each] for each in wanted if streams.get(each)}
    return [*said, *begin_groups(connection, flat, found)]
