"""The common part of commands that use the SDK: addresses of nodes, and ways to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from anabranch.access import kafka_tokens
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import check_kafka
from anabranch.cli.shared.access import Access, access, kafka_flags
from anabranch.cli.shared.api import CommandRefusedError, connect, url_option
from anabranch.client import (
    AuthenticationError,
    Client,
    ConsumerBusyError,
    ConsumerFencedError,
    RefusedByNodeError,
    SubscriptionError,
    TopicLayout,
    TopicNotFoundError,
)
from anabranch.core.errors import AnabranchError
from anabranch.wire.logging import ROOT as LOG_ROOT

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")
_KNOCK_S_MAX: Final = 5.0
_NODES_MAX: Final = 3  # that a client is told of, so that it does not hang on one
_REFUSALS: Final = (
    AuthenticationError,
    TopicNotFoundError,
    RefusedByNodeError,
    ConsumerBusyError,
    ConsumerFencedError,
    SubscriptionError,
)
_OPTIONS: Final = (
    url_option,
    click.option(
        "--service-url",
        metavar="pulsar://HOST:PORT[,...]",
        help="Nodes' port for clients; asked of --url if left.",
    ),
    kafka_flags,
)


class NoServiceError(AnabranchError):
    """A node does not say where clients connect to."""


def client_options(command: _F) -> _F:
    """Adds the options that `open_client` takes besides the topic."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextlib.asynccontextmanager
async def open_client(
    topic: str | None,
    url: str,
    service_url: str | None,
    kafka_properties: Path | None,
    kafka_token_provider: str | None,
) -> AsyncIterator[Client]:
    """Opens a client for one topic, or for many, while the block runs.

    A node's refusal becomes a CommandRefusedError, as over REST. Kafka's refusal to let the client
    in becomes a KafkaUnreachableError.
    """
    configure_sdk_log(sys.stderr)
    who = access()
    nodes = service_url if service_url else await asyncio.to_thread(_service_urls, url, who)
    try:
        async with Client(
            nodes,
            tls=who.tls(),
            credentials=who.credentials(),
            kafka=kafka_properties,
            kafka_token=kafka_token_provider,
        ) as client:
            if topic is not None:
                connection = kafka_of(client, await layout_of(client, topic))
                await asyncio.to_thread(_knock, connection)
            yield client
    except _REFUSALS as error:
        raise CommandRefusedError(str(error)) from error


def kafka_of(client: Client, layout: TopicLayout) -> KafkaConnection:
    """Returns how the client reaches a topic's Kafka."""
    servers = layout.bootstrap_servers
    return KafkaConnection(servers, kafka_tokens.at(client.kafka, servers))


async def layout_of(client: Client, topic: str) -> TopicLayout:
    """Returns the topic's present layout."""
    watch = await client.watch(topic)
    try:
        return watch.layout
    finally:
        await watch.close()


def _knock(connection: KafkaConnection) -> None:
    """Tells soon an error that the SDK, which goes on trying, would tell late or never.

    Raises KafkaUnreachableError if Kafka does not let us in. A Kafka that is not there may come.
    """
    try:
        check_kafka(connection, _KNOCK_S_MAX)
    except KafkaUnreachableError as error:
        if connection.refusals.last:
            raise
        click.echo(f"anabranch: {error}. Waiting for it", err=True)


def configure_sdk_log(to: TextIO, level: int = logging.ERROR) -> None:
    """Sends the SDK's log lines there, never between the lines of a command's output."""
    handler = logging.StreamHandler(to)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log = logging.getLogger(LOG_ROOT)
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False


def _service_urls(url: str, who: Access) -> str:
    """The client ports of some nodes that run, with TLS where the node asked has it."""
    with connect(url, who) as admin:
        told = admin.brokers.list_addresses()
        is_tls = admin.answered_by.startswith("https:")
    urls = [each.broker_service_url_tls if is_tls else each.broker_service_url for each in told]
    found = list(dict.fromkeys(filter(None, urls)))[:_NODES_MAX]  # a proxy tells its own for each
    if not found:
        kind = " with TLS" if is_tls else ""
        raise NoServiceError(f"{url} does not say its port{kind} for clients; give --service-url")
    return found[0] + "".join("," + each.partition("://")[2] for each in found[1:])
