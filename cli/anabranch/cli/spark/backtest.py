"""`anabranch backtest`: auto-scale policies, tried on loads of the past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.shared.flags import report_flags
from anabranch.cli.shared.numbers import NOT_NEGATIVE, POSITIVE
from anabranch.cli.spark.flags import (
    DIRECTORY_OR_URL,
    place_of_archive,
    spark_flags,
    spark_settings_of,
)
from anabranch.cli.spark.jobs import tidy_when_terminated

if TYPE_CHECKING:
    from anabranch.spark_replay.archive.folders import Place

_LOAD = click.Path(path_type=Path)


@click.command(
    epilog="Example: anabranch backtest --load load.parquet --policy default "
    "--policy 'eager={\"splitCooldownSeconds\": 0}' --html backtest.html",
)
@click.option(
    "--load",
    multiple=True,
    type=_LOAD,
    help="Parquet, or CSV, with topic, time and rates; may be repeated.  [default: a sample of "
    "real loads, scaled so that policies have something to do]",
)
@click.option(
    "--load-archive",
    metavar=DIRECTORY_OR_URL,
    help="A cluster's recorded load: the directory of `archive --loads`.",
)
@click.option(
    "--archive-dir",
    metavar=DIRECTORY_OR_URL,
    help="The archive of that cluster's log, which tells where on the ring segments lay.",
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
@click.option("--factor", type=POSITIVE, help="Multiply all rates.")
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
    help="Spread of the load on the ring: uniform, hot:SHARE, zipf:EXPONENT or zipf:EXPONENT:KEYS.",
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the places of the spread's keys."
)
@click.option(
    "--segments", default=1, show_default=True, type=click.IntRange(1), help="Number to begin with."
)
@click.option(
    "--consumers",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Consumers of one stream subscription, if the load has no column `consumers`.",
)
@click.option(
    "--operation-seconds",
    default=0.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Seconds from a decision to its effect.",
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
@click.option(
    "--sealed-retention",
    default=130.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Least seconds for which sealed segments stay, also with a shorter --retention.",
)
@click.option(
    "--message-bytes",
    default=1_000.0,
    show_default=True,
    type=POSITIVE,
    help="Bytes of a message, if the load does not say bytes_rate_in.",
)
@click.option(
    "--subscriptions",
    default=1.0,
    show_default=True,
    type=NOT_NEGATIVE,
    help="Subscriptions that read everything, if the load does not say rates out.",
)
def backtest(
    load: tuple[Path, ...],
    policies: tuple[str, ...],
    json_path: str,
    html_path: Path | None,
    factor: float | None,
    mean_rate: float | None,
    message_bytes: float,
    subscriptions: float,
    **given: Any,
) -> int:
    """Replay loads of the past through the auto-scale rules, and compare policies.

    Exit status 0: done. 2: could not run, or something was left out, which standard error names.
    """
    tidy_when_terminated()
    if mean_rate is not None and factor is not None:
        raise click.UsageError("give --factor or --mean-rate, not both")
    if given["archive_dir"] is not None and given["load_archive"] is None:
        raise click.UsageError("--archive-dir goes with --load-archive")
    from anabranch.spark_replay.backtest.model import Rules
    from anabranch.spark_replay.backtest.run import BacktestOptions, run_backtest
    from anabranch.spark_replay.backtest.traces import TraceDefaults

    options = BacktestOptions(
        spark=spark_settings_of(given),
        load=load,
        load_archive=_place(given["load_archive"]),
        archive_dir=_place(given["archive_dir"]),
        policies=policies,
        json_path=json_path,
        html_path=html_path,
        step_s=given["step"],
        factor=factor,
        mean_rate=mean_rate,
        spread=given["spread"],
        seed=given["seed"],
        assumed=TraceDefaults(message_bytes, subscriptions),
        rules=Rules(
            given["operation_seconds"],
            given["retention"],
            given["flap_window"],
            given["segments"],
            given["consumers"],
            given["sealed_retention"],
        ),
    )
    return run_backtest(options)


def _place(given: str | None) -> Place | None:
    return None if given is None else place_of_archive(given)
