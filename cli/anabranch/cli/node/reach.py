"""A client's needs of the network, checked from the place where the command is run.

A client asks a node, or a proxy, by two ports, and takes its messages from Kafka itself. So it must
reach every address that those two tell it, the advertised ones, and not only the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from confluent_kafka import KafkaException

from anabranch.access import Credentials, CredentialsError, Tls, TlsFiles
from anabranch.admin import Admin, AdminError
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.cli.node.findings import Finding, NotWellError, checked
from anabranch.cli.shared.access import Access, access
from anabranch.cli.shared.api import connect as administer
from anabranch.cli.topics.words import count_of
from anabranch.wire.client import connect
from anabranch.wire.errors import AuthenticationError, ConnectError

_CONNECT_S_MAX: Final = 5.0


def examine_reach(url: str, kafka: str, security: Mapping[str, str]) -> Iterator[Finding]:
    """A node or proxy, the port for clients that it names, and Kafka's brokers.

    `kafka`: bootstrap servers, "" for those that clients of the cluster are told.
    """
    who = access()
    with administer(url, who) as admin:
        answers = checked("http", lambda: _answers(admin))
        yield answers
        if answers.ok:
            yield checked("clients' port", lambda: _service(admin, who))
            yield checked("concerns", lambda: _concerns(admin, who))
            told = checked("kafka is told as", lambda: kafka or _told(admin))
            yield told
            kafka = told.found if told.ok else ""
    if kafka:
        yield from examine_kafka(KafkaConnection(kafka, security, "anabranch-doctor"))


def examine_kafka(connection: KafkaConnection) -> Iterator[Finding]:
    """Yields a finding for each address that Kafka's brokers advertise: it tells if the address
    answers.
    """
    servers = connection.bootstrap_servers
    try:
        brokers = connection.admin().list_topics(timeout=KAFKA_S_MAX).brokers.values()
    except KafkaException as error:
        yield Finding(
            "kafka",
            ok=False,
            found=f"{servers} does not answer from here ({error.args[0].str()}): open the way to "
            "it, or name those that can be reached with --bootstrap-servers",
        )
        return
    for broker in sorted(brokers, key=lambda each: each.id):
        look = partial(_listener, broker.id, str(broker.host), int(broker.port))
        yield checked(f"kafka broker {broker.id}", look)


def _answers(admin: Admin) -> str:
    status = admin.brokers.get_status()
    return f"{admin.answered_by} reaches node {status.broker_id}, which is {status.mode}"


def _service(admin: Admin, who: Access) -> str:
    status = admin.brokers.get_status()
    is_tls = admin.answered_by.startswith("https:")
    url = status.service_url_tls if is_tls else status.service_url
    where = urlsplit(url)
    if not where.hostname or not where.port:
        port = "brokerServicePortTls" if is_tls else "brokerServicePort"
        raise NotWellError(f"{admin.answered_by} names no port for clients: set {port}")
    try:
        tls = TlsFiles(who.tls() or Tls()) if is_tls else None
        asyncio.run(_shaken_hands(where.hostname, where.port, tls, who.credentials()))
    except (AuthenticationError, CredentialsError) as error:
        raise NotWellError(str(error)) from None
    except ConnectError as error:
        raise NotWellError(
            f"{error}, though {admin.answered_by} tells clients to go to {url}: set "
            "advertisedAddress to a name that is known here and open that port, or run "
            "`anabranch proxy` where both sides reach it"
        ) from None
    return f"{url} answers"


def _concerns(admin: Admin, who: Access) -> str:
    """Raises the concerns of all nodes: each knows only those of its own segments."""
    is_tls = admin.answered_by.startswith("https:")
    asked, concerns = 0, []
    for each in admin.brokers.list_addresses():
        url = each.web_service_url_tls if is_tls else each.web_service_url
        with contextlib.suppress(AdminError), administer(url, who) as node:
            concerns += node.brokers.get_status().concerns
            asked += 1
    if not asked:  # behind a proxy
        concerns = admin.brokers.get_status().concerns
    if concerns:
        raise NotWellError("; ".join(concerns))
    return f"{count_of(asked or 1, 'node')} asked, which have none"


async def _shaken_hands(
    host: str, port: int, tls: TlsFiles | None, credentials: Credentials | None
) -> None:
    connection = await connect(
        host, port, timeout_s=_CONNECT_S_MAX, tls=tls, credentials=credentials
    )
    connection.close("the doctor has seen enough")
    await asyncio.wait([connection.closed], timeout=_CONNECT_S_MAX)


def _told(admin: Admin) -> str:
    return admin.brokers.get_runtime_configurations()["bootstrapServers"]


def _listener(number: int, host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), _CONNECT_S_MAX).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise NotWellError(
            f"broker {number} advertises {host}:{port}, which cannot be reached from here ({why}): "
            "clients' messages go there. Give it an address for those outside in "
            "advertised.listeners, or open the way to this one"
        ) from None
    return f"{host}:{port} can be reached"
