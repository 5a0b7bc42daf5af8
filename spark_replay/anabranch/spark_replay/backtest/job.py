"""The back-test as one Spark job: a task's topics one after the other, each under every policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.backtest.grid import Grid, gridded
from anabranch.spark_replay.backtest.model import PolicyReplay, Rules
from anabranch.spark_replay.backtest.outcome import TopicResult
from anabranch.spark_replay.backtest.spread import Spread, below
from anabranch.spark_replay.backtest.traces import rows_of
from anabranch.spark_replay.report.charts import Bins

_TASKS: Final = 4  # for each core, so that none waits long for another
_EVEN: Final = Spread()


class BacktestPlan(msgspec.Struct, frozen=True):
    """The data for every task.
    `mean_rate` is the mean to which each topic is scaled, 0 for a scaling by `factor`.
    """

    policies: Mapping[str, AutoScalePolicy]
    rules: Rules
    bins: Bins
    step_s: int = 60
    factor: float = 1.0
    mean_rate: float = 0.0
    spread: Spread = _EVEN
    seed: int = 0


def replayed(spark: SparkSession, load: DataFrame, plan: BacktestPlan) -> list[TopicResult]:
    """Returns every topic's result, by name."""
    tasks = _TASKS * spark.sparkContext.defaultParallelism
    rows = (
        load.repartition(tasks, "topic")
        .groupBy("topic")
        .applyInPandas(_tester(plan), "result binary")
        .collect()
    )
    found = [msgspec.msgpack.decode(bytes(result), type=TopicResult) for (result,) in rows]
    return sorted(found, key=lambda each: each.topic)


def _tester(plan: BacktestPlan) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def test(frame: pd.DataFrame) -> pd.DataFrame:
        topic = str(frame["topic"].iloc[0])
        return pd.DataFrame({"result": [msgspec.msgpack.encode(topic_result(topic, frame, plan))]})

    return test


def topic_result(topic: str, frame: pd.DataFrame, plan: BacktestPlan) -> TopicResult:
    """Runs one topic under every policy. Returns its fault if its rows cannot be used."""
    try:
        if not topic:
            raise InvalidInputError("the topic is missing in some rows")
        grid = gridded(rows_of(frame), plan.step_s * 1000)
    except InvalidInputError as error:
        return TopicResult(topic, str(error))
    mean = grid.mean()
    grid.scaled((plan.mean_rate / mean if mean else 1.0) if plan.mean_rate else plan.factor)
    # Rows that name ranges say themselves where the load lies.
    shares = below(plan.spread if len(grid.edges) == 2 else _EVEN, topic, plan.seed)
    first = next(iter(plan.policies.values()))
    outcomes = [
        PolicyReplay(grid, shares, policy, first, plan.rules).run(name)
        for name, policy in plan.policies.items()
    ]
    return TopicResult(topic, "", grid.begin_ms, grid.end_ms, _binned(grid, plan.bins), outcomes)


def _binned(grid: Grid, bins: Bins) -> list[float]:
    """Returns the messages in per second, in the mean over each bin."""
    total = grid.rates[:, 0].sum(axis=1)
    walls = np.append(grid.firsts, grid.steps) * grid.step_ms + grid.begin_ms
    past = np.append(0.0, np.cumsum(total * np.diff(walls)))
    edges = bins.start_ms + np.arange(bins.count + 1) * bins.width_ms
    found: list[float] = (np.diff(np.interp(edges, walls, past)) / bins.width_ms).tolist()
    return found
