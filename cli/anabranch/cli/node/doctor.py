"""`anabranch doctor`: everything that a node needs, or a client, looked at one by one.

A client asks a node, or a proxy, by two ports, and takes its messages from Kafka itself. So it must
reach every address that those two tell it, the advertised ones, and not only the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

import click
from confluent_kafka import KafkaException

from anabranch.access import Credentials, CredentialsError, Tls, TlsFiles, kafka_tokens
from anabranch.access.kafka import read_access
from anabranch.admin import Admin, AdminError
from anabranch.broker.errors import StartError
from anabranch.broker.node.startup import connect, kafka_properties, topic_settings
from anabranch.broker.ports import NODE_PORTS, hold_ports
from anabranch.broker.security.tls import files_of, server_context
from anabranch.broker.settings import Settings, SettingsError
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.makes import said
from anabranch.channel.kafka.topics import Topics, inspect_topics
from anabranch.cli.node import kafka_topics
from anabranch.cli.node.findings import Finding, NotWellError, checked
from anabranch.cli.node.judgement import has_queues, judge_calls
from anabranch.cli.node.probe import probed
from anabranch.cli.shared.access import Access, access
from anabranch.cli.shared.api import connect as administer
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import setting_flags, setting_help, settings_of
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.topics.words import count_of
from anabranch.core.adoption.adoptable import parse_adoptable
from anabranch.core.errors import AnabranchError
from anabranch.core.names import PORT_MAX
from anabranch.jars.java import find_java
from anabranch.wire.client import connect as join
from anabranch.wire.errors import AuthenticationError, ConnectError
from anabranch.wire.kafka.calls import newest_calls
from anabranch.wire.kafka.protocol import KafkaProtocolError, bootstrap_addresses, unsupported

_DISK_BYTES_MIN: Final = 1 << 30
_NODE_S_MAX: Final = 2.0
_JAVA_SECONDS_MAX: Final = 60.0
_KAFKA_SECONDS_MAX: Final = 10.0
_CONNECT_S_MAX: Final = 5.0


@click.command(cls=Command)
@setting_flags
@click.option(
    "--http-port",
    type=click.IntRange(1, PORT_MAX),
    help=setting_help("Port of look-ups and administration.", "web_service_port"),
)
@click.option(
    "--url",
    metavar="http://HOST:PORT",
    help="A node or proxy. Check its clients' needs instead, from this machine.",
)
@click.option(
    "--kafka-topics",
    "printed",
    type=click.File("rb"),
    metavar="FILE",
    help=f"Check the KafkaTopics too that `{kafka_topics.COMMAND}` prints; -: standard input.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Try on topics of its own whether this Kafka can make and seal segments.",
)
@json_option
def doctor(
    as_json: bool, url: str | None, printed: BinaryIO | None, probe: bool, **given: Any
) -> int:
    """Check Java, settings, disk, port and Kafka for a node with these flags.

    The command asks Kafka only if its address is given, and changes nothing there.

    With --probe, it tries what segments need of a Kafka: settings, seals, positions, queues, pace.
    It does so on topics and groups of its own, which it deletes, as it does with those of a doctor
    that died. Give it where Kafka is of another make or release.

    With --url, it checks the way of a client that runs here. The client must reach that node or
    proxy, the port for clients that it names, and every address that Kafka's brokers advertise. It
    also prints the nodes' concerns, above all about segments. It leaves nothing changed and fetches
    nothing.

    Strimzi must not manage the nodes' topics. To check that, give --kafka-topics its KafkaTopics,
    and by --set the cluster's adoptableTopics, if it has any.

    Exit status 0: all is well. 1: something is not.

    Example: anabranch doctor --config node.toml --bootstrap-servers localhost:9092
    """
    if probe and url is not None:
        raise click.UsageError("--probe is for a node's own Kafka: leave --url or --probe out")
    found = _examine(probe=probe, **given) if url is None else _examine_as_client(url, **given)
    findings = list(found)
    if printed is not None:
        findings.append(checked("KafkaTopics", lambda: _kafka_topics(printed, **given)))
    if as_json:
        write_json(findings)
    else:
        rows = [(item.check, "ok" if item.ok else "FAILED", item.found) for item in findings]
        table(("CHECK", "", "FOUND"), rows)
    return ExitStatus.DONE if all(item.ok for item in findings) else ExitStatus.BAD


def _examine(*, probe: bool, **given: Any) -> Iterator[Finding]:
    yield checked("java", _java)
    try:
        settings = settings_of(**given)
    except SettingsError as error:
        yield Finding("settings", ok=False, found="; ".join(error.problems))
        return
    given_names = sorted(settings.given)
    yield Finding("settings", ok=True, found=f"{len(given_names)} given, the rest defaults")
    if settings.kafka_properties_file is not None:
        yield checked("client file", lambda: _client_file(settings))
    yield checked("disk", lambda: _disk(settings.data_dir))
    yield checked("port", lambda: _port(settings))
    if settings.tls_certificate_file_path is not None:
        yield checked("tls", lambda: _tls(settings))
    if "bootstrap_servers" in settings.given:
        yield from _kafka(settings, probe=probe)
    else:
        yield Finding("kafka", ok=True, found="not asked: name it with --bootstrap-servers")


def _examine_as_client(url: str, **given: Any) -> Iterator[Finding]:
    try:
        settings = settings_of(**given)
        security = kafka_properties(settings)
    except AnabranchError as error:
        yield Finding("settings", ok=False, found=str(error))
        return
    is_named = "bootstrap_servers" in settings.given
    yield from examine_reach(url, settings.bootstrap_servers if is_named else "", security)


def _client_file(settings: Settings) -> str:
    found = read_access(settings.kafka_properties_file, os.environ).checked()
    return f"{', '.join(sorted(found.properties)) or 'nothing'}; ignored: {len(found.ignored)}"


def _kafka_topics(printed: BinaryIO, **given: Any) -> str:
    settings = settings_of(**given)
    adoptable = parse_adoptable(settings.adoptable_topics)
    return kafka_topics.judged(printed.read(), settings.topic_prefix, adoptable)


def _calls(connection: KafkaConnection) -> dict[int, int] | Finding:
    """Returns the newest version of each call, or why they are not known."""
    if why := unsupported(connection.security):
        return Finding("kafka's calls", ok=True, found=f"not asked: {why}")
    failed = "no address of its own"
    for address in bootstrap_addresses(connection.bootstrap_servers):
        try:
            return newest_calls(address, connection.security, _CONNECT_S_MAX)
        except (OSError, KafkaProtocolError) as error:
            failed = str(error)
    return Finding("kafka's calls", ok=False, found=f"Kafka does not tell its calls: {failed}")


def _java() -> str:
    path = find_java()
    answer = subprocess.run(
        [path, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS_MAX, check=False
    )
    return f"{path}: {(answer.stderr + answer.stdout).splitlines()[0]}"


def _disk(data_dir: Path) -> str:
    there = data_dir.absolute()
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK):
        raise NotWellError(f"{there} is not writable; name another dataDir")
    free = shutil.disk_usage(there).free
    if free < _DISK_BYTES_MIN:
        raise NotWellError(
            f"{there} has {free >> 20} MiB left, a node wants {_DISK_BYTES_MIN >> 20}; make room "
            "or name another dataDir"
        )
    return f"{there} has {free >> 30} GiB left"


def _port(settings: Settings) -> str:
    try:
        with hold_ports(settings, NODE_PORTS, settings.bind_address) as held:
            return " and ".join(map(_said, held.sockets.values())) + " free"
    except StartError as error:
        raise NotWellError(f"{error}{_node_there(settings)}") from error


def _node_there(settings: Settings) -> str:
    """Returns a note for the case that a node runs already, and nothing may be wrong."""
    node = f"http://127.0.0.1:{settings.web_service_port}"
    try:
        with Admin(node, timeout_s=_NODE_S_MAX) as admin:
            version = admin.brokers.get_version()
    except AdminError:
        return ""
    return (
        f"; a node of version {version} answers there, and `anabranch doctor --url {node}` checks "
        "what its clients need"
    )


def _said(held: socket.socket) -> str:
    address, port = held.getsockname()[:2]
    return f"{port} of {address}"


def _tls(settings: Settings) -> str:
    files = files_of(settings)
    if files is None:
        raise NotWellError("tlsKeyFilePath is missing beside tlsCertificateFilePath; name it")
    server_context(files)
    return f"{files.certificate} and its key can be used"


def _kafka(settings: Settings, *, probe: bool) -> Iterator[Finding]:
    topics, wanted = Topics(settings.topic_prefix), topic_settings(settings)
    try:
        connection = connect(settings)
        found = inspect_topics(connection, topics, wanted, _KAFKA_SECONDS_MAX)
        _check_replicas(settings, found.brokers)
    except AnabranchError as error:
        yield Finding("kafka", ok=False, found=str(error))
        return
    told = [f"{settings.bootstrap_servers} answers", count_of(found.brokers, "broker")]
    if found.sound:
        told.append(f"{count_of(len(found.sound), 'topic')} there and sound")
    if found.missing:
        told.append(f"{count_of(len(found.missing), 'topic')} that a node would make")
    yield Finding("kafka", ok=True, found=", ".join(told))
    yield from examine_kafka(connection)
    yield Finding("kafka's make", ok=True, found=said(found.make))
    calls = _calls(connection)
    yield judge_calls(calls) if isinstance(calls, dict) else calls
    if probe:
        queues = isinstance(calls, Finding) or has_queues(calls)
        yield from probed(settings, connection, found.make, has_queues=queues)


def _check_replicas(settings: Settings, brokers: int) -> None:
    """The cluster's topics may be there with more: those of segments are made anew all the time."""
    if settings.replication_factor > brokers:
        raise NotWellError(
            f"replicationFactor is {settings.replication_factor}, but "
            f"{settings.bootstrap_servers} has {count_of(brokers, 'broker')}, so no scalable topic "
            "can be made: start more Kafka brokers, or set replicationFactor to what there are"
        )


# --- the way of a client ----------------------------------------------------------------


def examine_reach(url: str, kafka: str, security: Mapping[str, Any]) -> Iterator[Finding]:
    """A node or proxy, the port for clients that it names, and Kafka's brokers.

    `kafka`: bootstrap servers, "" for those that clients of the cluster are told. `security` is for
    any Kafka (`kafka_tokens.at`), because a provider of tokens may read the address.
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
        try:
            own = kafka_tokens.at(security, kafka)
            yield from examine_kafka(KafkaConnection(kafka, own, "anabranch-doctor"))
        except AnabranchError as error:
            yield Finding("kafka", ok=False, found=str(error))


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
    connection = await join(host, port, timeout_s=_CONNECT_S_MAX, tls=tls, credentials=credentials)
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
