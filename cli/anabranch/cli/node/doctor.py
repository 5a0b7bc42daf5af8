"""`anabranch doctor`: everything a node needs, looked at one by one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from anabranch.admin import Admin, AdminError
from anabranch.broker.errors import StartError
from anabranch.broker.node.startup import connect, topic_settings
from anabranch.broker.ports import NODE_PORTS, hold_ports
from anabranch.broker.security.tls import files_of, server_context
from anabranch.broker.settings import Settings, SettingsError
from anabranch.channel.kafka.topics import Topics, inspect_topics
from anabranch.channel.segments.transactions import held_in_sealed
from anabranch.cli.node.findings import Finding, NotWellError, checked
from anabranch.cli.node.reach import examine_kafka, examine_reach
from anabranch.cli.node.share_group import take_record
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.flags import setting_flags, setting_help, settings_of
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.topics.words import count_of
from anabranch.core.errors import AnabranchError
from anabranch.core.names import PORT_MAX
from anabranch.core.topics.kafka_names import segments_head
from anabranch.jars.java import find_java

_DISK_BYTES_MIN: Final = 1 << 30
_NODE_S_MAX: Final = 2.0
_JAVA_SECONDS_MAX: Final = 60.0
_KAFKA_SECONDS_MAX: Final = 10.0
_NAMED_MAX: Final = 10


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
@json_option
def doctor(as_json: bool, url: str | None, **given: Any) -> int:
    """Check Java, settings, disk, port and Kafka for a node with these flags.

    The command asks Kafka only if its address is given. It sends a record through a topic and a
    share group of its own, which it then deletes.

    With --url, it checks the way of a client that runs here. The client must reach that node or
    proxy, the port for clients that it names, and every address that Kafka's brokers advertise. It
    also prints the nodes' concerns, above all about segments. It leaves nothing changed and fetches
    nothing.

    Exit status 0: all is well. 1: something is not.

    Example: anabranch doctor --config node.toml --bootstrap-servers localhost:9092
    """
    findings = list(_examine(**given) if url is None else _examine_as_client(url, **given))
    if as_json:
        write_json(findings)
    else:
        rows = [(item.check, "ok" if item.ok else "FAILED", item.found) for item in findings]
        table(("CHECK", "", "FOUND"), rows)
    return 0 if all(item.ok for item in findings) else 1


def _examine(**given: Any) -> Iterator[Finding]:
    yield checked("java", _java)
    try:
        settings = settings_of(**given)
    except SettingsError as error:
        yield Finding("settings", ok=False, found="; ".join(error.problems))
        return
    given_names = sorted(settings.model_fields_set)
    yield Finding("settings", ok=True, found=f"{len(given_names)} given, the rest defaults")
    yield checked("disk", lambda: _disk(settings.data_dir))
    yield checked("port", lambda: _port(settings))
    if settings.tls_certificate_file_path is not None:
        yield checked("tls", lambda: _tls(settings))
    if "bootstrap_servers" in settings.model_fields_set:
        found = checked("kafka", lambda: _kafka(settings))
        yield found
        if found.ok:
            yield from examine_kafka(connect(settings))
            yield checked("transactions", lambda: _transactions(settings))
            yield checked("share groups", lambda: take_record(settings, connect(settings)))
    else:
        yield Finding("kafka", ok=True, found="not asked: name it with --bootstrap-servers")


def _examine_as_client(url: str, **given: Any) -> Iterator[Finding]:
    try:
        settings = settings_of(**given)
        connection = connect(settings)
    except AnabranchError as error:
        yield Finding("settings", ok=False, found=str(error))
        return
    is_named = "bootstrap_servers" in settings.model_fields_set
    yield from examine_reach(
        url, settings.bootstrap_servers if is_named else "", connection.security
    )


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


def _kafka(settings: Settings) -> str:
    connection = connect(settings)
    topics = Topics(settings.topic_prefix)
    found = inspect_topics(connection, topics, topic_settings(settings), _KAFKA_SECONDS_MAX)
    _check_replicas(settings, found.brokers)
    told = [f"{settings.bootstrap_servers} answers", count_of(found.brokers, "broker")]
    if found.sound:
        told.append(f"{count_of(len(found.sound), 'topic')} there and sound")
    if found.missing:
        told.append(f"{count_of(len(found.missing), 'topic')} that a node would make")
    return ", ".join(told)


def _transactions(settings: Settings) -> str:
    connection = connect(settings)
    head = segments_head(settings.topic_prefix)
    found = sorted(held_in_sealed(connection, connection.admin(), head, _KAFKA_SECONDS_MAX).items())
    if found:
        raise NotWellError(
            "open in sealed segments, whose consumers wait: "
            + "; ".join(f"{t}[{number}] from {at} on" for (t, number), at in found[:_NAMED_MAX])
            + (f"; {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else "")
            + ". Kafka ends what its coordinator knows; `kafka-transactions.sh abort` ends one "
            "that stays"
        )
    return "no sealed segment is held back by one"


def _check_replicas(settings: Settings, brokers: int) -> None:
    """The cluster's topics may be there with more: those of segments are made anew all the time."""
    if settings.replication_factor > brokers:
        raise NotWellError(
            f"replicationFactor is {settings.replication_factor}, but "
            f"{settings.bootstrap_servers} has {count_of(brokers, 'broker')}, so no scalable topic "
            "can be made: start more Kafka brokers, or set replicationFactor to what there are"
        )
