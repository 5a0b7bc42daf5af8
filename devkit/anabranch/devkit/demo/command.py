"""`anabranch demo`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from anabranch.cli.shared.command import Command
from anabranch.cli.spark.jobs import tidy_when_terminated


@click.command(cls=Command)
@click.option(
    "--data-dir",
    default=Path("reports"),
    type=click.Path(file_okay=False, path_type=Path),
    help="Each run makes a folder of its own here.",
)
@click.option("--adopt", is_flag=True, help="Show an existing Kafka topic that is adopted instead.")
def demo(data_dir: Path, adopt: bool) -> int:
    """Show each promise once, on a small cluster and a real trace.

    It starts an embedded Kafka and three nodes, and sends OpenStack's merge history through a
    scalable topic. The topic splits when the load rises, loses the node that controls it, goes on
    with another one, and merges when the load falls. A judge then compares what was received
    with what was sent. At the end Spark replays the log and checks each decision. With --adopt it
    shows how a plain Kafka topic becomes a scalable one under load.

    Exit status 0: each promise was kept. 1: one was not. 2: could not run.

    Example: anabranch demo --data-dir /tmp/demo
    """
    tidy_when_terminated()
    from anabranch.devkit.demo.narrator import Narrator
    from anabranch.devkit.demo.own_cluster import OwnClusterDemo

    folder = data_dir.absolute() / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return OwnClusterDemo(folder, Narrator(), adopts=adopt).run()
