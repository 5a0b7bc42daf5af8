"""The audit in real Spark, on the topics of a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from anabranch.channel.codec import encode_entity
from anabranch.channel.kafka.topics import Topics
from anabranch.core.log.records import PolicyOp, scope_of
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.archive.writer import ArchiveOptions, archive_once
from anabranch.spark_replay.audit import inputs
from anabranch.spark_replay.audit import run as audit_module
from anabranch.spark_replay.audit.report import Summary, table
from anabranch.spark_replay.audit.run import AuditOptions, audit
from anabranch.spark_replay.audit.tally import CheckName
from anabranch.spark_replay.audit.verdict import CheckResult
from anabranch.spark_replay.sources import AuditError, KafkaSource, scope_column
from support.balance_history import isolates, sheds
from support.history import BROKERS, mixed
from support.kafka_history import append, name_archive, publish, put_snapshot, trim
from support.local_audit import OF_ROLES, OF_TOPICS
from support.quiet import QUIET
from support.setting_history import override_change
from support.topic_history import ORDERS, topic_of, topical

NEWER = b"\xc3\x01" + b"\x07" * 40

pytestmark = pytest.mark.spark


def _violated(summary: Summary) -> list[CheckName]:
    return [check.name for check in summary.checks if check.result is CheckResult.VIOLATED]


def _options(kafka: EmbeddedKafka, prefix: str) -> AuditOptions:
    return AuditOptions(kafka.bootstrap_servers, topic_prefix=prefix)


def _archived(
    spark: SparkSession, kafka: EmbeddedKafka, topics: Topics, folder: Path
) -> AuditOptions:
    """Archives the log in a folder, as the archive `log` that its history registers."""
    name_archive(kafka, topics, folder, "log")
    archive_once(
        spark,
        ArchiveOptions(kafka.bootstrap_servers, archive_dir=folder, topic_prefix=topics.prefix),
    )
    return AuditOptions(kafka.bootstrap_servers, topic_prefix=topics.prefix, archive_dir=folder)


def test_a_sound_log_passes_every_check(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    history = mixed(rounds=3)
    name = history.units()[0]
    isolates(history, ".*", ".*")
    sheds(history, name, history.elsewhere(name))
    history.accepted(override_change(history, PolicyOp.CREATE, "1000"))
    history.garbage(value=NEWER, schema=b"a stranger's")
    topics = publish(kafka, topic_prefix, history, history.snapshot())
    strangers = Producer({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    strangers.produce(topics.brokers, NEWER, b"stranger:1", 0)
    strangers.flush(30.0)
    summary = audit(spark, _options(kafka, topic_prefix))
    assert _violated(summary) == [], table(summary)
    (digests,) = (check for check in summary.checks if check.name is CheckName.DIGESTS)
    assert digests.note == "1 heartbeats of no known schema are left out"
    assert (summary.records, summary.log.horizon) == (history.next_offset, history.next_offset)
    unlooked = {c.name for c in summary.checks if c.result is CheckResult.NOT_APPLICABLE}
    assert unlooked == OF_TOPICS | OF_ROLES, table(summary)
    assert json.loads(summary.json())["sound"] is True


def test_a_sound_log_of_topics_passes_and_kafka_is_asked_about_its_segments(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    history = topical(rounds=2)
    publish(kafka, topic_prefix, history, history.snapshot())
    topic = topic_of(history)
    part = next(part for part in topic.segments if not part.is_active)
    name = kafka_topic(topic_prefix, ORDERS, topic.incarnation, part)
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(name, part.buckets, 1)])[name].result(30.0)
    summary = audit(spark, _options(kafka, topic_prefix))
    assert summary.records == history.next_offset
    assert int(summary.digest, 16) == history.state.digest
    # It is empty, though the log says that records are in it; nothing else is wrong.
    assert _violated(summary) == [CheckName.SEGMENTS], table(summary)
    found = json.loads(summary.json())
    assert found["reshape"]["count"] > 0
    checks = {check.name: check for check in summary.checks}
    assert (
        f"{part.descriptor} partition 0: lost data" in checks[CheckName.SEGMENTS].witnesses[0].text
    )
    for each in (CheckName.LAYOUTS, CheckName.SEALS, CheckName.DRAINING):
        assert checks[each].examined > 20


def test_an_archive_and_the_rest_of_the_wal_are_one_log(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    history = mixed(rounds=2)
    history.registers("log")
    topics = publish(kafka, topic_prefix, history, history.snapshot())
    options = _archived(spark, kafka, topics, tmp_path / "log")
    later = history.next_offset
    name = history.units()[0]
    history.transfer(name, history.elsewhere(name))
    append(kafka, topics, history.entries[later:])
    trim(kafka, topics, later - 10)
    summary = audit(spark, options)
    assert _violated(summary) == [], table(summary)
    assert summary.records == history.next_offset
    assert (summary.log.wal_from, summary.log.archived_until) == (later - 10, later)


@pytest.mark.parametrize("moment", ["before its times are read", "before it is replayed"])
def test_a_log_that_is_trimmed_while_it_is_read_is_read_again(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    history = mixed()
    history.registers("log")
    topics = publish(kafka, topic_prefix, history, history.snapshot())
    options = _archived(spark, kafka, topics, tmp_path / "log")
    owner, name = {
        "before its times are read": (inputs, "_times"),
        "before it is replayed": (audit_module, "_examined"),
    }[moment]
    step = getattr(owner, name)
    begun: list[int] = []

    def trimmed(*given: Any, **named: Any) -> Any:
        begun.append(KafkaSource.extent(given[1], topics.wal).first_offset)
        if len(begun) == 1:
            trim(kafka, topics, history.next_offset)
        return step(*given, **named)

    monkeypatch.setattr(owner, name, trimmed)
    summary = audit(spark, options)
    assert _violated(summary) == [], table(summary)
    assert (begun, summary.records) == ([0, history.next_offset], history.next_offset)


@pytest.mark.long
def test_a_record_that_archive_and_wal_hold_differently_is_found(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    history, other = mixed(), mixed()
    history.registers("log")
    topics = publish(kafka, topic_prefix, history)
    unreadable = next(e for e in other.entries if e.schema is None)
    place = other.entries.index(unreadable)
    other.entries[place] = msgspec.structs.replace(unreadable, value=b"other garbage")
    other.registers("log")
    others = publish(kafka, f"{topic_prefix}other.", other)
    elsewhere = _archived(spark, kafka, others, tmp_path / "log")
    options = msgspec.structs.replace(elsewhere, topic_prefix=topic_prefix)
    with pytest.raises(AuditError, match="of another log"):
        audit(spark, options)
    name_archive(kafka, topics, tmp_path / "log", "log")  # as if it were of this one
    summary = audit(spark, options)
    assert _violated(summary) == [CheckName.OFFSETS]
    assert "hold different records" in summary.checks[0].witnesses[0].text


@pytest.mark.long
def test_a_gap_between_archive_and_log_is_told_and_accuses_nobody(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    history = mixed()
    history.registers("log")
    topics = publish(kafka, topic_prefix, history)
    options = _archived(spark, kafka, topics, tmp_path / "log")
    archived = history.next_offset
    history.fail(BROKERS[1], BROKERS[0])
    begins, taken = history.next_offset, history.snapshot()
    history.tenant("later")
    append(kafka, topics, history.entries[archived:])
    trim(kafka, topics, begins)
    with pytest.raises(AuditError, match="no snapshot stands for what is gone"):
        audit(spark, options)
    put_snapshot(kafka, topics, taken)
    summary = audit(spark, options)
    assert _violated(summary) == [], table(summary)
    assert (summary.records, summary.log.gap) == (history.next_offset - begins, (archived, begins))
    assert int(summary.digest, 16) == history.state.digest
    assert f"a gap from offset {archived} to {begins - 1}:" in table(summary)
    checks = {check.name: check for check in summary.checks}
    assert checks[CheckName.OWNERSHIP].note.startswith("from offset")


def test_a_trimmed_log_that_cannot_be_replayed_is_not_called_sound(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    history = mixed()
    topics = publish(kafka, topic_prefix, history)
    trim(kafka, topics, 10)
    with pytest.raises(AuditError, match="name the directory of an archive"):
        audit(spark, _options(kafka, topic_prefix))  # no snapshot stands for what is gone
    put_snapshot(kafka, topics, history.snapshot())
    with pytest.raises(AuditError, match=r"nothing of .*wal can be replayed.*--archive-dir"):
        audit(spark, _options(kafka, topic_prefix))  # and nothing comes after this one


def test_a_cluster_that_is_not_there_is_named(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    with pytest.raises(AuditError, match=f"has no topic {topic_prefix}wal"):
        audit(spark, _options(kafka, topic_prefix))


def test_a_record_of_a_newer_release_stops_the_audit(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    history = mixed()
    history.garbage(value=NEWER, schema=b"unit-move/99")
    publish(kafka, topic_prefix, history)
    options = _options(kafka, topic_prefix)
    with pytest.raises(AuditError, match=r"unit-move/99.*upgrade.*passedOverLogOffsets"):
        audit(spark, options)
    named = frozenset({history.next_offset - 1})
    summary = audit(spark, msgspec.structs.replace(options, passed_over=named))
    assert _violated(summary) == [], table(summary)


def test_planted_violations_are_found_in_spark_as_well(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    history = mixed()
    taken = history.snapshot()
    name = history.units("globex/orders")[-1]
    other = msgspec.structs.replace(history.unit(name), broker="b9:8080")
    taken.values[name] = encode_entity(other)
    history.beat(BROKERS[1], digest="f" * 32)
    history.expire(BROKERS[1], BROKERS[0], evidence_ms=history.now_ms)
    history.repair(BROKERS[0])
    publish(kafka, topic_prefix, history, taken)
    summary = audit(spark, _options(kafka, topic_prefix))
    assert _violated(summary) == [CheckName.LEASES, CheckName.SNAPSHOT, CheckName.DIGESTS]


def test_spark_divides_by_the_scope_that_the_core_names(spark: SparkSession) -> None:
    keys = [
        *("cluster", "leadership", "session:b1:8080", "tenant:acme", "namespace:acme/orders"),
        *("acme/orders/0x00000000_0x40000000", "a:b/c", "tenant:", "namespace:x", "", "/", "a/"),
        *(
            "topic:acme/orders/bills",
            "subscription:acme/orders/bills/a:b",
            "topic:",
            "topics:a/b/c",
        ),
        *("Ünïcode/ns/0x00000000_0x40000000", "tenant", "tenant:a:b/c", "x:tenant:y"),
    ]
    frame = spark.createDataFrame([(key,) for key in keys], "key string")
    found = frame.select("key", scope_column(F.col("key").cast("binary"))).collect()
    assert {row[0]: row[1] for row in found} == {key: scope_of(key) for key in keys}
