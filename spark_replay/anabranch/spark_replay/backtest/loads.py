"""Loads of the past: Parquet files of rates.

A row has a topic's rates per second from its time on, until the topic's next row. Rows are made
into equal steps. A step's load is the mean over it, because a cluster's own reports are means.
"""

from __future__ import annotations

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

from anabranch.core.autoscale.load import Rates
from anabranch.core.errors import InvalidInputError

SAMPLE: Final = Path(str(files(__package__).joinpath("data/load_sample.parquet")))
MESSAGE_BYTES: Final = 1_000.0  # of a message, where a load does not tell its bytes
_RATES: Final = ("msg_rate_in", "bytes_rate_in", "msg_rate_out", "bytes_rate_out")
_COLUMNS: Final = {
    "topic": pa.string(),
    "time_ms": pa.int64(),
    **dict.fromkeys(_RATES, pa.float64()),
}
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
        """Returns the end of the last step."""
        return self.at_ms(len(self.rates))

    def scaled(self, mean_rate: float) -> Load:
        """Returns the load with that mean of messages a second. One without messages stays."""
        mean = sum(each[0] for each in self.rates) / len(self.rates)
        by = mean_rate / mean if mean else 1.0
        rates = [(a * by, b * by, c * by, d * by) for a, b, c, d in self.rates]
        return msgspec.structs.replace(self, rates=rates)


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
