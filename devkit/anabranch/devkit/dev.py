"""`anabranch dev`: a whole cluster on this machine, for as long as the command runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from anabranch.cli.shared.command import Command
from anabranch.cli.shared.flags import settings_of
from anabranch.core.errors import AnabranchError
from anabranch.devkit import ports
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.devkit.nodes import (
    HOST,
    ON_ONE_MACHINE,
    ChildError,
    NodeProcess,
    await_ready,
    stop_all,
)

if TYPE_CHECKING:  # its imports take a while
    from anabranch.devkit.security import DevSecurity

_WATCH_SECONDS: Final = 0.5
# Pauses before an ended node is started again.
_ALONE_S: Final = 1.0
# The others are to take over before, as they would from a machine that is gone.
_BESIDE_OTHERS_S: Final = 10.0


class PortsError(AnabranchError):
    """A port that a node was to listen on is taken."""


@click.command(cls=Command)
@click.option("--nodes", default=3, type=click.IntRange(1, 20), help="How many.")
@click.option(
    "--http-port",
    default=8080,
    type=click.IntRange(1, 65_515),
    help="Port of node 0; node i listens on this plus i.",
)
@click.option(
    "--service-port",
    default=6650,
    type=click.IntRange(0, 65_515),
    help="Port for clients of node 0; node i listens on this plus i. 0: any free ones.",
)
@click.option(
    "--data-dir",
    default=Path("anabranch-dev"),
    type=click.Path(file_okay=False, path_type=Path),
    help="Where Kafka and the nodes keep their data and logs; a later run goes on with it.",
)
@click.option(
    "--kafka-port",
    default=9092,
    type=click.IntRange(0, 65_535),
    help="Port of the embedded Kafka. 0: any free one.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of all nodes; may be repeated.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="With TLS, tokens and rights: prints what to export to be its superuser.",
)
def dev(
    nodes: int,
    http_port: int,
    service_port: int,
    data_dir: Path,
    kafka_port: int,
    settings: tuple[str, ...],
    secure: bool,
) -> None:
    """Run an embedded Kafka and some nodes on this machine.

    Prints a line that starts with `ready` when all nodes serve. SIGTERM stops them all: the nodes
    hand their bundles over or free them, then Kafka ends. So does Ctrl-C, which kills what has not
    ended within 3 s. No process stays, whatever happens to this one. A node that ends by itself, or
    is killed, is started again: after some seconds, so that the others take over first.

    With --secure the ports of nodes and of Kafka have TLS, and check identities and rights.
    Authority, certificates, secret and tokens are made in the folder `security` of --data-dir.
    `anabranch dev-role` makes more of them.

    Example: anabranch dev --nodes 3 --http-port 8080 --data-dir /tmp/river
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _interrupt)
    # Wrong settings are told before Kafka is started.
    data_dir = data_dir.absolute()
    secured = None
    if secure:
        from anabranch.devkit.security import DevSecurity

        keep_private(data_dir)
        secured = DevSecurity(data_dir / "security")
        settings = (*secured.kafka_settings, *settings)
    of_security = () if secured is None else secured.settings
    found = settings_of(None, None, None, None, (*ON_ONE_MACHINE, *of_security, *settings))
    _check_ports("--http-port", http_port, nodes)
    if kafka_port:
        _check_ports("--kafka-port", kafka_port, 1)
    service_ports = [service_port and service_port + number for number in range(nodes)]
    if service_port:
        _check_ports("--service-port", service_port, nodes)
    differences = None if secured is None else secured.kafka
    kafka = EmbeddedKafka(data_dir / "kafka", port=kafka_port, differences=differences)

    try:
        _run(http_port, service_ports, kafka, data_dir, settings, secured, found.topic_prefix)
    except KeyboardInterrupt:
        click.echo("stopped")


@click.command("dev-role", cls=Command)
@click.argument("role")
@click.option(
    "--data-dir",
    default=Path("anabranch-dev"),
    type=click.Path(file_okay=False, path_type=Path),
    help="That of the `dev --secure`.",
)
def dev_role(role: str, data_dir: Path) -> None:
    """Make the files for a role of `anabranch dev --secure`, for 30 days.

    They are a token for the nodes and a certificate for Kafka, in the folder `security/roles` of
    --data-dir. A third file has a shell's commands show them. The role may do what was granted to
    it, before or after. A second call makes new files.

    Example: anabranch dev-role ada --data-dir /tmp/river
    """
    from anabranch.devkit.security import make_role

    file = make_role(data_dir.absolute() / "security", role)
    click.echo(f". {shlex.quote(str(file))}")


