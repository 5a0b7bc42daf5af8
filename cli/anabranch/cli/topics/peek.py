"""`anabranch topics peek`: a look at a topic's messages, without a subscription."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from anabranch.cli.shared.api import json_lines_option, url_option
from anabranch.cli.topics.consume import print_json, print_line
from anabranch.cli.topics.sdk import client_options, open_client
from anabranch.cli.topics.subscriptions import place_of
from anabranch.client import Message


@click.command(epilog="Example: anabranch topics peek public/default/orders --max 3")
@click.argument("topic")
@click.option(
    "--max",
    "most",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Number of messages.",
)
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="The first ones, the last ones, or those of a time (ISO 8601, or milliseconds since 1970) "
    "and later.",
)
@client_options
@url_option
@json_lines_option
def peek(
    topic: str,
    most: int,
    start: str,
    service_url: str | None,
    kafka_properties: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Print some messages of TOPIC, in the order of their event times; nothing is acknowledged.

    Each with its place: SEGMENT/BUCKET@OFFSET, key and value. It needs no subscription, and leaves
    none. With --json, a key or value that is no UTF-8 is in keyBase64 or valueBase64 too.
    """
    begin = place_of(start, "--from")

    async def main() -> list[Message]:
        async with open_client(topic, url, service_url, kafka_properties) as client:
            return await client.peek(topic, most, start=begin)

    show = print_json if as_json else print_line
    for message in asyncio.run(main()):
        show(message)
