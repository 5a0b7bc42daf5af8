"""An archive of the log holds each record once, whatever fails while it is written.

FAULTS: how many are done to the archive and to Kafka, and again to the archive's disk (10), SEED:
of the first schedule; each has up to 50 of them. The history and what each container wrote are in
build/faults/archive-SEED-with-kafka and -alone.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from faults.auditor import VERDICT
from faults.checker import violations
from faults.history import read
from faults.injection import inject
from faults.parts import ARCHIVE
from faults.schedule import Kind, Parties, rounds, schedule
from faults.stack import Setup, Stack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800), pytest.mark.usefixtures("engine")]

_FAULTS: Final = int(os.environ.get("FAULTS") or "10")
_SEED: Final = int(os.environ.get("SEED") or "1")
_KAFKAS: Final = ("kafka-1",)
_KEPT: Final = Path(__file__).parents[2] / "build/faults"
_FINISH_S: Final = 200.0
_AUDIT_S: Final = 600.0
_ITSELF: Final = (Kind.KILL, Kind.PAUSE, Kind.RESTART)
_LINKS: Final = (Kind.UNPLUG, Kind.CUT, Kind.ONE_WAY, Kind.LOSSY, Kind.SLOW, Kind.JITTERY)
_DISK: Final = (Kind.DISK_FULL, Kind.DISK_READ_ONLY, Kind.DISK_SLOW)


_WHOM: Final = {
    "with-kafka": (_KAFKAS, (*_ITSELF, *_LINKS, *_DISK)),
    "alone": ((), (*_DISK, Kind.KILL)),
}


@pytest.mark.parametrize(("seed", "count"), rounds(_FAULTS, _SEED))
@pytest.mark.parametrize("whom", _WHOM)
def test_an_archive_holds_each_record_once_whatever_fails(whom: str, seed: int, count: int) -> None:
    kafkas, kinds = _WHOM[whom]
    folder = _KEPT / f"archive-{seed}-{whom}"
    shutil.rmtree(folder, ignore_errors=True)
    setup = Setup(
        _KAFKAS,
        ("node-1", "node-2"),
        ("operator",),
        settings={"SNAPSHOT_INTERVAL_SECONDS": "3"},  # so the log is trimmed to what is archived
        environment={"OPERATIONS": "TRANSFER RESHAPE", "PRODUCER_LIFE_S": "60 60"},
        archive=True,
    )
    with Stack(folder, seed, setup) as stack:
        inject(stack, schedule(seed, Parties((), kafkas, (), (ARCHIVE,)), count, kinds))
        stack.finish(_FINISH_S)
        stack.await_archived()
        stack.audit(_AUDIT_S)
    found = violations(read(stack.history))
    again = f"make faults FAULTS={count} SEED={seed} TESTS=tests/faults/test_archive.py"
    assert found == [], f"{len(found)} violations; again: {again}; see {folder}"
    verdict = json.loads((stack.history / VERDICT).read_bytes())
    (offsets,) = (check for check in verdict["checks"] if check["name"] == "offsets")
    assert (offsets["result"], offsets["violated"]) == ("ok", 0)
    log = verdict["log"]
    assert (log["first_offset"], log["gap"]) == (0, None)
    assert 0 < log["wal_from"] <= log["archived_until"]  # the rest, Kafka has no more
