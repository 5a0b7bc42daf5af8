"""Starting from a snapshot of a million units, each time in a fresh process.

python -m bench.log.starting {consume|load} BOOTSTRAP_SERVERS TOPIC_PREFIX FOLDER
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from anabranch.channel.codec import Horizon
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.snapshots.compactor import Compactor
from anabranch.channel.snapshots.reader import SnapshotReader
from anabranch.projections.view import View
from bench.figure import Measured
from bench.log.folding import SNAPSHOT_UNITS, bulk_loads, snapshot_horizon, snapshot_pairs
from bench.place import Place, resident_mb

MEMORY_MB_MAX = 400
_REPEATS = 3
_CHILD_S_MAX = 300.0


@cache
def start(place: Place) -> Measured:
    """Load the snapshot topic into a view, and just consume it."""
    count = SNAPSHOT_UNITS // 10 if place.quick else SNAPSHOT_UNITS
    topics = place.topics()
    compactor = Compactor(place.connection, topics)
    compactor.begin()
    # The log of this cluster is empty; nobody folds what its units say.
    compactor.snapshot(snapshot_pairs(count), snapshot_horizon(0, count))
    compactor.close()
    consumed, loaded = [], []
    for _ in range(_REPEATS):
        consumed.append(_child("consume", place, topics))
        loaded.append(_child("load", place, topics))
    if any(found["rows"] != count for found in consumed + loaded):
        raise RuntimeError(f"not all of {count} units were read: {consumed} {loaded}")
    limit = statistics.median(found["seconds"] for found in consumed)
    value = statistics.median(found["seconds"] for found in loaded)
    peak = max(found["peak_mb"] for found in loaded)
    return Measured(
        value,
        "s",
        value / limit,
        2.0,
        limit=limit,
        limit_what="the same reader, each pair looked at and dropped",
        details={
            "units": count,
            "consumed_per_s": count / limit,
            "loaded_per_s": count / value,
            "peak_mb": peak,
            "peak_mb_max": MEMORY_MB_MAX,
            "memory_met": peak <= MEMORY_MB_MAX,
            "consume_peak_mb": max(found["peak_mb"] for found in consumed),
        },
    )


def bulk(place: Place) -> Measured:
    """Load the same units from memory: were that as fast as consuming them, a start could take no
    longer than twice that.
    """
    found = start(place).details
    value = statistics.median(bulk_loads(place, int(found["units"])))
    limit = float(found["consumed_per_s"])
    return Measured(
        value,
        "units/s",
        value / limit,
        1.0,
        at_least=True,
        limit=limit,
        limit_what="just consuming them from Kafka, as `start` measures it",
        details={"units": found["units"]},
    )


def memory(place: Place) -> Measured:
    """Peak memory of the process that loads the snapshot."""
    found = start(place)
    peak = float(found.details["peak_mb"])
    return Measured(peak, "MB", peak, MEMORY_MB_MAX, details=found.details)


def _child(what: str, place: Place, topics: Topics) -> dict[str, Any]:
    folder = place.folder / f"start-{place.number()}"
    command = [sys.executable, "-m", "bench.log.starting", what]
    command += [place.kafka.bootstrap_servers, topics.prefix, str(folder)]
    answer = subprocess.run(
        command,
        check=True,
        timeout=_CHILD_S_MAX,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def main(arguments: list[str]) -> int:
    what, servers, prefix, folder = arguments
    reader = SnapshotReader(KafkaConnection(servers), Topics(prefix))
    rows = 0
    began = time.perf_counter()
    if what == "consume":
        for batch in reader.batches():
            rows += len(batch)
        took = time.perf_counter() - began
    else:
        with View.open(Path(folder)) as view:
            began = time.perf_counter()
            view.load_snapshot(reader.batches(), lambda: _known(reader.horizon))
            took = time.perf_counter() - began
            rows = sum(view.unit_count(f"broker-{number}.example:8080") for number in range(3))
    peak_mb = resident_mb(os.getpid(), "VmHWM")  # getrusage would count our parent's, too
    print(json.dumps({"seconds": took, "rows": rows, "peak_mb": round(peak_mb, 1)}))
    return 0


def _known(horizon: Horizon | None) -> Horizon:
    if horizon is None:
        raise RuntimeError("there is no snapshot")
    return horizon


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
