"""`anabranch proxy`: one address for clients that cannot reach the nodes."""

from __future__ import annotations

import os
from pathlib import Path

import click

from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import FILE, given_settings
from anabranch.cli.shared.stopping import asked_to_stop
from anabranch.core.names import PORT_MAX
from anabranch.proxy.settings import ProxySettings, load_proxy_settings


@click.command(cls=Command)
@click.option("--config", type=FILE, help="TOML file of settings.")
@click.option(
    "--nodes",
    metavar="http://HOST:PORT,...",
    help="HTTP ports of some nodes, https:// for those with TLS; the others are found by them.  "
    "[setting: brokerWebServiceURL]",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, PORT_MAX),
    help="Port of look-ups and administration.  [setting: webServicePort; default: 8080]",
)
@click.option(
    "--service-port",
    type=click.IntRange(0, PORT_MAX),
    help="Port for clients; 0: any free one.  [setting: servicePort; default: 6650]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting, by its name; may be repeated.",
)
def proxy(
    config: Path | None,
    nodes: str | None,
    http_port: int | None,
    service_port: int | None,
    settings: tuple[str, ...],
) -> int:
    """Run a proxy: one address for the binary protocol and HTTP of all nodes.

    Messages do not go through it: its clients reach Kafka themselves (`anabranch doctor --url`
    checks that). Settings come from --config, then the environment (ANABRANCH_ and the setting's
    name), then flags; later ones win. SIGTERM ends it once what is under way is answered (a
    second signal at once); so does Ctrl-C, within 3 s. Log lines go to standard error.

    Exit status 0: stopped as asked. 2: did not start.

    Example: anabranch proxy --nodes http://node-1:8080,node-2:8080 --set
    advertisedAddress=river.example.com
    """
    from anabranch.broker.logging import configure_logging
    from anabranch.broker.node.process import collect_rarely, give_back_large_blocks
    from anabranch.broker.settings.limits import LogFields

    give_back_large_blocks()
    collect_rarely()
    named = {"brokerWebServiceURL": nodes, "webServicePort": http_port, "servicePort": service_port}
    overrides = given_settings(settings)
    overrides |= {name: value for name, value in named.items() if value is not None}
    loaded = load_proxy_settings(config, os.environ, overrides)
    configure_logging(LogFields.of({}))  # text from info on: a proxy has little to say
    import uvloop

    import anabranch.proxy.proxy  # noqa: F401 - before a loop runs, which hears of no signal

    return uvloop.run(run(loaded))


async def run(settings: ProxySettings) -> int:
    """Starts the proxy and its ports; returns once it was stopped."""
    from anabranch.broker.node.process import fit_connections
    from anabranch.broker.ports import hold_ports
    from anabranch.proxy.proxy import DESCRIPTORS_EACH, Proxy
    from anabranch.proxy.settings import BIND_ADDRESS, PORTS, PROXY_PORTS

    stopping = asked_to_stop()
    with hold_ports(settings, PROXY_PORTS, BIND_ADDRESS) as held:
        ports = fit_connections(PORTS, DESCRIPTORS_EACH, held.handshakes)
        running = Proxy(held.settings, ports)
        await running.start(held.sockets)
        await stopping.wait()
        await running.stop()
    return ExitStatus.DONE