def keep_private(data_dir: Path) -> None:
    """Gives only the owner access to the files of this process and its children, and to those that
    are already there.

    It does not change a present folder itself, which may be of more than a cluster.
    """
    os.umask(0o077)
    data_dir.mkdir(parents=True, exist_ok=True)
    for each in (data_dir / "kafka", data_dir / "security", *data_dir.glob("node-*")):
        if each.exists():
            each.chmod(0o700 if each.is_dir() else 0o600)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Breaks off the present work, once. Nothing disturbs the stop that follows."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(
    http_port: int,
    service_ports: Sequence[int],
    kafka: EmbeddedKafka,
    data_dir: Path,
    settings: Sequence[str],
    secured: DevSecurity | None,
    topic_prefix: str,
) -> None:
    count = len(service_ports)
    children: list[NodeProcess] = []
    try:
        click.echo("starting Kafka")
        kafka.start()
        if secured is not None:
            secured.let_nodes_in(kafka.bootstrap_servers, topic_prefix)
        click.echo(f"starting {count} node{'' if count == 1 else 's'}")
        for number, service_port in enumerate(service_ports):
            child = NodeProcess(
                f"node-{number}",
                http_port + number,
                kafka.bootstrap_servers,
                data_dir,
                *settings,
                service_port=service_port,
                secured=secured,
            )
            children.append(child)
            child.start()
        await_ready(children)
        _say_ready(children, kafka, data_dir, secured)
        _watch(children, kafka)
    finally:
        try:
            stop_all(children)
        finally:
            kafka.stop()


def _check_ports(option: str, first: int, count: int) -> None:
    taken = [str(port) for port in range(first, first + count) if not ports.is_free(HOST, port)]
    if taken:
        raise PortsError(
            f"in use on {HOST}: port {', '.join(taken)}; stop what listens there, or choose "
            f"another {option}"
        )


def _say_ready(
    children: list[NodeProcess], kafka: EmbeddedKafka, data_dir: Path, secured: DevSecurity | None
) -> None:
    for child in children:
        click.echo(f"{child.name}: {_whereabouts(child)}")
    if secured is not None:
        _say_how(children[0], kafka, data_dir, secured)
    nodes = f"{len(children)} node{'' if len(children) == 1 else 's'}"
    click.echo(
        f"ready: {nodes}, Kafka at {kafka.bootstrap_servers}, data in {data_dir}; Ctrl-C stops all"
    )


def _say_how(
    child: NodeProcess, kafka: EmbeddedKafka, data_dir: Path, secured: DevSecurity
) -> None:
    """Prints the commands by which a shell becomes the superuser's, and somebody else's."""
    exports = secured.write_exports(child.url, kafka.bootstrap_servers)
    folder = shlex.quote(str(secured.folder))
    click.echo(
        "to be the superuser, for 30 days:\n\n"
        f". {shlex.quote(str(secured.exports_file))}\n\n"
        f"which says\n\n{exports}\n"
        "to be somebody else, to whom the superuser grants something:\n\n"
        f"anabranch dev-role ada --data-dir {shlex.quote(str(data_dir))}\n"
        "anabranch permissions grant public/default ada produce consume\n"
        f". {folder}/roles/ada.sh\n"
    )


def _whereabouts(child: NodeProcess) -> str:
    return f"{child.url}, {child.service_url()} (process {child.pid}, log {child.log_file})"


def _watch(children: list[NodeProcess], kafka: EmbeddedKafka) -> None:
    """Starts nodes again that end, and tells so. It does not return."""
    due_s: dict[str, float] = {}
    coming: set[str] = set()
    kafka_said = False
    while True:
        time.sleep(_WATCH_SECONDS)
        for child in children:
            name, now_s = child.name, time.monotonic()
            if child.is_running:
                with contextlib.suppress(ChildError):  # it has ended again, which is told next time
                    if name in coming and child.is_ready():
                        coming.remove(name)
                        click.echo(f"{name} serves again: {_whereabouts(child)}")
            elif name not in due_s:
                alone = not any(other.is_running for other in children)
                pause_s = _ALONE_S if alone else _BESIDE_OTHERS_S
                due_s[name] = now_s + pause_s
                coming.discard(name)
                click.echo(
                    f"{name} has ended (status {child.exit_status}, log {child.log_file}); "
                    f"it is started again in {pause_s:.0f} s"
                )
            elif due_s[name] <= now_s:
                del due_s[name]
                child.start()
                coming.add(name)
        if not kafka_said and not kafka.is_running:
            kafka_said = True
            click.echo(f"Kafka has ended (its log is {kafka.log_file}); the nodes wait for it")
