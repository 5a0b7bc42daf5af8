"""Loads of the past: Parquet files of rates, and the archive of a cluster's load topic.

A row has a topic's rates per second from its time on, until the topic's next row. Rows are made
into equal steps. A step's load is the mean over it, because a cluster's own reports are means.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.channel.codec import decode_load
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.core.autoscale.load import Rates
from anabranch.core.errors import InvalidInputError
from anabranch.spark_replay.archive.contents import read_archive
from anabranch.spark_replay.archive.folders import Place

SAMPLE: Final = Path(str(files(__package__).joinpath("data/load_sample.parquet")))
MESSAGE_BYTES: Final = 1_000.0  # of a message, where a load does not tell its bytes
_RATES: Final = ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
_COLUMNS: Final = {
    "topic": pa.string(),
    "time_ms": pa.int64(),
    **dict.fromkeys(_RATES, pa.float64()),
}
_TRACE: Final = "topic string, time_ms long, " + ", ".join(f"{name} double" for name in _RATES)
_KEY: Final = r"^segment:(.+/[0-9]+)/([0-9]+)$"  # the form of `core.autoscale.load.load_key`
_STEPS_MAX: Final = 16_000_000


class Load(msgspec.Struct, frozen=True):
    """A topic's rates in each step."""

    begin_ms: int
    step_ms: int
    rates: list[Rates]

    def at_ms(self, step: int) -> int:
        """Returns the begin of a step."""
        return self.begin_ms + step * self.step_ms

    @property
    def end_ms(self) -> int:
        return self.at_ms(len(self.rates))


def read_traces(spark: SparkSession, path: Path) -> DataFrame:
    """Returns the rows of a Parquet file, or of a folder of such files. Raises InvalidInputError.

    This process reads them, because a cluster's workers may lack this machine's files.
    """
    if not path.exists():
        raise InvalidInputError(f"there is no load in {path}: check the path")
    try:
        table = pq.read_table(path)
        missing = [name for name in list(_COLUMNS)[:3] if name not in table.column_names]
        if missing:
            raise InvalidInputError(
                f"{path} has no column {', '.join(missing)}; it has {', '.join(table.column_names)}"
            )
        messages = table["msg_rate_in"].cast(pa.float64())
        size = pa.scalar(MESSAGE_BYTES)
        otherwise = {"bytes_rate_in": pc.multiply(messages, size), "msg_rate_out": messages}
        columns: dict[str, pa.ChunkedArray] = {}
        for name, kind in _COLUMNS.items():
            if name in table.column_names:
                columns[name] = table[name].cast(kind)
            else:
                columns[name] = otherwise.get(name, columns.get("bytes_rate_in"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is no load in Parquet: {error}") from None
    return spark.createDataFrame(pa.table(columns))


def load_of(frame: pd.DataFrame, step_ms: int) -> Load:
    """Returns the rows of one topic in steps. Raises InvalidInputError for rows that are no load.

    The last rates hold as long as the ones before them did.
    """
    frame = frame.sort_values("time_ms")
    if frame["time_ms"].isna().any():
        raise InvalidInputError("a time is missing")
    times = frame["time_ms"].to_numpy(np.int64)
    rates = frame[list(_RATES)].to_numpy(np.float64)
    for wrong, why in (
        (~np.isfinite(rates).all(axis=1), "a rate is no number"),
        ((rates < 0).any(axis=1), "a rate is negative"),
        (np.append(np.diff(times) == 0, False), "there are two rows"),
    ):
        if wrong.any():
            moment = np.datetime64(int(times[wrong][0]), "ms")
            raise InvalidInputError(f"{why} at {np.datetime_as_string(moment, timezone='UTC')}")
    hold = int(times[-1] - times[-2]) if len(times) > 1 else step_ms
    steps = -(-int(times[-1] - times[0] + hold) // step_ms)
    if steps > _STEPS_MAX:
        raise InvalidInputError(f"its {steps:,} steps are too many: are its times in milliseconds?")
    walls = times[0] + np.arange(steps + 1) * step_ms
    ends = np.append(times, max(int(walls[-1]), int(times[-1]) + hold))
    past = np.vstack([np.zeros(4), np.cumsum(rates * np.diff(ends)[:, None], axis=0)])
    means = [np.diff(np.interp(walls, ends, past[:, at])) / step_ms for at in range(4)]
    # Sums of many rates are not exact: without rounding a step of no messages may have a trickle.
    found = np.round(np.stack(means, axis=1), 6).tolist()
    return Load(int(times[0]), step_ms, [(a, b, c, d) for a, b, c, d in found])


# --- loads that a cluster has recorded ------------------------------------------------------


def read_recorded(spark: SparkSession, place: Place, step_s: int) -> DataFrame:
    """Returns a cluster's recorded load in the columns of a trace: the sum over a topic's segments.

    A record has a segment's rates from then on, until the segment's next record or one without a
    value. Each incarnation of a topic is a topic of its own here. Raises AuditError and
    InvalidInputError.
    """
    archive = read_archive(spark, place)
    if archive is None:
        raise InvalidInputError(f"the archive of loads in {place} is empty")
    key = F.col("key").cast("string")
    records = archive.where(key.rlike(_KEY)).select(
        F.regexp_extract(key, _KEY, 1).alias("topic"),
        F.regexp_extract(key, _KEY, 2).cast("long").alias("segment_id"),
        "offset",
        "timestamp_ms",
        "value",
    )
    if not records.take(1):
        raise InvalidInputError(f"{place} holds no load of any segment: is it the log's archive?")
    tasks = 4 * spark.sparkContext.defaultParallelism
    by_topic = records.repartition(tasks, "topic").groupBy("topic")
    return by_topic.applyInPandas(_tracer(step_s * 1000), _TRACE)


def _tracer(step_ms: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def trace(frame: pd.DataFrame) -> pd.DataFrame:
        """Makes a row for the end of each step that has a new record of the topic."""
        frame = frame.sort_values("offset")
        live: dict[int, Rates] = {}
        sums: dict[int, list[float]] = {}
        newest = 0
        rows = zip(frame["timestamp_ms"], frame["segment_id"], frame["value"], strict=True)
        for timestamp_ms, segment_id, value in rows:
            if value is None or pd.isna(value):
                live.pop(segment_id, None)
            else:
                try:
                    live[segment_id] = decode_load(bytes(value)).rates
                except (UnreadableError, NewerSchemaError):
                    continue  # damage, or a newer release's: nodes pass it over as well
            newest = max(newest, int(timestamp_ms) // step_ms * step_ms)
            sums[newest] = [float(sum(rates[at] for rates in live.values())) for at in range(4)]
        topic = str(frame["topic"].iloc[0])
        found = [(topic, at_ms, *rates) for at_ms, rates in sums.items()]
        return pd.DataFrame(found, columns=list(_COLUMNS))

    return trace
