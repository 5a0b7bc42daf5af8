"""`anabranch backtest`: auto-scale policies, tried on loads of the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anabranch.cli.shared.flags import report_flags
from anabranch.cli.shared.numbers import NOT_NEGATIVE, POSITIVE
from anabranch.cli.spark.flags import DIRECTORY_OR_URL, spark_flags, spark_settings_of
from anabranch.cli.spark.jobs import tidy_when_terminated


@click.command(
    epilog="Example: anabranch backtest --load load.parquet --policy default "
    "--policy 'eager={\"splitCooldownSeconds\": 0}' --html backtest.html",
)
@click.option(
    "--load",
    type=click.Path(path_type=Path),
    help="Parquet with topic, time_ms and rates.  [default: a sample of real loads, scaled so "
    "that policies have something to do]",
)
@click.option(
    "--load-archive",
    metavar=DIRECTORY_OR_URL,
    help="A cluster's recorded load: the directory of `archive --loads`.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[=FILE]",
    help="`default`, NAME=FILE or NAME={...}: JSON of what differs from it; may be repeated.  "
    "[default: default; with the sample, one that merges later beside it]",
)
@report_flags
@spark_flags
@click.option(
    "--mean-rate", type=POSITIVE, help="Scale each topic to that mean of messages a second."
)
@click.option(
    "--step",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Seconds between evaluations.",
)
@click.option(
    "--spread",
    default="uniform",
    show_default=True,
    help="Spread of the load on the ring: uniform, hot:SHARE or zipf:EXPONENT.",
)
@click.option(
    "--consumers",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Consumers of one stream subscription.",
)
@click.option(
    "--flap-window",
    default=1_800.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Seconds within which an operation that is undone counts as flapping.",
)
@click.option(
    "--retention",
    default=604_800.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Seconds for which read messages are kept, and sealed segments in the layout with them.",
)
def backtest(
    load: Path | None,
    load_archive: str | None,
    policies: tuple[str, ...],
    json_path: str,
    html_path: Path | None,
    mean_rate: float | None,
    step: int,
    spread: str,
    consumers: int,
    flap_window: float,
    retention: float,
    **given: Any,
) -> int:
    """Replay loads of the past through the auto-scale rules, and compare policies.

    Exit status 0: done. 2: could not run, or a topic was left out, which standard error names.
    """
    tidy_when_terminated()
    if load is not None and load_archive is not None:
        raise click.UsageError("give --load or --load-archive, not both")
    from anabranch.spark_replay.archive.folders import checked_place
    from anabranch.spark_replay.backtest.model import Rules
    from anabranch.spark_replay.backtest.run import BacktestOptions, run_backtest

    options = BacktestOptions(
        load=load,
        load_archive=None if load_archive is None else checked_place(load_archive),
        policies=policies,
        json_path=json_path,
        html_path=html_path,
        step_s=step,
        mean_rate=mean_rate,
        spread=spread,
        rules=Rules(retention, flap_window, consumers),
        spark=spark_settings_of(given),
    )
    return run_backtest(options)
