"""What the archive says when it cannot go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.spark_replay.archive import writer
from anabranch.spark_replay.archive.writer import ArchiveOptions, run_archive


def test_a_full_disk_is_told_with_the_archive_s_name_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An error of a file that is open names no file."""

    def full() -> None:
        with Path("/dev/full").open("wb") as file:
            file.write(b"more")

    monkeypatch.setattr(writer, "find_java", full)
    assert run_archive(ArchiveOptions("127.0.0.1:1", archive_dir=tmp_path)) == 2
    assert f"{tmp_path}: No space left on device; make room there" in capfd.readouterr().err
