"""A run leaves nothing behind; what an interrupted one has left, the next run removes.

All processes of a run carry its name in their environment, and all its temporary files lie in a
folder of that name. The name says which process began the run, so anybody sees when it is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_NAME: Final = "TEST_RUN_OF_ANABRANCH"  # no name that nodes take for a setting of theirs
_PREFIX: Final = "anabranch-tests-"
_PROC: Final = Path("/proc")
_GONE_S_MAX: Final = 30.0  # for processes that are told to end, and do so by themselves
# A pool of processes leaves one that ends when this process has.
_ENDS_WITH_US: Final = "multiprocessing.resource_tracker"


def pytest_configure(config: pytest.Config) -> None:
    """Workers have what their controller has set, and look at nothing."""
    if _NAME in os.environ or hasattr(config, "workerinput") or not _PROC.exists():
        return
    remove_leftovers()
    name = f"{_PREFIX}{os.getpid()}-{_began(os.getpid())}"
    folder = Path(tempfile.gettempdir(), name)
    folder.mkdir()
    os.environ |= {_NAME: name, "TMPDIR": str(folder)}
    tempfile.tempdir = None  # it is read anew
    config.pluginmanager.register(_OwnRun(name, folder))


class _OwnRun:
    """Fails a run that leaves processes, and removes its folder unless a test has failed."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # when everybody else has ended
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        for pid in _left_after(_GONE_S_MAX, self._name):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._say(session.config, f"left behind, and ended now: {pid} {_command(pid)}")
            _kill(pid)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        for name in (_NAME, "TMPDIR"):
            os.environ.pop(name)
        tempfile.tempdir = None
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.stats.keys() & {"failed", "error"}:
            self._say(config, f"files of this run, until the next one begins: {self._folder}")
        else:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _say(self, config: pytest.Config, line: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line)


def remove_leftovers() -> None:
    """Ends the processes of runs that are gone, and removes their folders."""
    for pid, name in _members():
        if _is_over(name):
            _kill(pid)
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if _is_over(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def _left_after(seconds: float, name: str) -> list[int]:
    deadline = time.monotonic() + seconds
    while left := [pid for pid, of in _members() if of == name and not _may_stay(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _may_stay(pid: int) -> bool:
    return pid == os.getpid() or _ENDS_WITH_US in _command(pid)


def _members() -> Iterator[tuple[int, str]]:
    """Each process that belongs to a run, with the run's name."""
    mark = f"{_NAME}=".encode()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it is somebody else's, or has just ended
            continue
        for variable in variables:
            if variable.startswith(mark):
                yield int(entry.name), variable.removeprefix(mark).decode()


def _is_over(name: str) -> bool:
    pid, _, began = name.removeprefix(_PREFIX).partition("-")
    return not pid.isdigit() or _began(int(pid)) != began


def _began(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty for none."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return "(ended)"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
