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

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.entities.segment import SEGMENTS_MAX
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.jars.java import find_java
from anabranch.spark_replay.archive.folders import Place
from anabranch.spark_replay.backtest.comparison import Comparison
from anabranch.spark_replay.backtest.job import BacktestPlan, replayed
from anabranch.spark_replay.backtest.model import Rules
from anabranch.spark_replay.backtest.page import page
from anabranch.spark_replay.backtest.policies import DEFAULT, parse_policies
from anabranch.spark_replay.backtest.recorded import read_recorded
from anabranch.spark_replay.backtest.spread import parse_spread
from anabranch.spark_replay.backtest.table import table
from anabranch.spark_replay.backtest.traces import SAMPLE, TraceDefaults, read_traces
from anabranch.spark_replay.report import output
from anabranch.spark_replay.report.charts import Bins
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.progress import told_session
from anabranch.spark_replay.spark.settings import SparkSettings

DONE: Final = 0
BAD_INPUT: Final = 2

SAMPLE_MEAN_RATE: Final = 5_000.0  # msg/s: most topics of the sample then split and merge
PATIENT: Final = 'patient={"mergeWindowSeconds": 1800}'
_BINS_MAX: Final = 240
_NAMED_MAX: Final = 20  # faults on a terminal


class BacktestOptions(msgspec.Struct, frozen=True):
    """The load to replay, the policies, and the places for reports.

    `load` has files of load traces, none for the sample of the installation. `factor` multiplies
    the rates. `mean_rate` is the mean that each topic shall have, in messages a second. Without
    either the rates stay unchanged, except those of the sample. Without `policies` the default one
    is used, and with the sample another one beside it.
    """

    load: Sequence[Path] = ()
    load_archive: Place | None = None  # the archive of a cluster's load topic
    archive_dir: Place | None = None  # the archive of its log, for the hashes of segments
    policies: Sequence[str] = ()
    json_path: str = ""  # "-": standard output
    html_path: Path | None = None
    step_s: int = 60
    factor: float | None = None
    mean_rate: float | None = None
    spread: str = "uniform"
    seed: int = 0
    assumed: TraceDefaults = TraceDefaults()
    rules: Rules = Rules()
    scratch_dir: Path | None = None
    spark: SparkSettings = SparkSettings()


def with_defaults(options: BacktestOptions) -> BacktestOptions:
    """Returns options with which something happens, even if the user gave little or nothing.

    The sample's own rates are far below all thresholds, so that no policy would do anything.
    """
    is_sample = not options.load and options.load_archive is None
    if is_sample and options.mean_rate is None and options.factor is None:
        options = msgspec.structs.replace(options, mean_rate=SAMPLE_MEAN_RATE)
    if not options.policies:
        shown = (DEFAULT, PATIENT) if is_sample else (DEFAULT,)
        options = msgspec.structs.replace(options, policies=shown)
    return options


def run_backtest(options: BacktestOptions) -> int:
    """Replays and reports. Returns 0, or 2 if a part of the input could not be used."""
    options = with_defaults(options)
    try:
        policies, faults = parse_policies(options.policies)
        for name, why in faults.items():
            sys.stderr.write(f"The policy {name} is left out: {why}\n")
        if not policies:
            raise InvalidInputError("no policy is left")
        parse_spread(options.spread)
        _check(options)
        find_java()
        with told_session("backtest", options.scratch_dir, options.spark) as (spark, progress):
            progress.step("replaying the loads")
            found = backtest(spark, options, policies, faults)
        output.write(
            found, lambda: table(found), lambda: page(found), options.json_path, options.html_path
        )
    except AnabranchError as error:
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
    """Returns the comparison. Raises AnabranchError if there is nothing to compare."""
    started = time.monotonic()
    try:
        load = _load(spark, options)
        bins = _bins(load, options.step_s * 1000)
        plan = BacktestPlan(
            policies,
            options.rules,
            bins,
            options.step_s,
            1.0 if options.factor is None else options.factor,
            options.mean_rate or 0.0,
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
        ", ".join(_names(options)),
        _scale(options),
        _model(options),
        policies,
        usable,
        faults,
        policy_faults,
        bins,
        time.monotonic() - started,
    )


def _paths(options: BacktestOptions) -> Sequence[Path]:
    return options.load or ([SAMPLE] if options.load_archive is None else [])


def _names(options: BacktestOptions) -> list[str]:
    recorded = str(options.load_archive or "").rpartition("/")[2]
    return [path.name for path in _paths(options)] + ([recorded] if recorded else [])


def _load(spark: SparkSession, options: BacktestOptions) -> DataFrame:
    """Returns traces and recorded loads, in the same columns."""
    if options.load_archive is None:
        return read_traces(spark, _paths(options), options.assumed)
    found = read_recorded(spark, options.load_archive, options.archive_dir, options.step_s)
    if not options.load:
        return found
    traces = read_traces(spark, options.load, options.assumed)
    return found.unionByName(traces, allowMissingColumns=True)


def _check(options: BacktestOptions) -> None:
    """Raises InvalidInputError for a missing load, or for too many segments to begin with."""
    rules = options.rules
    if not 1 <= rules.segments <= SEGMENTS_MAX:
        raise InvalidInputError(f"a topic begins with 1 to {SEGMENTS_MAX} segments")
    for path in options.load:
        if not path.exists():
            raise InvalidInputError(f"there is no load in {path}: check the path")


def _bins(load: DataFrame, step_ms: int) -> Bins:
    """Returns the plots' time axis: whole steps, few enough to be told apart."""
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


def _scale(options: BacktestOptions) -> str:
    if options.mean_rate is not None:
        return f"each topic is scaled to a mean of {options.mean_rate:,g} messages a second"
    if options.factor is not None:
        return f"all rates are multiplied by {options.factor:g}"
    return "the rates are as they were"


def _model(options: BacktestOptions) -> dict[str, str | float]:
    """Returns the assumptions of the figures."""
    rules = options.rules
    return {
        "step s": options.step_s,
        "spread": options.spread,
        "seed": options.seed,
        "first segments": rules.segments,
        "consumers": rules.consumers,
        "operation s": rules.operation_s,
        "flap s": rules.flap_s,
        "retention s": rules.retention_s,
        "sealed retention s": rules.sealed_retention_s,
        "message bytes": options.assumed.message_bytes,
        "subscriptions": options.assumed.subscriptions,
    }
