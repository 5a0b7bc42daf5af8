"""The archive in real Spark: exactly once, whatever happens to its process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from anabranch.channel.archives import ArchiveError
from anabranch.channel.codec import Horizon, encode_entity
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.log.entries import Entry
from anabranch.channel.snapshots.compactor import Compactor, archive_mark
from anabranch.core.entities.archive import archive_key
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from anabranch.spark_replay.archive.contents import (
    committed_batch,
    listed_files,
    next_offset,
    read_archive,
)
from anabranch.spark_replay.archive.folders import FolderError, LocalFolder, Place
from anabranch.spark_replay.archive.writer import ArchiveOptions, archive_once, run_archive
from anabranch.spark_replay.audit.run import AuditOptions, audit
from anabranch.spark_replay.sources import AuditError
from support.channel import registry
from support.history import START_MS, History, mixed
from support.kafka_history import append, make_topics, name_archive, trim
from support.there import there

pytestmark = pytest.mark.spark

_WAIT_S = 400.0
_PROGRAM = """
import sys
from pathlib import Path
from anabranch.spark_replay.archive.writer import ArchiveOptions, run_archive
servers, folder, prefix = sys.argv[1:]
options = ArchiveOptions(
    servers, archive_dir=Path(folder), topic_prefix=prefix, interval_s=0.1, batch_records_max=40
)
sys.exit(run_archive(options))
"""


def _entries(first: int, count: int) -> list[Entry]:
    return [
        Entry(offset, START_MS + offset, b"k%d" % (offset % 7), b"value %d" % offset, b"test/1")
        for offset in range(first, first + count)
    ]


def _registered(archive: str) -> Entry:
    """The first record of the log: it registers an archive."""
    history = History()
    history.registers(archive)
    return history.entries[0]


def _published(kafka: EmbeddedKafka, topics: Topics, archive: str = "river") -> int:
    mark = archive_mark(KafkaConnection(kafka.bootstrap_servers), topics, archive)
    return -1 if mark is None else mark


def _archived(spark: SparkSession, folder: Place) -> list[Entry]:
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
    return max(begun, default=-1) > max(after, committed_batch(LocalFolder(folder)) or 0)


@pytest.mark.long
def test_the_archive_holds_every_offset_once_however_often_it_is_killed(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    folder = tmp_path / "archive"
    chance = random.Random(7)
    written = [_registered("river"), *_entries(1, 399)]
    name_archive(kafka, topics, folder, "river")
    append(kafka, topics, written)
    options = ArchiveOptions(kafka.bootstrap_servers, archive_dir=folder, topic_prefix=topic_prefix)
    for _ in range(2):
        before = committed_batch(LocalFolder(folder)) or 0
        more = _entries(len(written), 200)
        with _process(kafka, folder, topic_prefix):
            _until(lambda floor=before: _in_a_batch(folder, floor + 1))  # type: ignore[misc]
            append(kafka, topics, more)
            with pytest.raises(FolderError, match="another process archives"):
                archive_once(spark, options)
            time.sleep(chance.random() * 0.5)  # anywhere in this batch or a later one
        written += more
        found = _archived(spark, folder)
        assert found == written[: len(found)]
        assert _published(kafka, topics) <= len(found)
        assert (next_offset(LocalFolder(folder)) or 0) <= len(found)
    assert archive_once(spark, options) == len(written)
    assert _archived(spark, folder) == written
    assert _published(kafka, topics) == len(written)


@pytest.mark.long
def test_a_moved_archive_is_read_and_gone_on_with_and_tells_what_it_lacks(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    home, away = tmp_path / "home", tmp_path / "a way [2] {b}"
    history = mixed()
    history.registers("river")
    name_archive(kafka, topics, home, "river")
    archived = ArchiveOptions(
        kafka.bootstrap_servers, archive_dir=home, topic_prefix=topic_prefix, batch_records_max=10
    )
    until = 0
    for place, other in ((home, away), (away, home), (home, away)):
        append(kafka, topics, history.entries[until:])
        until = history.next_offset
        assert archive_once(spark, msgspec.structs.replace(archived, archive_dir=place)) == until
        place.rename(other)
        offsets = there(read_archive(spark, other)).select("offset").collect()
        assert sorted(row[0] for row in offsets) == list(range(until))
        history.registers(f"river-{until}")
    trim(kafka, topics, until)
    options = AuditOptions(kafka.bootstrap_servers, {}, topic_prefix, archive_dir=away)
    found = audit(spark, options)
    assert (found.log.first_offset, found.log.archived_until, found.sound) == (0, until, True)

    cut, gone = (away / file.name for file in listed_files(LocalFolder(away))[2:4])
    content = cut.read_bytes()
    cut.write_bytes(content[:-7])
    gone.unlink()
    size = len(content)
    said = rf"{cut.name}, which is of the archive, has {size - 7} of its {size} bytes; bring"
    with pytest.raises(AuditError, match=said):
        audit(spark, options)
    cut.write_bytes(content)
    before = sorted(away.rglob("*"))
    with pytest.raises(AuditError, match=rf"{gone.name}, which is of the archive, is missing"):
        archive_once(spark, msgspec.structs.replace(archived, archive_dir=away))
    assert set(before) >= set(away.rglob("*")) - {away / "_lock"}


def test_an_archive_that_lacks_what_was_trimmed_says_so(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    append(kafka, topics, _entries(0, 20))
    options = ArchiveOptions(
        kafka.bootstrap_servers, archive_dir=tmp_path, topic_prefix=topic_prefix
    )
    archive_once(spark, options)
    append(kafka, topics, _entries(20, 20))
    trim(kafka, topics, 30)
    with pytest.raises(AuditError, match=r"ends at offset 21.*begins at 30"):
        archive_once(spark, options)


def test_a_second_archive_has_a_mark_of_its_own_and_destroys_nothing_of_the_first(
    spark: SparkSession, kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topics = make_topics(kafka, topic_prefix)
    append(kafka, topics, _entries(0, 20))
    first, second = (
        ArchiveOptions(
            kafka.bootstrap_servers, archive_dir=tmp_path / name, topic_prefix=topic_prefix
        )
        for name in ("first", "second")
    )
    assert archive_once(spark, first) == 21  # the record that registers it is in the log, too
    append(kafka, topics, _entries(21, 20))
    assert archive_once(spark, second) == 42
    with closing(registry(kafka, topics)) as archives:
        known = archives.read()
        assert [name.rpartition("-")[0] for name in known] == ["first", "second"]
        assert [_published(kafka, topics, name) for name in known] == [21, 42]
        assert all(str(tmp_path) in archive.place for archive in known.values())
        compactor = Compactor(KafkaConnection(kafka.bootstrap_servers), topics)
        compactor.begin()
        rows = [(archive_key(name).encode(), encode_entity(a)) for name, a in known.items()]
        compactor.snapshot(rows, Horizon(42, "0" * 32))
        assert compactor.trim(known).begins_at == 21
        assert archive_once(spark, first) == 42
        assert [entry.offset for entry in _archived(spark, first.archive_dir)] == list(range(42))
        gone = next(iter(known))
        archives.retire(gone)
        with pytest.raises(ArchiveError, match=f"no archive {gone} is registered.*second-"):
            archives.retire(gone)
        assert archive_once(spark, second) == 43
        assert compactor.trim(archives.read()).begins_at == 42
        # What was retired may come back, as long as the log has all that it lacks.
        assert archive_once(spark, first) == 44
        assert list(archives.read()) == list(known)
        compactor.close()


def test_without_java_the_archive_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run_archive(ArchiveOptions("127.0.0.1:1", archive_dir=tmp_path)) == 2
    assert "Install a Java runtime" in capfd.readouterr().err
