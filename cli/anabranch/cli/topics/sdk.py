"""The common part of commands that use the SDK: addresses of nodes, and ways to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from anabranch.admin import Admin, AdminError
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection, read_properties
from anabranch.channel.kafka.topics import check_kafka
from anabranch.cli.shared import interrupts
from anabranch.cli.shared.access import KAFKA_PROPERTIES_VARIABLE, Access, access
from anabranch.cli.shared.api import CommandRefusedError, connect
from anabranch.client import (
    AuthenticationError,
    Client,
    ConsumerBusyError,
    ConsumerFencedError,
    RefusedByNodeError,
    SubscriptionError,
    TopicNotFoundError,
    TopicSelection,
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
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_OPTIONS: Final = (
    click.option(
        "--service-url",
        metavar="pulsar://HOST:PORT[,...]",
        help="Nodes' port for clients; asked of --url if left.",
    ),
    click.option(
        "--kafka-properties",
        envvar=KAFKA_PROPERTIES_VARIABLE,
        show_envvar=True,
        type=_FILE,
        help="File of librdkafka security properties.",
    ),
)


class NoServiceError(AnabranchError):
    """A node does not say where clients connect to."""


def client_options(command: _F) -> _F:
    """Adds the options that `open_client` needs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextlib.asynccontextmanager
async def open_client(
    topic: str | None, url: str, service_url: str | None, kafka_properties: Path | None
) -> AsyncIterator[Client]:
    """Opens a client for one topic, or for many, while the block runs.

    A node's refusal becomes a CommandRefusedError, as over REST. Kafka's refusal to let the client
    in becomes a KafkaUnreachableError.
    """
    configure_sdk_log(sys.stderr)
    who = access()
    nodes = service_url if service_url else await asyncio.to_thread(_service_urls, url, who)
    properties = read_properties(kafka_properties)
    with telling_refusals():
        async with Client(
            nodes, tls=who.tls(), credentials=who.credentials(), kafka=properties
        ) as client:
            if topic is not None:
                watch = await client.watch(topic)
                layout = watch.layout
                await watch.close()
                connection = KafkaConnection(layout.bootstrap_servers, properties)
                await asyncio.to_thread(_knock, connection)
            yield client


@contextlib.contextmanager
def telling_refusals() -> Iterator[None]:
    """Turns a node's refusal of the SDK's client into a CommandRefusedError."""
    try:
        yield
    except _REFUSALS as error:
        raise CommandRefusedError(str(error)) from error


def selected(
    namespace: str | None, pattern: str | None, properties: tuple[str, ...]
) -> TopicSelection:
    """The topics that options mean. Raises InvalidInputError, UsageError."""
    wrong = [each for each in properties if "=" not in each]
    if wrong:
        raise click.UsageError(f"--property {wrong[0]} is not KEY=VALUE")
    if pattern == "":  # a variable of a script that is not set, and would mean all topics
        raise click.UsageError("--pattern is empty; leave it out, or give .* for all topics")
    wanted: dict[str, str] = {}
    for each in properties:
        key, value = each.split("=", 1)
        if wanted.setdefault(key, value) != value:
            raise click.UsageError(f"--property {key} is given twice, and a topic has it once")
    return TopicSelection(
        "public/default" if namespace is None else namespace, pattern or "", wanted
    )


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


def run_stoppable(main: Callable[[asyncio.Event], Coroutine[Any, Any, _T]]) -> _T:
    """Runs it with an event that SIGINT and SIGTERM set; a second signal ends the process."""

    async def watched() -> _T:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals) -> None:
            stopping.set()
            if number == signal.SIGINT:
                interrupts.note()
            loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await main(stopping)

    return asyncio.run(watched())


async def unless_stopped(what: Awaitable[_T], stopping: asyncio.Event) -> _T | None:
    """Returns the result, or None when the event came first; then it cancels `what`."""
    working = asyncio.ensure_future(what)
    asked = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, asked), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, asked):
            if not task.done():
                task.cancel()
        await asyncio.gather(working, asked, return_exceptions=True)


def _service_urls(url: str, who: Access) -> str:
    """The client port of the node asked first, then those of others that run.

    With TLS where that node is asked with TLS, and without where not.
    """
    with connect(url, who) as admin:
        found = [_service_url(admin, url)]
        me = admin.brokers.get_status().broker_id
        scheme = admin.answered_by.partition("://")[0]
        others = [each for each in admin.brokers.get_active_brokers() if each != me]
    for broker in others:
        if len(found) < _NODES_MAX:
            with (
                contextlib.suppress(AdminError, NoServiceError),
                connect(f"{scheme}://{broker}", who) as other,
            ):
                found.append(_service_url(other, broker))
    return _joined(found)


def service_urls(urls: Sequence[str], who: Access) -> str:
    """The client ports of those nodes, with TLS where they are asked with TLS.

    Raises AdminError, NoServiceError, InvalidInputError.
    """
    found = []
    for url in urls:
        with connect(url, who) as admin:
            found.append(_service_url(admin, url))
    return _joined(found)


def _joined(found: Sequence[str]) -> str:
    return found[0] + "".join("," + each.partition("://")[2] for each in found[1:])


def _service_url(admin: Admin, name: str) -> str:
    status = admin.brokers.get_status()
    is_tls = admin.answered_by.startswith("https:")
    found = status.service_url_tls if is_tls else status.service_url
    if not found:
        kind = " with TLS" if is_tls else ""
        raise NoServiceError(f"{name} does not say its port{kind} for clients; give --service-url")
    return found
