"""The audit's figure, from a process of its own: it brings a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.figure import Measured
from bench.place import Place
from bench.spark_audit import RATIO_MAX

_RECORDS = 5_000_000


def audit(place: Place) -> Measured:
    """The audit of a log, and Spark's own read-and-checksum of the same topic."""
    count = _RECORDS // 25 if place.quick else _RECORDS
    command = [sys.executable, "-m", "bench.spark_audit", str(count)]
    answer = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    )
    if not answer.stdout:
        raise RuntimeError(f"the audit could not be measured: status {answer.returncode}")
    found = json.loads(answer.stdout)
    return Measured(
        found["audit_s"],
        "s",
        found["ratio"],
        RATIO_MAX,
        limit=found["audit_s"] / found["ratio"],
        limit_what="Spark reads and checksums the same topic, mean of before and after",
        details=found,
    )
