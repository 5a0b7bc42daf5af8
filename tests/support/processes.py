"""The command line and other programs as child processes, and what they leave behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from anabranch.devkit import ports
from support.waiting import WAIT_S

_T = TypeVar("_T")

HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "anabranch.cli")
START_S_MAX = 540.0
STOP_S_MAX = 60.0
CTRL_C_S_MAX = 10.0  # 3 s, on a machine that does little else
# A machine that stands still for seconds must end no session of a node that a test does not mean to
# end: a node without a lease refuses what it is asked.
LONG_LEASES = ("leaseMillis=15000", "livenessTimeoutMillis=20000")
# Nodes of one machine all have its load: chance must not say where bundles go.
EVENLY = "loadBalancerAverageResourceUsageDifferenceThresholdPercentage=1000"
DEV_SETTINGS = (*LONG_LEASES, EVENLY)


def run(
    *arguments: str, lines: str = "", **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """One command to its end, with this to read; a variable that is None is not set."""
    told = {**os.environ, **environment}
    return subprocess.run(
        [*COMMAND, *arguments],
        env={name: value for name, value in told.items() if value is not None},
        input=lines,
        capture_output=True,
        text=True,
        timeout=START_S_MAX,
        check=False,
    )


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program to its end, in a process of its own that may import what this one may."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def awaited(
    look: Callable[[], _T | None], process: subprocess.Popen[bytes], text: Callable[[], str]
) -> _T:
    """Returns what is found at last; fails with the text when the process ends or is too slow."""
    deadline = time.monotonic() + START_S_MAX
    while (found := look()) is None:
        assert process.poll() is None, f"it has ended: {text()}"
        assert time.monotonic() < deadline, f"it does not come in time: {text()}"
        time.sleep(0.02)
    return found


class Dev:
    """A running `anabranch dev`."""

    def __init__(
        self, folder: Path, nodes: int, settings: Sequence[str], flags: Sequence[str] = ()
    ) -> None:
        self.nodes = nodes
        self.port = free_ports(nodes)
        self.output = folder / "dev.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(*COMMAND, "dev", "--nodes", str(nodes), "--http-port", str(self.port)),
                    *("--service-port", "0", "--kafka-port", "0"),
                    *("--data-dir", str(folder / "data")),
                    *(part for setting in settings for part in ("--set", setting)),
                    *flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def url(self, number: int) -> str:
        return f"http://{HOST}:{self.port + number}"

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def kafka(self) -> str:
        """Where its Kafka is."""
        return self.text().partition("Kafka at ")[2].partition(",")[0]

    def await_line(self, start: str) -> str:
        """The first line that starts so; fails when the command ends or takes too long."""
        line = re.compile(f"^{re.escape(start)}.*", re.MULTILINE)
        return awaited(lambda: line.search(self.text()), self.process, self.text)[0]

    def end(self, how: signal.Signals) -> list[int]:
        """Ends it; returns the processes that it had, to be looked for."""
        had = descendants(self.process.pid)
        self.process.send_signal(how)
        self.process.wait(STOP_S_MAX)
        return had


@contextmanager
def dev(
    folder: Path, nodes: int, settings: Sequence[str] = DEV_SETTINGS, flags: Sequence[str] = ()
) -> Iterator[Dev]:
    """`anabranch dev` while the block runs, ready or not."""
    running = Dev(folder, nodes, settings, flags)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nobody listens on."""
    while True:
        first = ports.free_port(HOST)
        if all(ports.is_free(HOST, first + number) for number in range(count)):
            return first


def descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found, level = [], [pid]
    while level:
        level = [child for child, parent in pairs if parent in level]
        found += level
    return found


def await_gone(pids: list[int]) -> None:
    """Returns when none of the processes is left; fails if that takes too long."""
    deadline = time.monotonic() + STOP_S_MAX
    while left := [pid for pid in pids if _is_there(pid)]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    if not state.exists():
        return True
    try:
        # One that has ended but whose new parent has not looked yet is gone for all that matters.
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
