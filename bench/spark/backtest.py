"""The back-test's speed: topic-days a minute, one evaluation a minute, under the default policy.

    python -m bench.spark.backtest [TOPIC_DAYS]

The load is the sample's tweets, each value of five minutes taken as that of one, so that nearly
every step differs from the one before; as many copies of it as are asked for. Beside it the same
rows go the same way through Spark into pandas and are only counted.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from anabranch.core.autoscale.policy import AutoScalePolicy
from anabranch.spark_replay.backtest.run import BacktestOptions, backtest
from anabranch.spark_replay.backtest.traces import SAMPLE, TraceDefaults, read_traces
from anabranch.spark_replay.spark.session import spark_session

TOPIC_DAYS = 1_120
GOAL = 1_000.0  # topic-days a minute
_MEAN_RATE = 5_000.0  # several segments, and something to do every hour
_TRACE_DAYS = 8_064 / 1_440
_WARM_DAYS = 60


def main(arguments: list[str]) -> int:
    """Write the load, measure, print."""
    days = int(arguments[0]) if arguments else TOPIC_DAYS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm, load = _written(folder / "warm", _WARM_DAYS), _written(folder / "load", days)
        with spark_session("bench", folder / "spark") as spark:
            result = _measured(spark, warm, load)
    print(json.dumps(result, indent=2))
    return 0 if result["topic_days_per_min"] >= GOAL else 1


def _written(folder: Path, days: int) -> Path:
    frame = pd.read_parquet(SAMPLE)
    tweets = frame[frame["topic"].str.startswith("tweets/")].copy()
    first = tweets["time_ms"].min()
    tweets["time_ms"] = first + (tweets["time_ms"] - first) // 5
    folder.mkdir()
    copies = max(1, round(days / (_TRACE_DAYS * tweets["topic"].nunique())))
    for copy in range(copies):
        named = tweets.assign(topic=tweets["topic"] + f"/{copy}")
        named.to_parquet(folder / f"{copy:04d}.parquet", index=False)
    return folder


def _measured(spark: SparkSession, warm: Path, load: Path) -> dict[str, Any]:
    _replay(spark, warm)
    _count(spark, warm)
    counted_s = [_count(spark, load)]
    began = time.monotonic()
    found = _replay(spark, load)
    took_s = time.monotonic() - began
    counted_s.append(_count(spark, load))  # the machine may not be ours alone
    total = found.total("default")
    return {
        "topic_days": round(found.topic_days, 1),
        "topics": len(found.topics),
        "seconds": round(took_s, 2),
        "topic_days_per_min": round(found.topic_days / took_s * 60),
        "counted_s": [round(each, 2) for each in counted_s],
        "counted_topic_days_per_min": round(found.topic_days / sum(counted_s) * 120),
        "decisions": total.evaluations,
        "worked_out": total.worked_out,
        "operations": total.operations,
        "segments_mean": round(total.segments_mean, 2),
    }


def _replay(spark: SparkSession, load: Path) -> Any:
    options = BacktestOptions([load], mean_rate=_MEAN_RATE)
    return backtest(spark, options, {"default": AutoScalePolicy()}, {})


def _count(spark: SparkSession, load: Path) -> float:
    """Seconds in which the same rows get to Python, a topic at a time."""
    began = time.monotonic()
    rows: DataFrame = read_traces(spark, [load], TraceDefaults()).repartition(
        4 * spark.sparkContext.defaultParallelism, "topic"
    )
    counts = rows.groupBy("topic").applyInPandas(_length, "topic string, rows long").collect()
    if not all(count for _, count in counts):
        raise RuntimeError("Spark lost a topic")
    return time.monotonic() - began


def _length(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"topic": frame["topic"].iloc[:1], "rows": [len(frame)]})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
