"""Which files are an archive's own, by the lists that Spark keeps in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.spark_replay.archive.contents import ListedFile, listed_files, sound_files
from anabranch.spark_replay.archive.folders import LocalFolder
from anabranch.spark_replay.sources import AuditError


@pytest.fixture
def archive(tmp_path: Path) -> LocalFolder:
    """Twelve batches; one list holds the first ten."""
    lists = tmp_path / "_spark_metadata"
    lists.mkdir()
    lines = ["v1"]
    for batch in range(12):
        place = "file:///srv/a%20b" if batch < 5 else "hdfs://names/river"
        entry = {"path": f"{place}/{batch}.parquet", "size": batch, "action": "add"}
        lines.append(json.dumps(entry))
        (tmp_path / f"{batch}.parquet").write_bytes(bytes(batch))
        (lists / str(batch)).write_text(f"v1\n{lines[-1]}")
        if batch == 9:
            (lists / "9.compact").write_text("\n".join(lines))
    return LocalFolder(tmp_path)


def test_an_archive_s_files_are_those_listed_wherever_they_were_written(
    archive: LocalFolder,
) -> None:
    archive.write("unlisted.parquet", b"of a batch that was cut short")
    (archive.path / "_spark_metadata/3").unlink()  # Spark deletes what another list holds
    files = sound_files(archive)
    assert files[4:6] == [
        ListedFile("4.parquet", 4, "file:///srv/a b"),
        ListedFile("5.parquet", 5, "hdfs://names/river"),
    ]
    assert [file.size for file in files] == list(range(12))


def test_a_list_that_is_missing_or_damaged_is_named(archive: LocalFolder) -> None:
    lists = archive.path / "_spark_metadata"
    (lists / "10").unlink()
    with pytest.raises(AuditError, match=r"_spark_metadata/10 lists .* missing; bring it back"):
        listed_files(archive)
    (lists / "10").write_text("v1\n{")
    with pytest.raises(AuditError, match=r"_spark_metadata/10 lists .* cannot be read"):
        listed_files(archive)


def test_a_copy_without_the_hidden_names_is_refused(archive: LocalFolder) -> None:
    (archive.path / "_spark_metadata").rename(archive.path.with_name("elsewhere"))
    with pytest.raises(AuditError, match="copy the whole folder"):
        sound_files(archive)
