"""`anabranch backtest balance`: settings of the load balancer, tried on recorded load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anabranch.broker.cli.shared.flags import report_flags
from anabranch.broker.cli.shared.numbers import NOT_NEGATIVE, Finite
from anabranch.broker.cli.spark.flags import spark_flags, spark_settings_of
from anabranch.broker.cli.spark.jobs import tidy_when_terminated


@click.command(
    epilog="Example: anabranch backtest balance --load load.jsonl "
    "--vary loadBalancerBrokerLoadTargetStd=0.1,0.25 --html balance.html"
)
@click.option(
    "--load",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What `anabranch balance record` has written, packed by gzip or not.  [default: a sample "
    "of real loads]",
)
@click.option(
    "--settings",
    multiple=True,
    metavar="NAME[=FILE]",
    help="`default`, NAME=FILE or NAME={...}: JSON of the settings that differ, by their names; "
    "may be repeated.  [default: default; with the sample, four others beside it]",
)
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="SETTING=VALUE,...",
    help="Try each of --settings with each value; may be repeated, for all combinations.",
)
@report_flags
@spark_flags
@click.option(
    "--step",
    type=Finite(0.05),
    default=5.0,
    show_default=True,
    help="Seconds between two measurements of a broker: loadBalancerReportUpdateMinIntervalMillis.",
)
@click.option(
    "--move-seconds",
    type=NOT_NEGATIVE,
    default=0.0,
    show_default=True,
    help="From a decision until the bundle has its next owner.",
)
@click.option(
    "--flap-window",
    type=NOT_NEGATIVE,
    default=3_600.0,
    show_default=True,
    help="Seconds within which a bundle that goes back counts as flapping.",
)
def balance(
    load: Path | None,
    settings: tuple[str, ...],
    varied: tuple[str, ...],
    json_path: str,
    html_path: Path | None,
    **given: Any,
) -> int:
    """Replay recorded load through the load balancer's rules, and compare settings.

    Exit status 0: done. 2: could not run, or something was left out, which standard error names.
    """
    tidy_when_terminated()
    from anabranch.broker.balance.strategies import installed
    from anabranch.spark_replay.balance.replay import ReplayRules
    from anabranch.spark_replay.balance.run import BalanceBacktestOptions, run_balance_backtest

    options = BalanceBacktestOptions(
        spark=spark_settings_of(given),
        load=load,
        settings=settings,
        varied=varied,
        json_path=json_path,
        html_path=html_path,
        strategies=installed(),
        rules=ReplayRules(given["step"], given["move_seconds"], given["flap_window"]),
    )
    return run_balance_backtest(options)
