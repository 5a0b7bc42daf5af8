"""Load traces, read by Spark: the needed columns, and those that follow from them.

A trace needs `topic`, `time` (a timestamp, or ISO 8601 in UTC) or `time_ms` (since 1970), and
`msg_rate_in`. `bytes_rate_in`, `msg_rate_out` and `bytes_rate_out` follow from it if they are
missing. `consumers`, and `hash_start` and `hash_end` (inclusive), are optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.backtest.grid import Rows
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause

SAMPLE: Final = Path(str(files(__package__).joinpath("data/load_sample.parquet")))
_RATES: Final = ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
_WHOLE: Final = ("consumers", "hash_start", "hash_end")


class TraceDefaults(msgspec.Struct, frozen=True):
    """The assumptions for columns that a trace does not have."""

    message_bytes: float = 1_000.0
    subscriptions: float = 1.0  # each of which reads everything once


def read_traces(spark: SparkSession, paths: Sequence[Path], assumed: TraceDefaults) -> DataFrame:
    """Returns all files' rows, with the names above and times as `time_ms`.
    Raises InvalidInputError.
    """
    found: DataFrame | None = None
    for path in paths:
        one = _columns(_read(spark, path), path, assumed)
        found = one if found is None else found.unionByName(one, allowMissingColumns=True)
    if found is None:
        raise InvalidInputError("no load is named")
    return found


def rows_of(frame: pd.DataFrame) -> Rows:
    """Returns the rows of one topic. Raises InvalidInputError for a value that is no number."""
    if frame["time_ms"].isna().any():
        raise InvalidInputError("a time is missing, or is none")
    rates = frame[list(_RATES)].to_numpy(np.float64)
    whole = {}
    for name in _WHOLE:
        if name in frame.columns and frame[name].notna().any():
            if frame[name].isna().any():
                raise InvalidInputError(f"{name} is missing, or no whole number, in some rows")
            whole[name] = frame[name].to_numpy(np.int64)
    if ("hash_start" in whole) is not ("hash_end" in whole):
        raise InvalidInputError("hash_start and hash_end belong together")
    times = frame["time_ms"].to_numpy(np.int64)
    return Rows(
        times, rates, whole.get("consumers"), whole.get("hash_start"), whole.get("hash_end")
    )


def _read(spark: SparkSession, path: Path) -> DataFrame:
    if not path.exists():
        raise InvalidInputError(f"there is no load in {path}: check the path")
    try:
        is_csv = path.suffix == ".csv" or path.name.endswith(".csv.gz")
        if not spark.sparkContext.getConf().get("spark.master", "local").startswith("local"):
            return _sent(spark, path, is_csv=is_csv)
        if is_csv:
            return spark.read.option("header", "true").csv(str(path.absolute()))
        return spark.read.parquet(str(path.absolute()))
    except (*SPARK_ERRORS, pa.ArrowException, OSError, ValueError) as error:
        reason = cause(error)
        raise InvalidInputError(
            f"{path} is neither Parquet nor a file whose name ends with .csv or .csv.gz: {reason}"
        ) from None


def _sent(spark: SparkSession, path: Path, *, is_csv: bool) -> DataFrame:
    """Reads the file here, because a cluster's workers may lack this machine's files."""
    if is_csv:
        texts = pd.read_csv(path, dtype=str)
        return spark.createDataFrame(pa.Table.from_pandas(texts, preserve_index=False))
    return spark.createDataFrame(pq.read_table(path))


def _columns(frame: DataFrame, path: Path, assumed: TraceDefaults) -> DataFrame:
    names = set(frame.columns)
    missing = [name for name in ("topic", "msg_rate_in") if name not in names]
    if not names & {"time", "time_ms"}:
        missing.append("time")
    if missing:
        raise InvalidInputError(
            f"{path} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}"
        )
    if "time_ms" in names:
        time_ms = F.col("time_ms").try_cast("long")
    elif dict(frame.dtypes)["time"].startswith("timestamp"):
        time_ms = F.unix_millis(F.col("time").cast("timestamp"))
    else:
        time_ms = F.unix_millis(F.try_to_timestamp(F.col("time").cast("string")))

    def rate(name: str, otherwise: Column) -> Column:
        # A value that is no number is found with its topic, so that the others go on.
        unreadable = F.lit(float("nan"))
        if name in names:
            return F.coalesce(F.col(name).try_cast("double"), unreadable).alias(name)
        return otherwise.alias(name)

    come = rate("msg_rate_in", F.lit(0.0))
    size = F.lit(float(assumed.message_bytes))
    bytes_in = rate("bytes_rate_in", come * size)
    readers = F.lit(float(assumed.subscriptions))
    return frame.select(
        F.coalesce(F.col("topic").cast("string"), F.lit("")).alias("topic"),
        time_ms.alias("time_ms"),
        come,
        bytes_in,
        rate("msg_rate_out", come * readers),
        rate("bytes_rate_out", bytes_in * readers),
        *(F.col(name).try_cast("long").alias(name) for name in _WHOLE if name in names),
    )
