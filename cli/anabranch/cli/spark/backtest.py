"""`anabranch backtest`: auto-scale policies, tried on loads of the past."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.flags import json_flag
from anabranch.cli.shared.numbers import POSITIVE
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.spark.jobs import spark_flags, spark_settings_of, tidy_when_terminated

if TYPE_CHECKING:
    from anabranch.spark_replay.backtest.model import PolicyFigures
    from anabranch.spark_replay.backtest.run import Comparison

_NAMED_MAX: Final = 20  # faults on a terminal
_HEAD: Final = (
    *("POLICY", "SPLITS", "MERGES", "REBUCKETS", "FLAPS", "OVER THRESHOLD", "SEGMENT-HOURS"),
    *("MEAN", "MAX"),
)


@click.command(
    epilog="Example: anabranch backtest --load load.parquet --policy default "
    "--policy 'eager={\"splitCooldownSeconds\": 0}'",
)
@click.option(
    "--load",
    type=click.Path(path_type=Path),
    help="Parquet with topic, time_ms and rates.  [default: a sample of real loads, scaled so "
    "that policies have something to do]",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[=FILE]",
    help="`default`, NAME=FILE or NAME={...}: JSON of what differs from it; may be repeated.  "
    "[default: default; with the sample, one that merges later beside it]",
)
@json_flag
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
def backtest(
    load: Path | None,
    policies: tuple[str, ...],
    json_path: str,
    mean_rate: float | None,
    step: int,
    **given: Any,
) -> int:
    """Replay loads of the past through the auto-scale rules, and compare policies.

    Exit status 0: done. 2: could not run, or a topic was left out, which standard error names.
    """
    tidy_when_terminated()
    from anabranch.spark_replay.backtest import run
    from anabranch.spark_replay.backtest.loads import SAMPLE
    from anabranch.spark_replay.spark.session import spark_session

    if load is None:
        load = SAMPLE
        mean_rate = mean_rate or run.SAMPLE_MEAN_RATE
        policies = policies or (run.DEFAULT, run.PATIENT)
    wanted = run.parse_policies(policies or (run.DEFAULT,))
    sys.stderr.write("backtest: starting Spark\n")
    with spark_session("backtest", None, spark_settings_of(given)) as spark:
        sys.stderr.write("backtest: replaying the loads\n")
        found = run.backtest(spark, load, wanted, step, mean_rate)
    for topic, why in list(found.faults.items())[:_NAMED_MAX]:
        sys.stderr.write(f"The topic {topic or 'without a name'} is left out: {why}\n")
    if json_path == "-":
        write_json(found.form())
    else:
        _tell(found)
    if json_path not in ("", "-"):
        Path(json_path).write_bytes(msgspec.json.format(msgspec.json.encode(found.form())))
    return ExitStatus.NOT_DONE if found.faults else ExitStatus.DONE


def _tell(found: Comparison) -> None:
    totals = {name: found.total(name) for name in found.policies}
    click.echo(f"{found.extent}\n")
    table(_HEAD, [(name, *_cells(total)) for name, total in totals.items()])
    click.echo()
    for name, total in totals.items():
        done = ", ".join(f"{why} {count:,}" for why, count in total.actions.items())
        blocked = ", ".join(f"{why} {duration(each)}" for why, each in total.blocked_s.items())
        click.echo(f"{name} done for: {done or 'none'}; blocked by: {blocked or 'nothing'}")


def _cells(figures: PolicyFigures) -> tuple[str, ...]:
    return (
        f"{figures.splits:,}",
        f"{figures.merges:,}",
        f"{figures.rebuckets:,}",
        f"{figures.flaps:,}",
        duration(figures.over_threshold_s),
        f"{figures.segment_hours:,.1f}",
        f"{figures.segments_mean:.2f}",
        f"{figures.segments_max:,}",
    )


def duration(seconds: float) -> str:
    """Writes a duration for people.

    >>> duration(0), duration(90), duration(7_260), duration(200_000)
    ('0', '1.5 min', '2.0 h', '55.6 h')
    """
    if not seconds:
        return "0"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
