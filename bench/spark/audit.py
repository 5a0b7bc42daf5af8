"""The audit's speed, as a multiple of Spark's own read-and-checksum of the same topic.

    python -m bench.spark.audit [RECORDS]

A valid, mixed history of many tenants goes into an embedded Kafka. Then Spark reads and checksums
the topic, and the audit replays and checks it, in the same session, each after a first run on the
log's beginning that loads code and warms the JVM.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from anabranch.channel.codec import SCHEMA_HEADER, encode_record, schema_header
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.core.entities.unit import Move
from anabranch.core.log.records import (
    Cause,
    ClusterSettings,
    NamespaceChange,
    PolicyOp,
    Record,
    SessionChange,
    SessionOp,
    TenantChange,
    UnitMove,
)
from anabranch.core.names import parse_namespace
from anabranch.core.ring import bundle_name, even_ranges
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.audit.run import AuditOptions, audit
from anabranch.spark_replay.sources import Extent, KafkaSource
from anabranch.spark_replay.spark.session import spark_session

RATIO_MAX = 4.0
_BROKERS = ("broker-1.example:8080", "broker-2.example:8080", "broker-3.example:8080")
_TENANTS = 64
_BUNDLES = 64
_WARM = 200_000

Message = tuple[bytes, bytes, bytes]  # key, value, schema


def generated(count: int) -> Iterator[Message]:
    """`count` records of a valid log: the cluster's beginning, then units that keep moving."""
    for record in islice(_records(), count):
        yield record.key.encode(), encode_record(record), schema_header(record)[1]


def _records() -> Iterator[Record]:
    offset = 0
    units: dict[str, int] = {}
    yield ClusterSettings("cluster", "bench", 1, _BROKERS[0], 500, 4_000, 6_000, 4)
    offset += 1
    for broker in _BROKERS:
        yield SessionChange(f"open-{broker}", broker, SessionOp.OPEN, 1, broker, 0)
        offset += 1
    yield UnitMove("elect", "leadership", Move.ELECT, 1, _BROKERS[0], 1)
    offset += 1
    for tenant in range(_TENANTS):
        name = f"tenant-{tenant:03d}"
        yield TenantChange(name, name, PolicyOp.CREATE, 1, _BROKERS[0], 1)
        home = parse_namespace(f"{name}/orders")
        yield NamespaceChange(home, home, PolicyOp.CREATE, 1, _BROKERS[0], 1, _BUNDLES)
        offset += 2
        for part in even_ranges(_BUNDLES):
            units[bundle_name(home, part)] = offset  # born at offset - 1: version offset
    while True:
        for place, name in enumerate(units):
            version = units[name]
            for record in _cycle(name, version, place + offset):
                yield record
                offset += 1
            units[name] = version + 7


def _cycle(name: str, version: int, turn: int) -> Iterator[Record]:
    """A unit is assigned, owned, transferred and unloaded; one proposal comes too late."""
    first, second, third = (_BROKERS[(turn + n) % 3] for n in range(3))

    def move(what: Move, ahead: int, actor: str, broker: str = "", who: str = "") -> UnitMove:
        cause = Cause.RECONCILE if what is Move.OWN else Cause.OPERATOR
        return UnitMove(
            f"{turn & 0xFFFFFFFFFFFF:012x}-{version + ahead:012x}-{who or actor[7]}{what:05d}",
            name,
            what,
            version + ahead,
            actor,
            1,
            broker,
            cause=cause,
        )

    yield move(Move.ASSIGN, 1, third, first)
    yield move(Move.ASSIGN, 1, second, second, "x")  # too late
    yield move(Move.OWN, 2, first)
    yield move(Move.RELEASE, 3, third, second)
    yield move(Move.HAND_OVER, 4, first)
    yield move(Move.OWN, 5, second)
    yield move(Move.RELEASE, 6, second)
    yield move(Move.FREE, 7, second)


def main(arguments: list[str]) -> int:
    """Generate, measure, print."""
    count = int(arguments[0]) if arguments else 5_000_000
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(Path(name) / "kafka") as kafka:
        started = time.monotonic()
        topics = _filled(kafka, count)
        print(f"{count:,} records generated in {time.monotonic() - started:.1f} s", file=sys.stderr)
        with spark_session("bench", Path(name) / "spark") as spark:
            result = _measured(spark, kafka, topics, count)
    print(json.dumps(result, indent=2))
    return 0 if result["ratio"] <= RATIO_MAX else 1


def _filled(kafka: EmbeddedKafka, count: int) -> Topics:
    topics = Topics("bench.")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(one, 1, 1, config=stamped) for one in (topics.wal, topics.brokers)]
    wanted.append(NewTopic(topics.snapshot, 1, 1))
    for future in admin.create_topics(wanted).values():
        future.result(30)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 131_072,
        }
    )
    for key, value, schema in generated(count):
        while True:
            try:
                producer.produce(topics.wal, value, key, 0, headers=[(SCHEMA_HEADER, schema)])
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise RuntimeError("Kafka did not take the log")
    return topics


def _measured(
    spark: SparkSession, kafka: EmbeddedKafka, topics: Topics, count: int
) -> dict[str, Any]:
    source = KafkaSource(KafkaConnection(kafka.bootstrap_servers), topics)
    _checksum(spark, source, min(count, _WARM))
    options = AuditOptions(kafka.bootstrap_servers, topic_prefix=topics.prefix)
    _checksum(spark, source, count)  # reads the topic into the page cache, for both
    read_s = [_checksum(spark, source, count)]
    started = time.monotonic()
    summary = audit(spark, options)
    audit_s = time.monotonic() - started
    read_s.append(_checksum(spark, source, count))  # the machine may not be ours alone
    if not summary.sound or summary.records != count:
        raise RuntimeError(f"the audit is wrong: {summary.json()}")
    return {
        "records": count,
        "read_and_checksum_s": [round(one, 2) for one in read_s],
        "audit_s": round(audit_s, 2),
        "ratio": round(2 * audit_s / sum(read_s), 2),
        "ratio_max": RATIO_MAX,
        "records_per_s": round(count / audit_s),
    }


def _checksum(spark: SparkSession, source: KafkaSource, count: int) -> float:
    """Seconds in which Spark reads the topic and checksums every key and value."""
    started = time.monotonic()
    reader = source.reader(
        spark, source.names.wal, Extent(0, count), 4 * spark.sparkContext.defaultParallelism
    )
    found = reader.agg(F.count(F.lit(1)), F.sum(F.crc32("key")), F.sum(F.crc32("value"))).collect()
    if found[0][0] != count:
        raise RuntimeError(f"Spark read {found[0][0]} of {count} records")
    return time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
