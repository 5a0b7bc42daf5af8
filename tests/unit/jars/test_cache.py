"""The cache of jars, with a fetch that copies from memory."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.jars.artifacts import JAR_SETS, Artifact, committed, parse_line
from anabranch.jars.cache import resolve
from anabranch.jars.errors import ChecksumMismatchError, JarsUnavailableError, JavaUnavailableError
from anabranch.jars.java import find_java

_BYTES = {"one": b"first", "two": b"second"}
_ARTIFACTS = [
    Artifact("org.example", name, "1.0", hashlib.sha256(content).hexdigest())
    for name, content in _BYTES.items()
]


class Repository:
    """Serves `contents`, and counts how often it was asked."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.asked = 0

    def fetch(self, artifacts: Sequence[Artifact], folder: Path) -> None:
        self.asked += 1
        (folder / "ivy").mkdir(exist_ok=True)
        (folder / "ivy.xml").touch()
        for artifact in artifacts:
            (folder / artifact.file_name).write_bytes(self.contents[artifact.name])


def test_jars_are_fetched_once_and_nothing_else_is_kept(tmp_path: Path) -> None:
    repository = Repository(_BYTES)
    for _ in range(2):
        paths = resolve("kafka", cache_dir=tmp_path, artifacts=_ARTIFACTS, fetch=repository.fetch)
    assert repository.asked == 1
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert sorted(paths[0].parent.iterdir()) == sorted(paths)


def test_a_damaged_jar_is_fetched_again(tmp_path: Path) -> None:
    repository = Repository(_BYTES)
    paths = resolve("kafka", cache_dir=tmp_path, artifacts=_ARTIFACTS, fetch=repository.fetch)
    paths[1].write_bytes(b"damaged")

    resolve("kafka", cache_dir=tmp_path, artifacts=_ARTIFACTS, fetch=repository.fetch)

    assert repository.asked == 2
    assert paths[1].read_bytes() == b"second"


def test_another_content_is_refused_and_a_later_call_starts_clean(tmp_path: Path) -> None:
    repository = Repository(_BYTES | {"two": b"forged"})
    with pytest.raises(ChecksumMismatchError, match=r"org\.example:two:1\.0"):
        resolve("kafka", cache_dir=tmp_path, artifacts=_ARTIFACTS, fetch=repository.fetch)

    repository.contents = _BYTES
    paths = resolve("kafka", cache_dir=tmp_path, artifacts=_ARTIFACTS, fetch=repository.fetch)
    assert paths[1].read_bytes() == b"second"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "jars").write_text("a file, not a directory")
    with pytest.raises(JarsUnavailableError, match=r"cannot be kept in .*XDG_CACHE_HOME"):
        resolve("kafka", cache_dir=tmp_path, artifacts=_ARTIFACTS, fetch=Repository({}).fetch)


def test_a_line_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a line of a checksum file"):
        parse_line(f"{'0' * 64} org:name")


def test_the_committed_sets_have_the_versions_that_go_together() -> None:
    names = {jar_set: {str(artifact) for artifact in committed(jar_set)} for jar_set in JAR_SETS}
    assert "org.apache.kafka:kafka_2.13:4.3.1" in names["kafka"]
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0" in names["spark"]


# --- what is said when Java is missing or too old -------------------------------------------------


def _java_that_says(folder: Path, text: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    command.chmod(0o755)
    return command


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('openjdk version "1.8.0_392"', "is Java 8: too old.*17 or newer"),
        ("Unable to locate a Java Runtime.", "not a working Java runtime"),
    ],
)
def test_an_old_java_or_a_stand_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, said: str
) -> None:
    _java_that_says(tmp_path, told)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaUnavailableError, match=said):
        find_java()


def test_a_missing_java_comes_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaUnavailableError, match=r"Java is missing.*apt-get install openjdk-17"):
        find_java()
