"""A seed repeats its run on every machine, whatever differs between two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.simulation

_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("world", ["", "--topics", "--lists", "--roles"])
def test_a_run_does_not_depend_on_how_its_process_hashes_strings(world: str) -> None:
    """The order of a set of strings differs from process to process, unless that is forbidden."""
    assert _printed(world, hash_seed=1) == _printed(world, hash_seed=2)


def _printed(world: str, *, hash_seed: int) -> str:
    command = [sys.executable, "-m", "simulation.run", "--seed", "0", "--trace", *world.split()]
    inherited = {**os.environ, "PYTHONPATH": str(_TESTS), "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
