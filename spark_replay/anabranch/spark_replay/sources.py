"""The audit's reads of Kafka: the WAL, the snapshot, the heartbeats.

Spark does all of them. First Kafka is asked for the begin and end of the topics, in an order that
makes the pieces fit: heartbeats and snapshot speak of the log before the end that is asked for
last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaException
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.channel.codec import (
    HEADERS_MAX,
    HORIZON_KEY,
    SCHEMA_HEADER,
    Horizon,
    decode_heartbeat,
    decode_horizon,
)
from anabranch.channel.errors import NewerSchemaError, UnreadableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.kafka_log import offsets
from anabranch.core.errors import AnabranchError
from anabranch.core.log.records import TENANT_KINDS
from anabranch.core.sessions.lease import Heartbeat
from anabranch.spark_replay.kafka_options import spark_options
from anabranch.spark_replay.spark.settings import SparkSettings

LOG_COLUMNS: Final = ("offset", "timestamp_ms", "key", "value", "schema")
METADATA_LOG: Final = "_spark_metadata"
_DEADLINE_S: Final = 10.0
_SNAPSHOT_ATTEMPTS_MAX: Final = 5


class AuditError(AnabranchError):
    """The audit or the archive cannot run. The message has the remedy."""


class Extent(msgspec.Struct, frozen=True):
    """The begin of a topic and its end."""

    first_offset: int
    next_offset: int


class StampedHeartbeat(msgspec.Struct, frozen=True):
    """A heartbeat and its time in the log."""

    beat: Heartbeat
    log_ms: int


class Snapshot(msgspec.Struct, frozen=True):
    """The newest value of every key, and their horizon."""

    rows: DataFrame | None  # key, value
    horizon: Horizon | None
    kept: DataFrame | None = None  # the topic's content, on this machine's disk

    def forget(self) -> None:
        """Frees the disk."""
        if self.kept is not None:
            self.kept.unpersist()


class KafkaSource(msgspec.Struct, frozen=True):
    """One cluster's topics, and the ways to them from here and from Spark."""

    connection: KafkaConnection
    names: Topics

    def extent(self, topic: str) -> Extent:
        """Returns the first offset and the end of a topic's only partition.
        Raises AnabranchError.
        """
        consumer = self.connection.consumer(isolation_level=self._isolation(topic))
        try:
            found = consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic]
            if found.error is not None or not found.partitions:
                raise AuditError(
                    f"Kafka at {self.connection.bootstrap_servers} has no topic {topic}: check "
                    "the topic prefix; the topics are made by the cluster's first node"
                )
            return Extent(*offsets(self.connection, consumer, topic, _DEADLINE_S))
        except KafkaException as error:
            raise self.connection.explained(error, f"to find the ends of {topic}") from None
        finally:
            consumer.close()

    def _isolation(self, topic: str) -> str:
        """Returns the isolation level of a topic. Nodes fold all records of the log, even a
        stranger's in a transaction.
        """
        return "read_uncommitted" if topic == self.names.wal else "read_committed"

    def options(self) -> dict[str, str]:
        """Returns the options for Spark's connector."""
        return spark_options(self.connection.bootstrap_servers, self.connection.security)

    def reader(
        self,
        spark: SparkSession,
        topic: str,
        extent: Extent,
        tasks: int,
        *,
        headers: bool = False,
    ) -> DataFrame:
        """Returns Spark's batch reader of a stretch of a topic."""
        return (
            spark.read.format("kafka")
            .options(**self.options())
            .option("subscribe", topic)
            .option("startingOffsets", json.dumps({topic: {"0": extent.first_offset}}))
            .option("endingOffsets", json.dumps({topic: {"0": extent.next_offset}}))
            .option("minPartitions", tasks)
            .option("includeHeaders", str(headers).lower())
            .option("failOnDataLoss", "true")
            .option("kafka.isolation.level", self._isolation(topic))
            # A task asks for much at once, so that it seldom waits.
            .option("kafka.max.poll.records", 10_000)
            .option("kafka.fetch.max.bytes", 50 * 2**20)
            .option("kafka.max.partition.fetch.bytes", 16 * 2**20)
            .option("kafka.fetch.min.bytes", 1)
            .load()
        )


class LogOptions(msgspec.Struct, frozen=True):
    """The log of a job, and the place and resources of its Spark."""

    bootstrap_servers: str
    kafka_properties: Mapping[str, str] = {}
    topic_prefix: str = "anabranch."
    scratch_dir: Path | None = None
    spark: SparkSettings = SparkSettings()
    passed_over: frozenset[int] = frozenset()  # offsets that only claim to be a newer release's

    def source(self, client_id: str) -> KafkaSource:
        """Returns the way to the log, by connections of that name."""
        connection = KafkaConnection(self.bootstrap_servers, self.kafka_properties, client_id)
        return KafkaSource(connection, Topics(self.topic_prefix))


