"""The back-test, from loads and policies to a comparison. One Spark job replays the topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pandas as pd
from pyspark.sql import SparkSession

from anabranch.core.autoscale.policy import AutoScalePolicy, fault_of
from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.spark_replay.backtest.loads import load_of, read_traces
from anabranch.spark_replay.backtest.model import PolicyFigures, PolicyReplay
from anabranch.spark_replay.report import clock
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause

DEFAULT: Final = "default"
SAMPLE_MEAN_RATE: Final = 5_000.0  # msg/s: most topics of the sample then split and merge
PATIENT: Final = 'patient={"mergeWindowSeconds": 1800}'
_TASKS: Final = 4  # for each core, so that none waits long for another


class TopicResult(msgspec.Struct, frozen=True):
    """All policies on one topic, or the reason why its load cannot be used."""

    topic: str
    fault: str = ""
    begin_ms: int = 0
    end_ms: int = 0
    outcomes: Mapping[str, PolicyFigures] = {}


class Comparison(msgspec.Struct, frozen=True):
    """Several policies on the same load."""

    policies: Mapping[str, AutoScalePolicy]
    topics: Sequence[TopicResult]  # those that could be used
    faults: Mapping[str, str]  # of the other topics

    @property
    def extent(self) -> str:
        """The replayed load, in words."""
        begin_ms = min(topic.begin_ms for topic in self.topics)
        end_ms = max(topic.end_ms for topic in self.topics)
        return (
            f"{len(self.topics):,} topics, {self.topic_days:,.1f} topic-days, "
            f"{clock(begin_ms)} to {clock(end_ms)}"
        )

    @property
    def topic_days(self) -> float:
        return sum(topic.end_ms - topic.begin_ms for topic in self.topics) / 86_400_000

    def total(self, policy: str) -> PolicyFigures:
        """Adds up the figures of all topics."""
        return PolicyFigures.total(topic.outcomes[policy] for topic in self.topics)

    def form(self) -> dict[str, Any]:
        """Returns the comparison in the form of the JSON."""
        return {
            "topics": len(self.topics),
            "topic_days": round(self.topic_days, 3),
            "left_out": self.faults,
            "policies": [
                {
                    "name": name,
                    "policy": policy,
                    "total": self.total(name).form(),
                    "topics": [
                        {
                            "topic": topic.topic,
                            "from": clock(topic.begin_ms),
                            "to": clock(topic.end_ms),
                            **topic.outcomes[name].form(),
                        }
                        for topic in self.topics
                    ],
                }
                for name, policy in self.policies.items()
            ],
        }


def backtest(
    spark: SparkSession,
    load: Path,
    policies: Mapping[str, AutoScalePolicy],
    step_s: int = 60,
    mean_rate: float | None = None,
) -> Comparison:
    """Returns the comparison. Raises AnabranchError if there is nothing to compare.

    `mean_rate` is the mean that each topic shall have, in messages a second. Without it the rates
    stay unchanged.
    """

    def test(frame: pd.DataFrame) -> pd.DataFrame:
        topic = str(frame["topic"].iloc[0] or "")
        found = topic_result(topic, frame, policies, step_s, mean_rate)
        return pd.DataFrame({"result": [msgspec.msgpack.encode(found)]})

    try:
        tasks = _TASKS * spark.sparkContext.defaultParallelism
        rows = (
            read_traces(spark, load)
            .repartition(tasks, "topic")
            .groupBy("topic")
            .applyInPandas(test, "result binary")
            .collect()
        )
    except SPARK_ERRORS as error:
        raise AnabranchError(f"Spark failed: {cause(error)}") from error
    results = [msgspec.msgpack.decode(bytes(result), type=TopicResult) for (result,) in rows]
    results.sort(key=lambda each: each.topic)
    usable = [each for each in results if not each.fault]
    faults = {each.topic: each.fault for each in results if each.fault}
    if not usable:
        why = next(iter(faults.values()), "it has no rows")
        raise InvalidInputError(f"no topic of the load can be used: {why}")
    return Comparison(policies, usable, faults)


def topic_result(
    topic: str,
    frame: pd.DataFrame,
    policies: Mapping[str, AutoScalePolicy],
    step_s: int = 60,
    mean_rate: float | None = None,
) -> TopicResult:
    """Runs one topic under every policy. Returns its fault if its rows cannot be used."""
    try:
        if not topic:
            raise InvalidInputError("the topic is missing in some rows")
        load = load_of(frame, step_s * 1000)
    except InvalidInputError as error:
        return TopicResult(topic, str(error))
    if mean_rate is not None:
        load = load.scaled(mean_rate)
    first = next(iter(policies.values()))
    outcomes = {name: PolicyReplay(load, policy, first).run() for name, policy in policies.items()}
    return TopicResult(topic, "", load.begin_ms, load.end_ms, outcomes)


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
