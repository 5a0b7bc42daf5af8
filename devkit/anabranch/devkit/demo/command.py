"""`anabranch demo`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from anabranch.broker.cli.shared.access import KAFKA_PROPERTIES_VARIABLE, access
from anabranch.broker.cli.shared.numbers import Finite
from anabranch.broker.cli.spark.jobs import tidy_when_terminated


@click.command(epilog="Example: anabranch demo --data-dir /tmp/demo")
@click.option(
    "--data-dir",
    default=Path("reports"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Each run makes a folder of its own here.",
)
@click.option(
    "--duration",
    default=75.0,
    show_default=True,
    type=Finite(45, 3600),
    help="Seconds over which the trace is spread.",
)
@click.option(
    "--nodes",
    metavar="URL,...",
    help="Of a cluster that runs already: its load only, without a Kafka, crashes and audit.",
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
    duration: float,
    nodes: str | None,
    bootstrap_servers: str | None,
    kafka_properties: Path | None,
) -> int:
    """Show a cluster at work on a real trace, with failures and an audit.

    An embedded Kafka and three nodes. OpenStack's merge history is looked up, one topic for each
    sub-project, and sent through one scalable topic, with sub-projects as keys, in its order.
    Meanwhile bundles are unloaded, transferred and split, segments are split and merged, consumers
    come and go, the topic's controller is killed in the middle of a change, twice, and the leader.
    A second topic gets load that rises and falls, and splits and merges its segments by itself.
    Then look-ups make a broker hot, and the balancer takes bundles from it by itself.
    At the end every message is checked, and Spark replays the whole log and checks that.

    With --nodes the same load goes through a cluster that runs already, and needs the settings of
    loads that docker/compose.yaml has if the second topic is to scale in that time. Who asks, by
    the options of `anabranch` itself, has to administer the six tenants that it uses (planning,
    deployment, libraries, documents, testing, services), or to be a superuser, who makes them, and
    to be let in by Kafka.

    Exit status 0: all look-ups were right, every message arrived once and in its key's order, and
    the log is sound. 1: not so. 2: could not run.
    """
    if (nodes is None) != (bootstrap_servers is None):
        raise click.UsageError("give --nodes and --bootstrap-servers, or neither")
    tidy_when_terminated()
    if nodes is not None and bootstrap_servers is not None:
        from anabranch.channel.kafka.connection import read_properties
        from anabranch.devkit.demo.cluster import ClusterDemo

        security = read_properties(kafka_properties)
        urls = nodes.split(",")
        return ClusterDemo(urls, bootstrap_servers, duration, access(), security).run()
    from anabranch.devkit.demo.run import Demo

    folder = data_dir.absolute() / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return Demo(folder, duration).run()
