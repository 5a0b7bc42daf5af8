"""The archive in real Spark: exactly once, whatever happens to its process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from anabranch.channel.embedded.kafka import EmbeddedKafka
from anabranch.channel.log import Entry
from anabranch.channel.topics import Topics
from anabranch.spark_replay.archive import (
    ArchiveOptions,
    archive_once,
    committed_batch,
    next_offset,
    run_archive,
)
from anabranch.spark_replay.sources import AuditError, read_archive
from support.history import START_MS, mixed
from support.kafka_history import append, make_topics, trim
from support.quiet import QUIET

pytestmark = [pytest.mark.spark, pytest.mark.integration]

_WAIT_S = 120.0
_PROGRAM = """
import sys
from pathlib import Path
from anabranch.spark_replay.archive import ArchiveOptions, run_archive
servers, folder, prefix = sys.argv[1:]
options = ArchiveOptions(
    servers, Path(folder), topic_prefix=prefix, interval_s=0.1, batch_records_max=40
)
sys.exit(run_archive(options))
"""


def _entries(first: int, count: int) -> list[Entry]:
    return [
        Entry(offset, START_MS + offset, b"k%d" % (offset % 7), b"value %d" % offset, b"test/1")
        for offset in range(first, first + count)
    ]


def _published(kafka: EmbeddedKafka, topics: Topics) -> int:
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": kafka.bootstrap_servers, "group.id": topics.archive_group}
    )
    try:
        (place,) = consumer.committed([TopicPartition(topics.wal, 0)], timeout=30)
        return int(place.offset)
    finally:
        consumer.close()


def _archived(spark: SparkSession, folder: Path) -> list[Entry]:
    frame = read_archive(spark, folder)
    if frame is None:
        return []
    return [
        Entry(offset, timestamp_ms, bytes(key), bytes(value), bytes(schema))
        for offset, timestamp_ms, key, value, schema in sorted(frame.collect())
    ]


@contextmanager
def _process(kafka: EmbeddedKafka, folder: Path, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", _PROGRAM, kafka.bootstrap_servers, str(folder), prefix]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        # Python and the JVM at once, as the kernel would.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.002)


def _in_a_batch(folder: Path, after: int) -> bool:
    """Whether a batch later than `after` was begun and is not committed."""
    begun = [int(p.name) for p in (folder / "_checkpoint/offsets").glob("[0-9]*")]
    return max(begun, default=-1) > max(after, committed_batch(folder) or 0)


def test_the_archive_holds_every_offset_once_however_often_it_is_killed(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    folder = tmp_path / "archive"
    chance = random.Random(7)
    written = _entries(0, 400)
    append(kafka, topics, written)
    options = ArchiveOptions(kafka.bootstrap_servers, folder, topic_prefix=topic_prefix)
    for _ in range(2):
        before = committed_batch(folder) or 0
        more = _entries(len(written), 200)
        with _process(kafka, folder, topic_prefix):
            _until(lambda floor=before: _in_a_batch(folder, floor + 1))  # type: ignore[misc]
            append(kafka, topics, more)
            with pytest.raises(AuditError, match="another process archives"):
                archive_once(spark, options)
            time.sleep(chance.random() * 0.5)  # anywhere in this batch or a later one
        written += more
        found = _archived(spark, folder)
        assert found == written[: len(found)]
        assert _published(kafka, topics) <= len(found)
        assert (next_offset(folder) or 0) <= len(found)
    assert archive_once(spark, options) == len(written)
    assert _archived(spark, folder) == written
    assert _published(kafka, topics) == len(written)


def test_an_archive_goes_on_where_it_ended_and_keeps_every_column(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    history = mixed()
    append(kafka, topics, history.entries)
    options = ArchiveOptions(kafka.bootstrap_servers, tmp_path, topic_prefix=topic_prefix)
    assert archive_once(spark, options) == history.next_offset
    assert archive_once(spark, options) == history.next_offset
    later = history.next_offset
    history.unload(history.units()[0])
    append(kafka, topics, history.entries[later:])
    assert archive_once(spark, options) == history.next_offset
    frame = read_archive(spark, tmp_path)
    assert frame is not None
    found = [
        Entry(row[0], row[1], bytes(row[2]), bytes(row[3]), bytes(row[4]) if row[4] else None)
        for row in sorted(frame.collect())
    ]
    assert found == history.entries


def test_an_archive_that_lacks_what_was_trimmed_says_so(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    append(kafka, topics, _entries(0, 20))
    options = ArchiveOptions(kafka.bootstrap_servers, tmp_path, topic_prefix=topic_prefix)
    archive_once(spark, options)
    append(kafka, topics, _entries(20, 20))
    trim(kafka, topics, 30)
    with pytest.raises(AuditError, match=r"ends at offset 20.*begins at 30"):
        archive_once(spark, options)


def test_without_java_the_archive_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run_archive(ArchiveOptions("127.0.0.1:1", tmp_path)) == 2
    assert "Install a Java runtime" in capfd.readouterr().err
