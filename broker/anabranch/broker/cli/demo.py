"""`anabranch demo`."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click


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
    default=90.0,
    show_default=True,
    type=click.FloatRange(45, 3600),
    help="Seconds over which the trace is spread.",
)
def demo(data_dir: Path, duration: float) -> int:
    """Show a cluster at work on a real trace, with failures and an audit.

    An embedded Kafka and three nodes; topics of OpenStack's merge history are looked up in their
    order while bundles are unloaded, transferred and split, an owner and then the leader are
    killed. At the end Spark replays the whole log and checks it.

    Exit status 0: all look-ups were right and the log is sound. 1: not so. 2: could not run.
    """
    from anabranch.broker.cli.spark import check_spark

    check_spark()
    from anabranch.broker.demo.run import Demo

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    folder = data_dir.absolute() / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return Demo(folder, duration).run()
