"""A run of tests that leaves a process fails, and an interrupted one is cleaned up by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.processes import await_gone

_TESTS = Path(__file__).parents[1]
_LEAVES = """
import os, subprocess, sys, tempfile
from pathlib import Path

def test_it() -> None:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("told").write_text(f"{left.pid} {tempfile.mkdtemp()}")
"""
_IS_INTERRUPTED = "    os.kill(os.getpid(), 9)\n"


def _run(folder: Path, body: str) -> tuple[subprocess.CompletedProcess[str], int, Path]:
    """A run of that test; returns what it leaves, too: a process and a folder."""
    (folder / "test_it.py").write_text(body)
    (folder / "pytest.ini").write_text("[pytest]\n")
    inherited = {n: v for n, v in os.environ.items() if n != "TEST_RUN_OF_ANABRANCH"}
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "support.leftovers", "test_it.py"],
        cwd=folder,
        env=inherited | {"PYTHONPATH": str(_TESTS), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    pid, _, made = (folder / "told").read_text().partition(" ")
    return found, int(pid), Path(made)


def test_a_run_that_leaves_a_process_fails_and_says_which(tmp_path: Path) -> None:
    at_once = "import support.leftovers\nsupport.leftovers._GONE_S_MAX = 0.0\n"
    found, pid, made = _run(tmp_path, at_once + _LEAVES)
    assert found.returncode == 1
    assert f"left behind, and ended now: {pid} {sys.executable}" in found.stdout
    await_gone([pid])
    assert not made.exists()


def test_what_an_interrupted_run_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    found, pid, made = _run(tmp_path, _LEAVES + _IS_INTERRUPTED)
    assert found.returncode == -signal.SIGKILL
    assert made.exists()
    os.kill(pid, 0)
    quiet, *_ = _run(tmp_path, "def test_it() -> None:\n    pass\n")
    assert quiet.returncode == 0, quiet.stdout
    await_gone([pid])
    assert not made.exists()