def log_columns(kafka: DataFrame) -> DataFrame:
    """Returns a reader's rows in the archive's columns. Rows without headers name no schema."""
    # One header is ours; looking for it by place is compiled code, a filter would not be.
    places = [F.get("headers", F.lit(place)) for place in range(HEADERS_MAX)]
    schemas = [F.when(header["key"] == SCHEMA_HEADER, header["value"]) for header in places]
    schema = F.coalesce(*schemas) if "headers" in kafka.columns else F.lit(None).cast("binary")
    return kafka.select(
        F.col("offset"),
        F.unix_millis("timestamp").alias("timestamp_ms"),
        F.col("key"),
        F.col("value"),
        schema.alias("schema"),
    )


# --- snapshot and heartbeats ----------------------------------------------------------------


def read_snapshot(spark: SparkSession, kafka: KafkaSource, tasks: int) -> Snapshot:
    """Returns all committed rows of the snapshot topic, with the newest horizon.

    Compaction may drop an older value during the read, when a newer one is past the end that was
    asked for. So it reads again until nothing has been added meanwhile.
    """
    extent = kafka.extent(kafka.names.snapshot)
    for attempt in range(1, _SNAPSHOT_ATTEMPTS_MAX + 1):
        rows = kafka.reader(spark, kafka.names.snapshot, extent, tasks).select(
            F.col("offset").alias("position"), "key", "value"
        )
        rows = rows.persist(StorageLevel.DISK_ONLY)
        newest = (
            rows.where(F.col("key") == F.lit(HORIZON_KEY.encode()))
            .agg(F.max_by("value", "position"))
            .first()
        )
        now = kafka.extent(kafka.names.snapshot)
        if now.next_offset == extent.next_offset or attempt == _SNAPSHOT_ATTEMPTS_MAX:
            break
        rows.unpersist()
        extent = now
    value = newest[0] if newest is not None else None
    if value is None:
        return Snapshot(None, None)
    states = rows.where(F.col("key") != F.lit(HORIZON_KEY.encode()))
    newest_of_each = states.groupBy("key").agg(F.max_by("value", "position").alias("value"))
    return Snapshot(newest_of_each, decode_horizon(bytes(value)), rows)


def read_beats(spark: SparkSession, kafka: KafkaSource) -> tuple[list[StampedHeartbeat], int]:
    """Returns every heartbeat that is still in its topic, in order, and the number of unreadable
    ones.
    """
    extent = kafka.extent(kafka.names.brokers)
    rows = (
        kafka.reader(spark, kafka.names.brokers, extent, 1)
        .where(F.col("value").isNotNull())
        .select("offset", F.unix_millis("timestamp"), "value")
        .collect()
    )
    beats: list[StampedHeartbeat] = []
    strange = 0
    for _, log_ms, value in sorted(rows):
        try:
            beats.append(StampedHeartbeat(decode_heartbeat(bytes(value)), log_ms))
        except (UnreadableError, NewerSchemaError):
            strange += 1  # a newer release's, or a stranger's: it proves nothing either way
    return beats, strange


# --- dividing -------------------------------------------------------------------------------


def scope_column(key: Column) -> Column:
    """Computes `records.scope_of` in Spark."""
    text = key.cast("string")

    def head(start: int) -> Column:
        return F.substring_index(F.substring(text, start, 1 << 30), "/", 1)

    found = F.when(text.isNull(), F.lit(""))
    for kind in TENANT_KINDS:
        found = found.when(text.startswith(f"{kind}:"), head(len(kind) + 2))
    return found.when(text.contains(":") | ~text.contains("/"), F.lit("")).otherwise(
        F.substring_index(text, "/", 1)
    )


def partition_tokens(spark: SparkSession, parts: int) -> list[int]:
    """Finds for each part a number that Spark's hash partitioning gives a partition of its own."""
    found: dict[int, int] = {}
    for token, place in (
        spark.range(64 * parts)
        .select(F.col("id").cast("int"), F.expr(f"pmod(hash(cast(id as int)), {parts})"))
        .collect()
    ):
        found.setdefault(place, token)
    if len(found) != parts:
        raise AuditError(f"no partitioning into {parts} parts was found")
    return [found[place] for place in range(parts)]


def divided(rows: DataFrame, tokens: Sequence[int]) -> DataFrame:
    """Divides rows (kind, offset, key and more) by part: a scope's go to one part, the cluster's to
    each.

    Part n is partition n, in the order of the column `rank`. That column holds offset, kind and a
    flag for the cluster's rows, because each column costs much on a row's way to Python.
    """
    parts = len(tokens)
    every = F.array(*[F.lit(token) for token in tokens])
    scope = scope_column(F.col("key"))
    shared = scope == F.lit("")
    own = F.element_at(every, (F.crc32(scope.cast("binary")) % F.lit(parts)).cast("int") + 1)
    rank = F.col("offset") * 4 + F.col("kind") * 2 + shared.cast("long")
    carried = [name for name in rows.columns if name not in ("offset", "kind")]
    return (
        rows.select(
            rank.alias("rank"),
            *carried,
            F.explode(F.when(shared, every).otherwise(F.array(own))).alias("part"),
        )
        .repartition(parts, "part")
        .drop("part")
        .sortWithinPartitions("rank")
    )
