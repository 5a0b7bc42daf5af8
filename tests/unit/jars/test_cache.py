"""The cache of jars, with a fetch that copies from memory."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.jars.artifacts import JAR_SETS, Artifact, committed, parse_line
from anabranch.jars.cache import resolve
from anabranch.jars.errors import ChecksumMismatchError, JarsUnavailableError

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


@pytest.mark.parametrize("line", ["", "abc org:name:1", f"{'0' * 64} org:name"])
def test_a_line_that_is_none_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="not a line of a checksum file"):
        parse_line(line)


def test_the_committed_sets_have_the_versions_that_go_together() -> None:
    names = {jar_set: {str(artifact) for artifact in committed(jar_set)} for jar_set in JAR_SETS}
    assert "org.apache.kafka:kafka_2.13:4.3.1" in names["kafka"]
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0" in names["spark"]
