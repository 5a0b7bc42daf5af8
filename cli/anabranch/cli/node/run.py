"""`anabranch node`: one node, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import click

from anabranch.broker.settings import Settings
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import setting_flags, setting_help, settings_of
from anabranch.cli.shared.stopping import asked_to_stop
from anabranch.core.names import PORT_MAX


@click.command(cls=Command)
@setting_flags
@click.option(
    "--http-port",
    type=click.IntRange(1, PORT_MAX),
    help=setting_help("Port of look-ups and administration.", "web_service_port"),
)
@click.option(
    "--service-port",
    type=click.IntRange(0, PORT_MAX),
    help=setting_help("Port for clients; 0: any free one.", "broker_service_port"),
)
@click.option("--end-with-parent", is_flag=True, hidden=True)
def node(end_with_parent: bool, **given: Any) -> int:
    """Run one node.

    Settings come from --config, then the environment (ANABRANCH_ and the setting's name), then
    flags; later ones win. SIGTERM hands every bundle over before it ends the node (a second signal
    ends it at once). Ctrl-C does so, too, but ends it within 3 s. Log lines go to standard error.

    Exit status 0: stopped as asked. 1: ended by itself, or bundles were left. 2: did not start.

    Example: anabranch node --bootstrap-servers kafka-1:9092,kafka-2:9092 --data-dir
    /var/lib/anabranch --set clusterName=river
    """
    from anabranch.broker.logging import configure_logging
    from anabranch.broker.node.process import collect_rarely, give_back_large_blocks

    give_back_large_blocks()
    collect_rarely()
    if end_with_parent:
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    settings = settings_of(**given)
    configure_logging(settings)
    import uvloop

    # Before the loop runs, which hears of no signal while something is imported.
    import anabranch.broker.http.app
    import anabranch.broker.node.node  # noqa: F401

    return uvloop.run(run(settings))


async def run(settings: Settings) -> int:
    """Starts the node and its ports; returns the exit status once all have ended."""
    from anabranch.broker.binary.sessions import sessions
    from anabranch.broker.http.app import create_app
    from anabranch.broker.http.server import HttpServer
    from anabranch.broker.logging import set_log_level
    from anabranch.broker.node.metrics import measure_connections
    from anabranch.broker.node.node import Node
    from anabranch.broker.node.process import fit_connections
    from anabranch.broker.ports import NODE_PORTS, TlsPorts, hold_ports
    from anabranch.broker.security.node import measure_security, node_security
    from anabranch.broker.settings.model import BINARY, WEB
    from anabranch.wire.server.server import WireServer

    stopping = asked_to_stop()
    with hold_ports(settings, NODE_PORTS, settings.bind_address) as held:
        settings = fit_connections(held.settings, more=held.handshakes)
        tls = TlsPorts(settings, settings, NODE_PORTS)
        running = Node(settings)
        security = node_security(settings, lambda: running.runtime.view)
        await running.start()
        current = running.operations.configuration.current
        set_log_level(current.now.log_level)
        current.subscribe(lambda now: set_log_level(now.log_level))
        app = create_app(running.operations, settings, running.metrics, security)
        server = HttpServer(app, held.sockets.get(WEB), settings.http_limits)
        guard = security.guard if security is not None else None
        admission = security.admission if security is not None else None
        served = sessions(running.operations, settings, guard)
        wire = WireServer(served, "anabranch", settings.wire_limits, admission)
        try:
            if security is not None:
                await security.start()
            await server.start()
            if BINARY in held.sockets:
                await wire.listen(held.sockets[BINARY])
            tls.serve(held.sockets, server, wire)
            measure_connections(
                lambda: len(wire.peers), wire.gate, server.connections, running.metrics
            )
            tls.measure(running.metrics)
            measure_security(security, running.metrics)
            ended = asyncio.create_task(running.wait_ended())
            asked = asyncio.create_task(stopping.wait())
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            how = await running.stop() if asked.done() else await ended
            await tls.stop()
            await wire.stop()
            await server.stop()
        finally:
            await tls.stop()
            if security is not None:
                await security.stop()
            await running.close()
    if not how.clean:
        click.echo(f"anabranch: {how.reason}", err=True)
    return ExitStatus.DONE if how.clean else ExitStatus.BAD


def _end_with_parent() -> None:
    """Ends the process once the other end of stdin is closed."""
    while os.read(0, 64):
        pass
    os._exit(ExitStatus.BAD)
