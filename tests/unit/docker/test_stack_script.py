"""docker/stack.sh with a Docker that notes what it is asked, and docker/base.sh."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from support.metrics_page import ROOT

_SCRIPT: Final = ROOT / "docker" / "stack.sh"
# `$UP` is what it does when it is asked to start a stack, $VOLUMES what there is of it already.
_DOCKER: Final = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
    *" up "*) eval "$UP" ;;
    "volume ls "*) echo "$VOLUMES" ;;
    *"ps --quiet node-1") echo c1 ;;
    *"{{ .Name }} {{"*) echo "/river-node-1-1 healthy" ;;
    inspect*) echo /river-node-1-1 ;;
    *" port "*) echo 127.0.0.1:1 ;;
esac
"""

Run = Callable[..., tuple[subprocess.CompletedProcess[str], list[str]]]


@pytest.fixture
def up(tmp_path: Path) -> Run:
    """`stack.sh up`: how it ended, and what Docker was asked."""
    docker = tmp_path / "docker"
    docker.write_text(_DOCKER)
    docker.chmod(0o755)
    calls = tmp_path / "calls"

    def run(start: str, volumes: str = "") -> tuple[subprocess.CompletedProcess[str], list[str]]:
        told = {"STACK": "river", "CALLS": str(calls), "UP": start, "VOLUMES": volumes}
        done = subprocess.run(
            [str(_SCRIPT), "up"],
            env={**told, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, calls.read_text().splitlines()

    return run


def _downs(calls: list[str]) -> list[str]:
    return [each for each in calls if " down " in each]


FAILS: Final = "exit 1"
INTERRUPTED: Final = "kill -TERM $PPID"  # as Ctrl-C does, which may be ignored where tests run


@pytest.mark.parametrize(("start", "status"), [(FAILS, 2), (INTERRUPTED, 130)])
def test_what_it_has_started_goes_when_it_cannot_go_on(up: Run, start: str, status: int) -> None:
    done, calls = up(start)
    assert done.returncode == status
    (down,) = _downs(calls)
    assert "--project-name river" in down
    assert "--volumes" in down


@pytest.mark.parametrize(("start", "status"), [(FAILS, 2), (INTERRUPTED, 130)])
def test_what_was_there_before_stays_with_its_data(up: Run, start: str, status: int) -> None:
    done, calls = up(start, "river_kafka-1")
    assert done.returncode == status
    assert _downs(calls) == []
    assert "It was there before, so it stays" in done.stderr
    assert "volume ls --quiet --filter label=org.anabranch.stack=river" in calls


def test_the_command_that_it_shows_names_the_container(up: Run) -> None:
    """Compose 1 and 2 call it differently."""
    done, _ = up("true")
    assert done.returncode == 0, done.stderr
    assert "A command: docker exec river-node-1-1 anabranch brokers" in done.stdout


# --- docker/base.sh leaves nothing of the base on this machine, whatever ends it ------------------


_PROGRAM: Final = ROOT / "docker" / "base.sh"


@pytest.mark.parametrize(
    ("then", "status"),
    [("true", 0), ("exit 7", 7), ("kill -TERM $PPID", 130)],
    ids=["done", "failed", "interrupted"],
)
def test_its_folder_is_gone(tmp_path: Path, then: str, status: int) -> None:
    tools, temporary = tmp_path / "tools", tmp_path / "temporary"
    tools.mkdir()
    temporary.mkdir()
    made = tmp_path / "made"
    for name, what in {
        "debootstrap": f'touch "$3/file"; ls "$3" > {made}; {then}',
        "docker": "cat > /dev/null",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{what}\n")
        (tools / name).chmod(0o755)
    done = subprocess.run(
        [str(_PROGRAM), "base:test"],
        env={"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert made.read_text() == "file\n"
    assert list(temporary.iterdir()) == []
