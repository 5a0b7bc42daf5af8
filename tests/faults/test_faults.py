"""Faults of a seed, injected into containers under a workload; then its history is judged.

FAULTS: how many in all (10), SEED: of the first schedule; each schedule has up to 50 of them.
KINDS: which ones (all), by name and divided by commas. RELEASE: the tag of another node's image, by
which nodes are replaced; without it, `other_release` does not come. The history, the faults, what
each container wrote and a listing of what happened are in build/faults/SEED.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from faults import timeline
from faults.checker import violations
from faults.history import read
from faults.injection import inject
from faults.schedule import Kind, rounds, schedule
from faults.stack import Setup, Stack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800), pytest.mark.usefixtures("engine")]

_FAULTS: Final = int(os.environ.get("FAULTS") or "10")
_SEED: Final = int(os.environ.get("SEED") or "1")
_KINDS: Final = os.environ.get("KINDS") or ""
_RELEASE: Final = os.environ.get("RELEASE") or ""
_DRAIN_S: Final = 400.0
_PACE_S: Final = 0.8  # faster, and the load alone would starve a machine of two cores
_AUDIT_S: Final = 600.0
_KEPT: Final = Path(__file__).parents[2] / "build/faults"


@pytest.mark.parametrize(("seed", "count"), rounds(_FAULTS, _SEED))
def test_no_promise_is_broken_by_what_fails(seed: int, count: int) -> None:
    folder = _KEPT / str(seed)
    shutil.rmtree(folder, ignore_errors=True)
    kinds = [Kind[name.strip().upper()] for name in _KINDS.split(",") if name] or list(Kind)
    if not _RELEASE:
        kinds = [kind for kind in kinds if kind is not Kind.OTHER_RELEASE]
    release = f"anabranch-node:{_RELEASE}" if _RELEASE else ""
    with Stack(folder, seed, Setup(environment={"PACE_S": str(_PACE_S)}, release=release)) as stack:
        inject(stack, schedule(seed, stack.parties, count, kinds))
        stack.finish(_DRAIN_S)
        stack.audit(_AUDIT_S)
    chosen = (("KINDS", _KINDS), ("RELEASE", _RELEASE))
    words = [f"make faults FAULTS={count} SEED={seed}", *(f"{k}={v}" for k, v in chosen if v)]
    again = " ".join(words)
    history = read(stack.history, folder / "faults.jsonl")
    found = violations(history)
    page = timeline.write(folder, f"Faults of seed {seed}", history, found)
    assert found == [], f"{len(found)} violations; again: {again}; see {page}"
