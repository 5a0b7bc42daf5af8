"""Whatever ends a run, nothing of it stays in Docker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from faults.leftovers import remove_leftovers, stack_name, uninterrupted

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("engine")]

_REPOSITORY = Path(__file__).parents[2]
_RUN = """
import contextlib, os, signal, sys, docker, pytest
from faults.leftovers import labels
from faults.tools import tools_of

@pytest.mark.usefixtures("engine")
def test_waits() -> None:
    # A shell lets what it starts in the background ignore Ctrl-C; this run is one of a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    client = docker.from_env()
    with contextlib.ExitStack() as ends:
        ends.callback(client.close)
        network = client.networks.create("{name}", labels=labels())
        ends.callback(network.remove)
        volume = client.volumes.create("{name}", labels=labels())
        ends.callback(volume.remove)
        ends.enter_context(tools_of(name="{name}", network="{name}"))
        sys.stderr.write("under way\\n")
        sys.stderr.flush()
        signal.pause()
"""


def _left(name: str) -> list[str]:
    client: Any = docker.from_env()
    with closing(client):
        found = [each.name for each in client.containers.list(all=True)]
        found += [each.name for each in client.networks.list()]
        found += [each.name for each in client.volumes.list()]
    return [each for each in found if each == name]


@pytest.fixture
def run(tmp_path: Path) -> subprocess.Popen[str]:
    """A run of pytest that waits, with a container, a network and a volume."""
    module = tmp_path / "test_run.py"
    module.write_text(_RUN.format(name=_name(tmp_path)))
    pytest_itself = [sys.executable, "-m", "pytest", "-s", "-p", "faults.conftest", str(module)]
    settings = ["-c", str(_REPOSITORY / "pyproject.toml"), "--rootdir", str(_REPOSITORY)]
    process = subprocess.Popen(
        pytest_itself + settings, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "under way\n"
    assert len(_left(_name(tmp_path))) == 3
    return process


def _name(tmp_path: Path) -> str:
    return f"anabranch-{tmp_path.parent.name}-{tmp_path.name}".replace("_", "-")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=lambda end: end.name)
def test_who_is_asked_to_end_leaves_nothing(
    run: subprocess.Popen[str], end: signal.Signals, tmp_path: Path
) -> None:
    with run:
        run.send_signal(end)
        run.wait()
    assert _left(_name(tmp_path)) == []


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C is heard, though a shell lets what it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_who_is_impatient_waits_until_all_is_removed() -> None:
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_a_killed_run_leaves_is_removed_by_the_next_one(
    run: subprocess.Popen[str], tmp_path: Path
) -> None:
    name = _name(tmp_path)
    with run:
        run.kill()
        run.wait()
    kinds = {each.split()[0] for each in remove_leftovers() if each.endswith(name)}
    assert kinds == {"container", "network", "volume"}
    assert _left(name) == []


def test_of_stacks_only_those_of_tests_are_removed() -> None:
    client: Any = docker.from_env()
    with closing(client):
        somebody_s, dead = (
            client.volumes.create(labels={"org.anabranch.stack": name})
            for name in ("anabranch", stack_name())
        )
        try:
            removed = remove_leftovers()
            assert f"volume {dead.name}" in removed
            assert _left(somebody_s.name) == [somebody_s.name]
        finally:
            somebody_s.remove(force=True)
