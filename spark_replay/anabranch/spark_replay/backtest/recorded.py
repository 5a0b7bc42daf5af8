"""Loads that a cluster has recorded, as a load trace: the archive of its load topic.

A record has the rates of a segment from then on, until the next one of the segment or one without a
value. There is a row for the end of each step with a new record: the rates of all the topic's
segments. With the log's archive each segment's hashes are known. Then the row names them, and other
layouts can be tried on it. Each incarnation of a topic is a topic of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.channel.codec import decode_load, read_entry
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.core.autoscale.load import Rates
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.errors import InvalidInputError
from anabranch.core.fold.evolve import evolve
from anabranch.core.log.records import TopicChange
from anabranch.core.log.state import FoldedState
from anabranch.spark_replay.archive.folders import Place
from anabranch.spark_replay.archive.reading import archive_extent, read_archive
from anabranch.spark_replay.audit.replay import LOG_ROW
from anabranch.spark_replay.sources import divided, partition_tokens

_KEY: Final = r"^segment:(.+/[0-9]+)/([0-9]+)$"  # the form of `core.autoscale.load.load_key`
_RANGES: Final = "topic string, segment_id long, hash_start long, hash_end long"
_TRACE: Final = (
    "topic string, time_ms long, msg_rate_in double, bytes_rate_in double, "
    "msg_rate_out double, bytes_rate_out double, hash_start long, hash_end long"
)

Ranges = Mapping[int, tuple[int, int]]


def read_recorded(spark: SparkSession, loads: Place, log: Place | None, step_s: int) -> DataFrame:
    """Returns the recorded load in the columns of a load trace. `log` is the archive of the log.

    Raises AuditError and InvalidInputError.
    """
    archive = read_archive(spark, loads)
    if archive is None:
        raise InvalidInputError(f"the archive of loads in {loads} is empty")
    key = F.col("key").cast("string")
    records = archive.where(key.rlike(_KEY)).select(
        F.regexp_extract(key, _KEY, 1).alias("topic"),
        F.regexp_extract(key, _KEY, 2).cast("long").alias("segment_id"),
        "offset",
        "timestamp_ms",
        "value",
    )
    if not records.take(1):
        raise InvalidInputError(f"{loads} holds no load of any segment: is it the log's archive?")
    if log is None:
        none = F.lit(None).cast("long")
        records = records.withColumn("hash_start", none).withColumn("hash_end", none)
    else:
        records = records.join(read_ranges(spark, log), ["topic", "segment_id"], "left")
    tasks = 4 * spark.sparkContext.defaultParallelism
    return (
        records.repartition(tasks, "topic")
        .groupBy("topic")
        .applyInPandas(_tracer(step_s * 1000, with_ranges=log is not None), _TRACE)
    )


def _tracer(step_ms: int, *, with_ranges: bool) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def trace(frame: pd.DataFrame) -> pd.DataFrame:
        return traced(frame, step_ms, with_ranges=with_ranges)

    return trace


def traced(frame: pd.DataFrame, step_ms: int, *, with_ranges: bool) -> pd.DataFrame:
    """Makes rows of a trace of one topic's records, which have the archive's columns."""
    frame = frame.sort_values("offset")
    topic = str(frame["topic"].iloc[0])
    ranges: dict[int, tuple[int, int]] = {}
    if with_ranges:
        known = frame[["segment_id", "hash_start", "hash_end"]].dropna().drop_duplicates()
        ranges = {int(a): (int(b), int(c)) for a, b, c in known.itertuples(index=False)}
    steps = (frame["timestamp_ms"].to_numpy(np.int64) // step_ms) * step_ms
    live: dict[int, Rates] = {}
    rows: list[tuple[object, ...]] = []
    before: int | None = None
    changes = zip(steps.tolist(), frame["segment_id"].tolist(), frame["value"], strict=True)
    for step, segment_id, value in changes:
        if before is not None and step > before:
            rows += _rows(topic, before, live, ranges if with_ranges else None)
        before = step if before is None else max(before, step)
        _take(live, int(segment_id), value, ranges, with_ranges=with_ranges)
    if before is not None:
        rows += _rows(topic, before, live, ranges if with_ranges else None)
    found = pd.DataFrame(rows, columns=[part.split()[0] for part in _TRACE.split(", ")])
    whole = {"time_ms": "int64", "hash_start": "Int64", "hash_end": "Int64"}
    return found.astype(whole)


def _take(
    live: dict[int, Rates],
    segment_id: int,
    value: bytes | None,
    ranges: Ranges,
    *,
    with_ranges: bool,
) -> None:
    if value is None or pd.isna(value):
        live.pop(segment_id, None)
        return
    try:
        rates = decode_load(bytes(value)).rates
    except (UnreadableError, NewerSchemaError):
        return  # damage, or a newer release's: nodes pass it over as well
    if with_ranges:
        if segment_id not in ranges:
            return
        start, end = ranges[segment_id]
        # The replaced segments take nothing any more, even if nobody has written so.
        for other in [each for each in live if each < segment_id]:
            if ranges[other][0] <= end and ranges[other][1] >= start:
                del live[other]
    live[segment_id] = rates


def _rows(
    topic: str, time_ms: int, live: Mapping[int, Rates], ranges: Ranges | None
) -> list[tuple[object, ...]]:
    if ranges is not None and live:
        return [(topic, time_ms, *rates, *ranges[each]) for each, rates in sorted(live.items())]
    sums = [sum(rates[metric] for rates in live.values()) for metric in range(4)]
    whole = (None, None) if ranges is None else (0, 65_535)
    return [(topic, time_ms, *map(float, sums), *whole)]


# --- which hashes a segment covers --------------------------------------------------------------


def read_ranges(spark: SparkSession, log: Place) -> DataFrame:
    """Returns every segment that was ever active, with its range. `topic` ends with the
    incarnation.

    The core's own rules fold the log, so it is needed from its beginning.
    """
    archive = read_archive(spark, log)
    extent = archive_extent(archive)
    if archive is None or extent is None or extent.first_offset > 0:
        raise InvalidInputError(
            f"the archive in {log} does not hold the log from its beginning: leave it out, and the "
            "load is spread as --spread says"
        )
    rows = archive.select(
        F.lit(LOG_ROW).cast("long").alias("kind"), "offset", "timestamp_ms", "key", "value"
    )
    parts = 4 * spark.sparkContext.defaultParallelism
    return (
        divided(rows, partition_tokens(spark, parts))
        .mapInArrow(_fold_ranges, _RANGES)
        .dropDuplicates(["topic", "segment_id"])
    )


def _fold_ranges(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    state = FoldedState()
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for batch in batches:
        columns = (
            batch.column(name).to_pylist() for name in ("rank", "timestamp_ms", "key", "value")
        )
        for rank, timestamp_ms, key, value in zip(*columns, strict=True):
            record = read_entry(key, value)
            if record is None:
                continue
            outcome = evolve(state, record, rank >> 2, timestamp_ms)
            state.apply(outcome.changes)
            if type(record) is not TopicChange:
                continue
            for _, entity in outcome.changes:
                if type(entity) is ScalableTopic:
                    name = f"{record.topic}/{entity.incarnation}"
                    for part in entity.segments:
                        found[name, part.segment_id] = (part.start, part.end)
    rows = [
        {"topic": name, "segment_id": each, "hash_start": start, "hash_end": end}
        for (name, each), (start, end) in found.items()
    ]
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("segment_id", pa.int64()),
            ("hash_start", pa.int64()),
            ("hash_end", pa.int64()),
        ]
    )
    yield pa.RecordBatch.from_pylist(rows, schema=schema)
