"""The replay as one Spark job: one read of everything, one shuffle, one fold for each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its customary name)

from anabranch.channel.errors import NewerSchemaError
from anabranch.spark_replay.replay import LOG_ROW, SNAPSHOT_ROW, Part, Plan, Replay
from anabranch.spark_replay.sources import AuditError, divided, partition_tokens, token_parts

_FED = ("shared", "kind", "offset", "timestamp_ms", "key", "value", "schema")
_ORDER = ("offset", "kind", "position")
_SCHEMA = pa.schema([("part", pa.binary()), ("failure", pa.string())])


def replayed(
    spark: SparkSession, log: DataFrame, snapshot: DataFrame | None, plan: Plan
) -> list[Part]:
    """What every part finds in the log; `snapshot` has the columns position, key, value.

    Raises AuditError when the log holds records of a newer release.
    """
    tokens = partition_tokens(spark, plan.parts)
    rows = log.select(
        F.lit(LOG_ROW).alias("kind"),
        "offset",
        "timestamp_ms",
        "key",
        "value",
        "schema",
        F.lit(0).cast("long").alias("position"),
    )
    if snapshot is not None:
        rows = rows.unionByName(
            snapshot.select(
                F.lit(SNAPSHOT_ROW).alias("kind"),
                F.lit(plan.horizon).cast("long").alias("offset"),
                F.lit(0).cast("long").alias("timestamp_ms"),
                "key",
                "value",
                F.lit(None).cast("binary").alias("schema"),
                "position",
            )
        )
    fold = _folder(plan, token_parts(tokens))
    found = divided(rows, tokens, _ORDER).mapInArrow(fold, "part binary, failure string").collect()
    for _, failure in found:
        if failure:
            raise AuditError(failure)
    return [msgspec.msgpack.decode(bytes(part), type=Part) for part, _ in found]


def _folder(
    plan: Plan, parts: Mapping[int, int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        replay: Replay | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if replay is None:
                    replay = Replay(plan, parts[batch.column("part")[0].as_py()])
                replay.feed(*(batch.column(name).to_pylist() for name in _FED))
        except NewerSchemaError as error:
            yield _answer(None, str(error))
            return
        if replay is not None:
            yield _answer(msgspec.msgpack.encode(replay.result()), None)

    return fold


def _answer(part: bytes | None, failure: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.binary()), pa.array([failure], pa.string())], schema=_SCHEMA
    )
