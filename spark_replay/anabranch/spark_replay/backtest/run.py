"""The back-test from its options to its reports."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.channel.embedded.errors import EmbeddedError
from anabranch.channel.embedded.java import find_java
from anabranch.core.autoscale_policy import AutoScalePolicy
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.core.segments import SEGMENTS_MAX
from anabranch.spark_replay.backtest.comparison import Comparison
from anabranch.spark_replay.backtest.job import Plan, replayed
from anabranch.spark_replay.backtest.model import Rules
from anabranch.spark_replay.backtest.page import page
from anabranch.spark_replay.backtest.policies import DEFAULT, parse_policies
from anabranch.spark_replay.backtest.recorded import read_recorded
from anabranch.spark_replay.backtest.spread import parse_spread
from anabranch.spark_replay.backtest.table import table
from anabranch.spark_replay.backtest.traces import SAMPLE, Assumed, read_traces
from anabranch.spark_replay.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.report import output
from anabranch.spark_replay.report.charts import Bins
from anabranch.spark_replay.session import local_session

DONE: Final = 0
BAD_INPUT: Final = 2

_BINS_MAX: Final = 240
_NAMED_MAX: Final = 20  # faults on a terminal


class BacktestOptions(msgspec.Struct, frozen=True):
    """What to replay under which policies, and where to report.

    `load`: files of load traces; none: the sample that is part of the installation. `factor`,
    `mean_rate`: what rates are multiplied by, or what each topic's mean shall be.
    """

    load: Sequence[Path] = ()
    load_archive: Path | None = None  # of a cluster's load topic
    archive_dir: Path | None = None  # of its log, which tells what segments were
    policies: Sequence[str] = (DEFAULT,)
    json_path: str = ""  # "-": standard output
    html_path: Path | None = None
    step_s: int = 60
    factor: float = 1.0
    mean_rate: float = 0.0
    spread: str = "uniform"
    seed: int = 0
    assumed: Assumed = Assumed()
    rules: Rules = Rules()
    scratch_dir: Path | None = None


def run_backtest(options: BacktestOptions) -> int:
    """Replays, reports as asked, and answers 0, or 2 when not all of the input could be used."""
    try:
        policies, faults = parse_policies(options.policies)
        for name, why in faults.items():
            sys.stderr.write(f"The policy {name} is left out: {why}\n")
        if not policies:
            raise InvalidInputError("no policy is left")
        parse_spread(options.spread)
        _check(options)
        find_java()
        with local_session("anabranch backtest", options.scratch_dir) as spark:
            found = backtest(spark, options, policies, faults)
        output.write(
            found, lambda: table(found), lambda: page(found), options.json_path, options.html_path
        )
    except (AnabranchError, EmbeddedError) as error:
        sys.stderr.write(f"The back-test could not run: {error}\n")
        return BAD_INPUT
    except OSError as error:
        sys.stderr.write(
            f"The back-test could not write its report: {error.filename}: {error.strerror}\n"
        )
        return BAD_INPUT
    return BAD_INPUT if found.topic_faults or found.policy_faults else DONE


def backtest(
    spark: SparkSession,
    options: BacktestOptions,
    policies: Mapping[str, AutoScalePolicy],
    policy_faults: Mapping[str, str],
) -> Comparison:
    """The comparison. Raises AnabranchError when there is nothing to compare."""
    started = time.monotonic()
    try:
        load = _load(spark, options)
        bins = _bins(load, options.step_s * 1000)
        plan = Plan(
            policies,
            options.rules,
            bins,
            options.step_s,
            options.factor,
            options.mean_rate,
            parse_spread(options.spread),
            options.seed,
        )
        results = replayed(spark, load, plan)
    except SPARK_ERRORS as error:
        raise AnabranchError(f"Spark failed: {cause(error)}") from error
    usable = [each for each in results if not each.fault]
    faults = {each.topic: each.fault for each in results if each.fault}
    _name(faults)
    if not usable:
        raise InvalidInputError("no topic of the load can be used")
    return Comparison(
        ", ".join(path.name for path in _paths(options)),
        _model(options),
        policies,
        usable,
        faults,
        policy_faults,
        bins,
        time.monotonic() - started,
    )


def _paths(options: BacktestOptions) -> Sequence[Path]:
    recorded = [options.load_archive] if options.load_archive is not None else []
    return [*options.load, *recorded] or [SAMPLE]


def _load(spark: SparkSession, options: BacktestOptions) -> DataFrame:
    """Traces and what was recorded, in the same columns."""
    if options.load_archive is None:
        return read_traces(spark, _paths(options), options.assumed)
    found = read_recorded(spark, options.load_archive, options.archive_dir, options.step_s)
    if not options.load:
        return found
    traces = read_traces(spark, options.load, options.assumed)
    return found.unionByName(traces, allowMissingColumns=True)


def _check(options: BacktestOptions) -> None:
    """Raises InvalidInputError."""
    rules = options.rules
    if not 1 <= rules.segments <= SEGMENTS_MAX:
        raise InvalidInputError(f"a topic begins with 1 to {SEGMENTS_MAX} segments")
    for path in options.load:
        if not path.exists():
            raise InvalidInputError(f"there is no load in {path}: check the path")


def _bins(load: DataFrame, step_ms: int) -> Bins:
    """The plots' time axis: whole steps, few enough to be told apart."""
    row = load.agg(F.min("time_ms"), F.max("time_ms")).first()
    if row is None or row[0] is None:
        raise InvalidInputError("the load has no rows with a time")
    first, last = row
    width = step_ms * max(1, -(-(last - first + step_ms) // (step_ms * _BINS_MAX)))
    return Bins(first, width, (last - first) // width + 1)


def _name(faults: Mapping[str, str]) -> None:
    for topic, why in list(faults.items())[:_NAMED_MAX]:
        sys.stderr.write(f"The topic {topic or 'without a name'} is left out: {why}\n")
    if len(faults) > _NAMED_MAX:
        sys.stderr.write(f"and {len(faults) - _NAMED_MAX:,} more topics\n")


def _model(options: BacktestOptions) -> dict[str, str | float]:
    """What the figures rest on."""
    rules = options.rules
    scale: dict[str, str | float] = (
        {"mean msg/s of each topic": options.mean_rate}
        if options.mean_rate
        else {"rates times": options.factor}
    )
    return {
        "step s": options.step_s,
        **scale,
        "spread": options.spread,
        "seed": options.seed,
        "first segments": rules.segments,
        "consumers": rules.consumers,
        "operation s": rules.operation_s,
        "flap s": rules.flap_s,
        "retention s": rules.retention_s,
        "message bytes": options.assumed.message_bytes,
        "subscriptions": options.assumed.subscriptions,
    }
