"""`anabranch demo`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from anabranch.cli.shared.access import KAFKA_PROPERTIES_VARIABLE, access
from anabranch.cli.spark.jobs import tidy_when_terminated


@click.command(epilog="Example: anabranch demo --data-dir /tmp/demo")
@click.option(
    "--data-dir",
    default=Path("reports"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Each run makes a folder of its own here.",
)
@click.option(
    "--nodes",
    metavar="URL,...",
    help="Of a cluster that runs already: the load only, without a Kafka, a crash and an audit.",
)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    help="Of that cluster's Kafka, with --nodes.",
)
@click.option(
    "--kafka-properties",
    envvar=KAFKA_PROPERTIES_VARIABLE,
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of librdkafka security properties, with --nodes.",
)
def demo(
    data_dir: Path,
    nodes: str | None,
    bootstrap_servers: str | None,
    kafka_properties: Path | None,
) -> int:
    """Show each promise once, on a small cluster and a real trace.

    It starts an embedded Kafka and three nodes, and sends OpenStack's merge history through a
    scalable topic. The topic splits when the load rises, loses the node that controls it, goes on
    with another one, and merges when the load falls. A judge then compares what was received, and
    what Kafka holds, with what was sent. At the end Spark replays the log and checks each decision.

    With --nodes the load goes through a cluster that runs already. With its default settings each
    change of the topic takes minutes, with those of docker/compose.yaml seconds. The options of
    `anabranch` itself say who asks: a superuser, who makes the tenant `demo`, or an administrator
    of it, whom Kafka lets in, too.

    Exit status 0: each promise was kept. 1: one was not. 2: could not run.
    """
    if (nodes is None) != (bootstrap_servers is None):
        raise click.UsageError("give --nodes and --bootstrap-servers, or neither")
    tidy_when_terminated()
    from anabranch.devkit.demo.narrator import Narrator

    if nodes is not None and bootstrap_servers is not None:
        from anabranch.channel.kafka.connection import read_properties
        from anabranch.devkit.demo.given_cluster import GivenClusterDemo

        security = read_properties(kafka_properties)
        return GivenClusterDemo(nodes, bootstrap_servers, access(), security, Narrator()).run()
    from anabranch.devkit.demo.own_cluster import OwnClusterDemo

    folder = data_dir.absolute() / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return OwnClusterDemo(folder, Narrator()).run()
