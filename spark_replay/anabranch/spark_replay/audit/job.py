"""The replay as one Spark job: one read of everything, one shuffle, one fold for each part."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.channel.errors import NewerSchemaError
from anabranch.spark_replay.audit.replay import (
    LOG_ROW,
    SCHEMA_NEEDED,
    SNAPSHOT_ROW,
    PartReplay,
    PartResult,
    ReplayPlan,
    SchemaNeededError,
)
from anabranch.spark_replay.sources import AuditError, divided, partition_tokens

_CARRIED = ("timestamp_ms", "key", "value", "schema")
_SCHEMA = pa.schema([("part", pa.binary()), ("failure", pa.string())])


def replayed(
    spark: SparkSession, log: DataFrame, snapshot: DataFrame | None, plan: ReplayPlan
) -> list[PartResult]:
    """Returns the result of every part. `snapshot` has the newest value of each key.

    Raises AuditError if the log holds records of a newer release. Raises SchemaNeededError if that
    cannot be told, because the rows were read without their schemas.
    """
    rows = log.select(F.lit(LOG_ROW).cast("long").alias("kind"), "offset", *_CARRIED)
    if snapshot is not None:
        placed = snapshot.select(
            F.lit(SNAPSHOT_ROW).cast("long").alias("kind"),
            F.lit(plan.horizon).cast("long").alias("offset"),
            F.lit(0).cast("long").alias("timestamp_ms"),
            "key",
            "value",
            F.lit(None).cast("binary").alias("schema"),
        )
        rows = rows.unionByName(placed)
    if not plan.with_schemas:
        rows = rows.drop("schema")
    found = (
        divided(rows, partition_tokens(spark, plan.parts))
        .mapInArrow(_folder(plan), "part binary, failure string")
        .collect()
    )
    for _, failure in found:
        if failure == SCHEMA_NEEDED:
            raise SchemaNeededError(failure)
        if failure:
            raise AuditError(failure)
    return [msgspec.msgpack.decode(bytes(part), type=PartResult) for part, _ in found]


def _folder(plan: ReplayPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        replay = PartReplay(plan, context.partitionId() if context else 0)
        # Nothing here makes cycles, and the collector would walk the state again and again.
        gc.disable()
        try:
            for batch in batches:
                _feed(replay, batch)
        except (NewerSchemaError, SchemaNeededError) as error:
            yield _answer(None, str(error))
        else:
            yield _answer(msgspec.msgpack.encode(replay.result()), None)
        finally:
            gc.enable()

    return fold


def _feed(replay: PartReplay, batch: pa.RecordBatch) -> None:
    rank = batch.column("rank").to_numpy()
    named = batch.schema.get_field_index("schema") >= 0
    replay.feed(
        (rank & 1).tolist(),
        ((rank >> 1) & 1).tolist(),
        (rank >> 2).tolist(),
        batch.column("timestamp_ms").to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        batch.column("schema").to_pylist() if named else [None] * batch.num_rows,
    )


def _answer(part: bytes | None, failure: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.binary()), pa.array([failure], pa.string())], schema=_SCHEMA
    )
