"""Faults of a seed, injected into containers under a workload; then its history is judged.

FAULTS: how many in all (10), SEED: of the first schedule; each schedule has up to 50 of them.
KINDS: which ones (all), by name and divided by commas. The history, the faults and what each
container wrote are in build/faults/SEED.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from faults.checker import violations
from faults.history import read
from faults.injection import inject
from faults.schedule import Kind, rounds, schedule
from faults.stack import Setup, Stack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800), pytest.mark.usefixtures("engine")]

_FAULTS: Final = int(os.environ.get("FAULTS") or "10")
_SEED: Final = int(os.environ.get("SEED") or "1")
_KINDS: Final = os.environ.get("KINDS") or ""
_DRAIN_S: Final = 400.0
_PACE_S: Final = 0.8  # faster, and the load alone would starve a machine of two cores
_AUDIT_S: Final = 600.0
_KEPT: Final = Path(__file__).parents[2] / "build/faults"


@pytest.mark.parametrize(("seed", "count"), rounds(_FAULTS, _SEED))
def test_no_promise_is_broken_by_what_fails(seed: int, count: int) -> None:
    folder = _KEPT / str(seed)
    shutil.rmtree(folder, ignore_errors=True)
    kinds = [Kind[name.strip().upper()] for name in _KINDS.split(",") if name] or list(Kind)
    with Stack(folder, seed, Setup(environment={"PACE_S": str(_PACE_S)})) as stack:
        inject(stack, schedule(seed, stack.parties, count, kinds))
        stack.finish(_DRAIN_S)
        stack.audit(_AUDIT_S)
    found = violations(read(stack.history, folder / "faults.jsonl"))
    again = f"make faults FAULTS={count} SEED={seed}{f' KINDS={_KINDS}' * bool(_KINDS)}"
    told = "".join(f"\n{each.at:.3f} {each.promise}: {each.what}" for each in found)
    assert found == [], f"{len(found)} violations; again: {again}; see {folder}{told}"
