"""An archive on a file system that Hadoop knows and Python does not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.archive.contents import committed_batch, next_offset, read_archive
from anabranch.spark_replay.archive.folders import FolderError, folder_at
from anabranch.spark_replay.archive.writer import ArchiveOptions, archive_once
from anabranch.spark_replay.audit.run import AuditOptions, audit
from anabranch.spark_replay.sources import AuditError
from support.channel import registry
from support.history import mixed
from support.kafka_history import append, make_topics, publish

pytestmark = pytest.mark.spark


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, topic_prefix: str) -> str:
    """A folder behind a mount table of Hadoop's; only its file system can find it."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    table = topic_prefix.replace(".", "-").replace("_", "-").strip("-")
    conf.set(f"fs.viewfs.mounttable.{table}.link./archives", tmp_path.as_uri())
    return f"viewfs://{table}/archives/river"


def test_an_archive_by_a_url_of_hadoop_s_goes_on_and_is_audited(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, place: str
) -> None:
    history = mixed(rounds=2)
    topics = publish(kafka, topic_prefix, history)
    options = ArchiveOptions(kafka.bootstrap_servers, archive_dir=place, topic_prefix=topic_prefix)
    until = history.next_offset + 1  # the record that registers it is in the log, too
    assert archive_once(spark, options) == until
    with closing(registry(kafka, topics)) as archives:
        ((name, known),) = archives.read().items()
    assert name.startswith("river-")
    assert known.place == place
    later = [msgspec.structs.replace(each, offset=until) for each in history.entries[:20]]
    append(kafka, topics, later)
    assert archive_once(spark, options) == until + 20
    frame = read_archive(spark, place)
    assert frame is not None
    assert sorted(row[0] for row in frame.select("offset").collect()) == list(range(until + 20))
    folder = folder_at(place, spark)
    assert committed_batch(folder) == 1
    assert next_offset(folder) == until + 20
    found = audit(spark, AuditOptions(kafka.bootstrap_servers, {}, topic_prefix, archive_dir=place))
    assert (found.records, found.log.archived_until) == (until + 20, until + 20)


def test_a_folder_of_this_machine_is_that_whatever_hadoop_s_default_is(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, place: str, tmp_path: Path
) -> None:
    folder = tmp_path / "of this machine#1"
    history = mixed()
    topics = publish(kafka, topic_prefix, history)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    before = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", place.removesuffix("/archives/river"))
    try:
        options = ArchiveOptions(
            kafka.bootstrap_servers, archive_dir=folder, topic_prefix=topic_prefix
        )
        until = archive_once(spark, options)
        assert until == history.next_offset + 1
        append(kafka, topics, [msgspec.structs.replace(history.entries[0], offset=until)])
        by_url = msgspec.structs.replace(options, archive_dir=f"file://{folder}")
        assert archive_once(spark, by_url) == until + 1
        found = audit(
            spark, AuditOptions(kafka.bootstrap_servers, {}, topic_prefix, archive_dir=folder)
        )
    finally:
        conf.set("fs.defaultFS", before)
    assert found.log.archived_until == until + 1
    assert list(folder.glob("*.parquet"))


def test_an_archive_of_another_log_is_known_there_too(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, place: str
) -> None:
    append(kafka, make_topics(kafka, topic_prefix), mixed().entries)
    options = ArchiveOptions(kafka.bootstrap_servers, archive_dir=place, topic_prefix=topic_prefix)
    archive_once(spark, options)
    make_topics(kafka, f"{topic_prefix}other.")
    with pytest.raises(AuditError, match="is of another log"):
        archive_once(spark, msgspec.structs.replace(options, topic_prefix=f"{topic_prefix}other."))
    with pytest.raises(AuditError, match="is of another log"):
        audit(
            spark,
            AuditOptions(kafka.bootstrap_servers, {}, f"{topic_prefix}other.", archive_dir=place),
        )
    folder_at(place, spark).write("_archive.json", b"{")
    with pytest.raises(AuditError, match=r"viewfs.*_archive.json cannot be read"):
        archive_once(spark, options)


def test_what_is_not_there_is_told_from_what_cannot_be_reached(
    spark: SparkSession, place: str
) -> None:
    with pytest.raises(AuditError, match="there is no archive in viewfs:"):
        read_archive(spark, place)
    with pytest.raises(FolderError, match=r'No FileSystem for scheme "rivers".*spark\.jars'):
        read_archive(spark, "rivers://x/y")
    with pytest.raises(FolderError, match=r"cannot be used.*Correct the URL"):
        read_archive(spark, "viewfs://nowhere/y")
    folder = folder_at(place, spark)
    assert (folder.is_there(), folder.names("none")) == (False, [])
    folder.make()
    with pytest.raises(FileNotFoundError):
        folder.read("none")
    folder.write("one", b"\x00\xff")
    folder.write("one", b"\xff\x00")
    assert (folder.read("one"), folder.names()) == (b"\xff\x00", ["one"])
