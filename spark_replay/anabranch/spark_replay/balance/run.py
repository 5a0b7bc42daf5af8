"""The back-test of the balancer from its options to its reports: a Spark task for each setting."""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from anabranch.core.balance.recording import LoadRecording, parse_recording
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.strategies import Strategies
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.jars.java import find_java
from anabranch.spark_replay.backtest.run import BAD_INPUT, DONE
from anabranch.spark_replay.balance.brokers import BrokerModel, models_of
from anabranch.spark_replay.balance.outcome import BalanceComparison, BalanceOutcome
from anabranch.spark_replay.balance.page import page
from anabranch.spark_replay.balance.replay import BalanceReplay, ReplayRules
from anabranch.spark_replay.balance.table import table
from anabranch.spark_replay.balance.variants import DEFAULT, Variants, parse_variants
from anabranch.spark_replay.report import output
from anabranch.spark_replay.report.charts import Bins
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.progress import told_session
from anabranch.spark_replay.spark.settings import SparkSettings

SAMPLE: Final = Path(str(files(__package__).joinpath("data/balance_sample.jsonl.gz")))
_RESTLESS: Final = (
    '{"loadBalancerBrokerLoadTargetStd": 0.1, "loadBalancerSheddingGracePeriodMinutes": 0, '
    '"loadBalancerSheddingConditionHitCountThreshold": 0}'
)
SHOWN: Final = (
    DEFAULT,
    'off={"loadBalancerSheddingEnabled": false}',
    'tight={"loadBalancerBrokerLoadTargetStd": 0.1}',
    f"restless={_RESTLESS}",
    'adjusted={"loadBalancerAdjustedThresholdsEnabled": true}',
)
_BINS_MAX: Final = 240
_STEPS_MAX: Final = 2_000_000


class BalanceBacktestOptions(msgspec.Struct, frozen=True):
    """What to replay under which settings, and where to report.

    `load`: a recording; None: the sample that is part of the installation. `settings`: none: the
    default ones; with the sample, others beside them.
    """

    load: Path | None = None
    settings: Sequence[str] = ()
    varied: Sequence[str] = ()
    json_path: str = ""  # "-": standard output
    html_path: Path | None = None
    rules: ReplayRules = ReplayRules()
    scratch_dir: Path | None = None
    spark: SparkSettings = SparkSettings()
    strategies: Strategies | None = None  # of one's own, that settings may name


def run_balance_backtest(options: BalanceBacktestOptions) -> int:
    """Replays, reports as asked, and answers 0, or 2 when not all of the input could be used."""
    started = time.monotonic()
    try:
        shown = SHOWN if options.load is None and not options.varied else (DEFAULT,)
        variants, faults = parse_variants(options.settings or shown, options.varied)
        for name, why in faults.items():
            sys.stderr.write(f"The settings {name} are left out: {why}\n")
        if not variants:
            raise InvalidInputError("no settings are left")
        path = options.load or SAMPLE
        recording = read_recording(path)
        bins = bins_of(recording, options.rules)
        find_java()
        models = models_of(recording)
        with told_session("backtest", options.scratch_dir, options.spark) as (spark, progress):
            progress.step("replaying the balancer")
            outcomes = replayed_by(
                spark, recording, models, variants, options.rules, bins, options.strategies
            )
        found = BalanceComparison(
            path.name,
            (recording.begin_ms, recording.end_ms),
            len(recording.bundles),
            models,
            variants,
            outcomes,
            faults,
            {
                "step s": options.rules.step_s,
                "move s": options.rules.move_s,
                "flap s": options.rules.flap_s,
            },
            bins,
            time.monotonic() - started,
        )
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
    return BAD_INPUT if faults else DONE


def read_recording(path: Path) -> LoadRecording:
    """Reads a file of JSON lines, which may be packed by gzip. Raises InvalidInputError."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInputError(f"{path}: {reason}") from None
    try:
        return parse_recording(content.split(b"\n"))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} is no recording that can be used: {error}") from None


def bins_of(recording: LoadRecording, rules: ReplayRules) -> Bins:
    """The plots' time axis: whole steps, few enough to be told apart. Raises InvalidInputError."""
    step_ms = round(rules.step_s * 1000)
    span_ms = recording.end_ms - recording.begin_ms
    if span_ms / step_ms > _STEPS_MAX:
        raise InvalidInputError(
            f"the recording has {span_ms / step_ms:,.0f} steps, more than {_STEPS_MAX:,}: give a "
            "longer --step"
        )
    width = step_ms * max(1, -(-(span_ms + step_ms) // (step_ms * _BINS_MAX)))
    return Bins(recording.begin_ms, width, span_ms // width + 1)


def replayed_by(
    spark: SparkSession,
    recording: LoadRecording,
    models: Mapping[str, BrokerModel],
    variants: Variants,
    rules: ReplayRules,
    bins: Bins,
    strategies: Strategies | None = None,
) -> list[BalanceOutcome]:
    """Each setting's outcome, in their order; each is a task of its own."""
    yardstick = next(iter(variants.values()))
    try:
        shared = spark.sparkContext.broadcast(
            (recording, models, yardstick, rules, bins, strategies)
        )

        def replay(variant: tuple[str, BalanceSettings]) -> bytes:
            name, settings = variant
            known, brokers, first, how, axis, own = shared.value
            run = BalanceReplay(known, brokers, settings, first, how, axis, own)
            return msgspec.msgpack.encode(run.run(name))

        tasks = spark.sparkContext.parallelize(list(variants.items()), len(variants))
        found = tasks.map(replay).collect()
    except SPARK_ERRORS as error:
        raise AnabranchError(f"Spark failed: {cause(error)}") from error
    return [msgspec.msgpack.decode(each, type=BalanceOutcome) for each in found]
