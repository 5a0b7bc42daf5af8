"""`anabranch segments`: operators' actions on single segments of scalable topics."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import click
import msgspec
from confluent_kafka import Message

from anabranch.channel.segments.looks import strays as strays_of
from anabranch.cli.shared.api import CommandRefusedError, connect, json_lines_option, url_option
from anabranch.cli.shared.command import CommandGroup
from anabranch.cli.shared.output import said_as, shown
from anabranch.cli.shared.streams import can_be_asked
from anabranch.cli.shared.terminal import print_data
from anabranch.cli.topics.sdk import client_options, kafka_of, layout_of, open_client
from anabranch.cli.topics.words import count_of, full_of
from anabranch.client import Client, Segment, TopicLayout

_READ_S_MAX: Final = 60.0
_STRAYS_MAX: Final = 100_000


@click.group(cls=CommandGroup)
def segments() -> None:
    """Single segments of scalable topics.

    TOPIC is [topic://]tenant/namespace/name, SEGMENT an id, as `topics show` has it.

    Example: anabranch segments restore public/default/orders 3
    """


@segments.command()
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
def restore(topic: str, segment: int, yes: bool, url: str) -> None:
    """Go on without SEGMENT (an id), whose Kafka topic somebody has deleted.

    Its messages are lost, and the log says so. If it took messages, a new segment of its range
    takes them now; consumers wait for it no more. The node refuses while Kafka has the segment's
    topic. The command asks before, and wants --yes if nobody can be asked.

    Example: anabranch segments restore public/default/orders 3
    """
    known = connect(url).scalable_topics
    where = f"segment {segment} of {full_of(topic)}"
    for line in known.get_segment_stats(topic, segment).findings:
        click.echo(f"{where}: {line}", err=True)
    if not yes:
        if not can_be_asked():
            raise click.UsageError(
                "the segment's messages count as lost then, and nobody can be asked here: say --yes"
            )
        question = "Let the topic and its subscriptions go on without its messages?"
        click.confirm(question, abort=True, err=True)
    known.restore_segment(topic, segment)
    click.echo(f"{where}: the topic goes on without its messages")


@segments.command()
@click.argument("topic")
@click.argument("segment", type=click.IntRange(0))
@click.option("--send-on", is_flag=True, help="Send them to TOPIC anew, each once. Not repeatable.")
@client_options
@json_lines_option
def strays(topic: str, segment: int, send_on: bool, as_json: bool, **how: Any) -> None:
    """Print the messages behind the logged end of SEGMENT (an id), which no consumer delivers.

    They came while somebody had taken its seal away: PARTITION@OFFSET, key and value of each. With
    --send-on they are sent to TOPIC by their keys, with their headers and event times. Their
    consumers then get them from the segments that take messages now. They stay in SEGMENT, too:
    sent on twice, they are there twice. An event time of 0 cannot be sent, and becomes that of
    sending.

    Example: anabranch segments strays public/default/orders 3 --send-on
    """

    async def main() -> None:
        async with open_client(topic, **how) as client:
            layout = await layout_of(client, topic)
            part = _sealed(layout, segment)
            connection = kafka_of(client, layout)
            ends = part.info.end_offsets
            found = await asyncio.to_thread(
                strays_of, connection, part.kafka_topic, ends, _READ_S_MAX, _STRAYS_MAX
            )
            for message in found:
                _show(message, as_json)
            if send_on:
                await _send_on(client, topic, found)
            if not as_json:
                count = count_of(len(found), "message")
                click.echo(f"{count} behind the end of segment {segment}{_sent(send_on)}")

    asyncio.run(main())


def _sent(send_on: bool) -> str:
    return ", sent on" if send_on else ""


def _sealed(layout: TopicLayout, segment_id: int) -> Segment:
    """Raises CommandRefusedError."""
    part = layout.segments.get(segment_id)
    look = f"`anabranch topics show {layout.topic}` has the segments"
    if part is None:
        raise CommandRefusedError(f"{layout.topic} has no segment {segment_id}; {look}")
    if not part.info.end_offsets:
        raise CommandRefusedError(
            f"segment {segment_id} of {layout.topic} takes messages, and so has no end; {look}"
        )
    return part


async def _send_on(client: Client, topic: str, found: list[Message]) -> None:
    """One after another, in the order of each partition."""
    async with await client.create_producer(topic) as producer:
        for message in found:
            headers: Any = message.headers() or []
            time_ms = message.timestamp()[1]
            event_time_ms = time_ms if time_ms >= 0 else None
            await producer.send(
                message.value(), message.key(), headers=headers, event_time_ms=event_time_ms
            )


def _show(message: Message, as_json: bool) -> None:
    key: Any = message.key()
    value: Any = message.value()
    if as_json:
        said = {
            "partition": message.partition(),
            "offset": message.offset(),
            **said_as("key", key),
            **said_as("value", value),
        }
        click.echo(msgspec.json.encode(said).decode())
    else:
        place = f"{message.partition()}@{message.offset()}"
        print_data([place, shown(key), shown(value)])
