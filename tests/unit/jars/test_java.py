"""What is said when Java is missing or too old."""

from pathlib import Path

import pytest

from anabranch.jars.errors import JavaUnavailableError
from anabranch.jars.java import find_java


def _java_that_says(folder: Path, text: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    command.chmod(0o755)
    return command


def test_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = _java_that_says(tmp_path, 'openjdk version "17.0.2" 2022-01-18')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == command


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('openjdk version "1.8.0_392"', "is Java 8: too old.*17 or newer"),
        ('openjdk version "11.0.21"', "is Java 11: too old.*17 or newer"),
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


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(JavaUnavailableError, match=r"JAVA_HOME is '.*none'.*unset JAVA_HOME"):
        find_java()


def test_a_missing_java_comes_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaUnavailableError, match=r"Java is missing.*apt-get install openjdk-17"):
        find_java()
