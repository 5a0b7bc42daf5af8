"""Faults of a seed, injected into containers under a workload; then its history is judged.

FAULTS: how many faults in all (10), SEED: of the first schedule. Each schedule has ten of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from faults.checker import read, violations
from faults.schedule import schedule
from faults.stack import KAFKAS, NODES, Stack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]

_AT_ONCE: Final = 10
_FAULTS: Final = int(os.environ.get("FAULTS", "10"))
_SEED: Final = int(os.environ.get("SEED", "1"))
_DRAIN_S: Final = 400.0


@pytest.mark.parametrize("seed", range(_SEED, _SEED + -(-_FAULTS // _AT_ONCE)))
def test_no_promise_is_broken_by_what_fails(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Stack(folder, seed) as stack:
        for fault in schedule(seed, (*NODES, *KAFKAS), min(_FAULTS, _AT_ONCE)):
            stack.inject(fault)
        stack.finish(_DRAIN_S)
    assert violations(read(stack.history)) == []
