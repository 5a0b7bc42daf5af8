"""The back-test from its options to its reports. One Spark job replays the topics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.core.autoscale.policy import AutoScalePolicy, fault_of
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.jars.java import find_java
from anabranch.spark_replay import report
from anabranch.spark_replay.archive.folders import Place
from anabranch.spark_replay.backtest.comparison import Comparison, TopicResult, page, table
from anabranch.spark_replay.backtest.loads import (
    SAMPLE,
    Load,
    load_of,
    read_recorded,
    read_traces,
)
from anabranch.spark_replay.backtest.model import PolicyReplay, Rules, spread
from anabranch.spark_replay.report import Bins
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.session import spark_session
from anabranch.spark_replay.spark.settings import SparkSettings

DONE: Final = 0
BAD_INPUT: Final = 2

DEFAULT: Final = "default"
SAMPLE_MEAN_RATE: Final = 5_000.0  # msg/s: most topics of the sample then split and merge
PATIENT: Final = 'patient={"mergeWindowSeconds": 1800}'
_TASKS: Final = 4  # for each core, so that none waits long for another
_BINS_MAX: Final = 240
_NAMED_MAX: Final = 20  # faults on a terminal


class BacktestOptions(msgspec.Struct, frozen=True):
    """The load to replay, the policies, and the places for reports.

    The load is a file of rates, the archive of a cluster's load topic, or the sample of the
    installation. `mean_rate` is the mean that each topic shall have, in messages a second. Without
    it the rates stay unchanged, except those of the sample.
    """

    load: Path | None = None
    load_archive: Place | None = None
    policies: Sequence[str] = ()
    json_path: str = ""  # "-": standard output
    html_path: Path | None = None
    step_s: int = 60
    mean_rate: float | None = None
    spread: str = "uniform"
    rules: Rules = Rules()
    scratch_dir: Path | None = None
    spark: SparkSettings = SparkSettings()


def with_defaults(options: BacktestOptions) -> BacktestOptions:
    """Returns options with which something happens, even if the user gave little or nothing.

    The sample's own rates are far below all thresholds, so that no policy would do anything.
    """
    is_sample = options.load is None and options.load_archive is None
    if is_sample:
        options = msgspec.structs.replace(
            options, load=SAMPLE, mean_rate=options.mean_rate or SAMPLE_MEAN_RATE
        )
    if not options.policies:
        shown = (DEFAULT, PATIENT) if is_sample else (DEFAULT,)
        options = msgspec.structs.replace(options, policies=shown)
    return options


def run_backtest(options: BacktestOptions) -> int:
    """Replays and reports. Returns 0, or 2 if a part of the input could not be used."""
    options = with_defaults(options)
    try:
        parse_policies(options.policies)
        spread(options.spread, "")
        if options.load is not None and not options.load.exists():
            raise InvalidInputError(f"there is no load in {options.load}: check the path")
        find_java()
        sys.stderr.write("backtest: starting Spark\n")
        with spark_session("backtest", options.scratch_dir, options.spark) as spark:
            sys.stderr.write("backtest: replaying the loads\n")
            found = backtest(spark, options)
        for topic, why in list(found.faults.items())[:_NAMED_MAX]:
            sys.stderr.write(f"The topic {topic or 'without a name'} is left out: {why}\n")
        report.write(
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
    return BAD_INPUT if found.faults else DONE


def backtest(spark: SparkSession, options: BacktestOptions) -> Comparison:
    """Returns the comparison. Raises AnabranchError if there is nothing to compare."""
    started = time.monotonic()
    policies = parse_policies(options.policies)
    try:
        if options.load is not None:
            load = read_traces(spark, options.load)
        elif options.load_archive is not None:
            load = read_recorded(spark, options.load_archive, options.step_s)
        else:
            raise InvalidInputError("no load is named")
        bins = _bins(load, options.step_s * 1000)
        tasks = _TASKS * spark.sparkContext.defaultParallelism
        rows = (
            load.repartition(tasks, "topic")
            .groupBy("topic")
            .applyInPandas(_tester(options, policies, bins), "result binary")
            .collect()
        )
    except SPARK_ERRORS as error:
        raise AnabranchError(f"Spark failed: {cause(error)}") from error
    results = [msgspec.msgpack.decode(bytes(result), type=TopicResult) for (result,) in rows]
    results.sort(key=lambda each: each.topic)
    usable = [each for each in results if not each.fault]
    faults = {each.topic: each.fault for each in results if each.fault}
    if not usable:
        raise InvalidInputError(f"no topic of the load can be used: {next(iter(faults.values()))}")
    place = options.load or options.load_archive
    return Comparison(
        str(place).rpartition("/")[2],
        _model(options),
        policies,
        usable,
        faults,
        bins,
        time.monotonic() - started,
    )


def _tester(
    options: BacktestOptions, policies: Mapping[str, AutoScalePolicy], bins: Bins
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def test(frame: pd.DataFrame) -> pd.DataFrame:
        found = topic_result(str(frame["topic"].iloc[0] or ""), frame, options, policies, bins)
        return pd.DataFrame({"result": [msgspec.msgpack.encode(found)]})

    return test


def topic_result(
    topic: str,
    frame: pd.DataFrame,
    options: BacktestOptions,
    policies: Mapping[str, AutoScalePolicy],
    bins: Bins,
) -> TopicResult:
    """Runs one topic under every policy. Returns its fault if its rows cannot be used."""
    try:
        if not topic:
            raise InvalidInputError("the topic is missing in some rows")
        load = load_of(frame, options.step_s * 1000)
    except InvalidInputError as error:
        return TopicResult(topic, str(error))
    mean = sum(each[0] for each in load.rates) / len(load.rates)
    if options.mean_rate is not None and mean:
        by = options.mean_rate / mean
        scaled = [(a * by, b * by, c * by, d * by) for a, b, c, d in load.rates]
        load = msgspec.structs.replace(load, rates=scaled)
    below = spread(options.spread, topic)
    first = next(iter(policies.values()))
    outcomes = {}
    for name, policy in policies.items():
        found = PolicyReplay(load, below, policy, first, options.rules).run()
        binned = _binned(found.segments, load, bins)
        outcomes[name] = msgspec.structs.replace(found, segments=binned)
    by_bin = _binned([each[0] for each in load.rates], load, bins)
    return TopicResult(topic, "", load.begin_ms, load.end_ms, by_bin, outcomes)


def _binned(values: Sequence[float], load: Load, bins: Bins) -> list[float]:
    """Returns the mean over each bin of a value that each step has, 0 for a time without load."""
    begins = load.begin_ms + np.arange(len(values)) * load.step_ms
    places = np.minimum((begins - bins.start_ms) // bins.width_ms, bins.count - 1)
    sums = np.bincount(places, np.asarray(values, np.float64), bins.count)
    found: list[float] = (sums * load.step_ms / bins.width_ms).tolist()
    return found


def _bins(load: DataFrame, step_ms: int) -> Bins:
    """Returns the plots' time axis: whole steps, few enough to be told apart."""
    row = load.agg(F.min("time_ms"), F.max("time_ms")).first()
    if row is None or row[0] is None:
        raise InvalidInputError("the load has no rows with a time")
    first, last = row
    width = step_ms * max(1, -(-(last - first + step_ms) // (step_ms * _BINS_MAX)))
    return Bins(first, width, (last - first) // width + 1)


def _model(options: BacktestOptions) -> dict[str, str | float]:
    """Returns the assumptions of the figures."""
    rules = options.rules
    return {
        "mean rate": "as it was" if options.mean_rate is None else options.mean_rate,
        "step s": options.step_s,
        "spread": options.spread,
        "consumers": rules.consumers,
        "flap s": rules.flap_s,
        "retention s": rules.retention_s,
    }


# --- policies as the command line gives them --------------------------------------------------


def parse_policies(given: Sequence[str]) -> dict[str, AutoScalePolicy]:
    """Parses `default`, `NAME=FILE` or `NAME={...}`. Raises InvalidInputError.

    A policy takes all that it does not set from the default one.
    """
    found: dict[str, AutoScalePolicy] = {}
    for text in given:
        name, sep, what = text.partition("=")
        if name in found:
            raise InvalidInputError(f"two policies have the name {name}")
        if text != DEFAULT and not (name and sep):
            raise InvalidInputError(
                f"give {DEFAULT}, NAME=FILE or NAME={{...}} for a policy, not {text!r}"
            )
        found[name] = _parsed(name, what) if sep else AutoScalePolicy()
    return found


def _parsed(name: str, what: str) -> AutoScalePolicy:
    try:
        form = what.encode() if what.lstrip().startswith("{") else Path(what).read_bytes()
        policy = msgspec.json.decode(form, type=AutoScalePolicy)
        fault = fault_of(policy)
    except OSError as error:
        fault = f"{what}: {error.strerror}"
    except msgspec.DecodeError as error:
        fault = f"it is no auto-scale policy in JSON: {error}"
    if fault:
        raise InvalidInputError(f"the policy {name} cannot be used: {fault}")
    return policy
