"""`--watch`: every command that prints a state has it, and says what has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
import pytest

from anabranch.admin import NoNodeError
from anabranch.cli.main import cli
from anabranch.cli.shared.watching import watched
from support.commands import every

# What has --json and no --watch: it changes something, goes on by itself, or tells of what stands.
OTHERS = {
    *("lookup", "topics create", "topics split", "topics merge", "topics rebucket"),
    *("topics relocate", "topics properties", "topics consume", "topics produce", "topics peek"),
    *("topics watch", "segments strays"),
    *("log tail", "archive", "audit", "backtest", "settings", "doctor", "demo"),
}


def test_every_reading_command_can_be_watched() -> None:
    options = {name: {each.name for each in command.params} for name, command in every(cli)}
    reading = {name for name, known in options.items() if "as_json" in known} - OTHERS
    assert {"balance show", "balance history", "brokers", "topics stats"} <= reading
    assert {name for name in reading if "watch" not in options[name]} == set()
    assert {name for name in OTHERS & options.keys() if "watch" in options[name]} == set()


def times(count: int) -> Callable[[float], object]:
    """Time passes so often; then somebody has enough."""
    left = iter(range(count))

    def wait(seconds: float) -> None:
        assert seconds >= 2.0
        if next(left, None) is None:
            raise KeyboardInterrupt

    return wait


def telling(*said: str | Exception) -> Callable[[], None]:
    left = iter(said)

    def tell() -> None:
        each = next(left)
        if isinstance(each, Exception):
            raise each
        click.echo(each)
        sys.stderr.write(f"of {each}\n")

    return tell


def test_what_has_changed_is_said_again_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    watched(True, telling("one", "one", "two"), times(2))
    found = capsys.readouterr()
    first, blank, at, second = found.out.splitlines()
    assert (first, blank, second) == ("one", "", "two")
    assert (at.count(":"), found.err) == (2, "of one\nof two\n")


def test_a_node_that_is_away_is_told_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    gone = NoNodeError("no node answers")
    watched(True, telling("one", gone, gone, "one"), times(3))
    found = capsys.readouterr()
    assert [line for line in found.out.splitlines() if line == "one"] == ["one", "one"]
    assert found.err.count("anabranch: no node answers; start one with") == 1


def test_what_cannot_be_said_at_all_ends_it() -> None:
    with pytest.raises(NoNodeError):
        watched(True, telling(NoNodeError("no node answers")), times(5))
