"""The figures of the audit, from a process of its own: it brings a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.figure import Measured
from bench.place import Place
from bench.spark.audit import RATIO_MAX

_RECORDS = 5_000_000


def audit(place: Place) -> Measured:
    """The audit of a log, and Spark's own read-and-checksum of the same topic."""
    count = _RECORDS // 25 if place.quick else _RECORDS
    found = _answered("bench.spark.audit", count)
    return Measured(
        found["audit_s"],
        "s",
        found["ratio"],
        RATIO_MAX,
        limit=found["audit_s"] / found["ratio"],
        limit_what="Spark reads and checksums the same topic, mean of before and after",
        details=found,
    )


def _answered(module: str, size: int) -> Any:
    """What a process that runs the module prints. Raises RuntimeError when it prints nothing."""
    command = [sys.executable, "-m", module, str(size)]
    answer = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    if not answer.stdout:
        raise RuntimeError(f"{module} could not measure: status {answer.returncode}")
    return json.loads(answer.stdout)
