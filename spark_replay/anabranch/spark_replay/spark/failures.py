"""What Spark raises, and what it says in it."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JError)  # some reach Python as they are


def cause(error: Exception) -> str:
    """Returns what Spark says went wrong, in a line."""
    text = str(error).strip()
    lines = text.splitlines() or [type(error).__name__]
    causes = [line.strip() for line in lines if line.startswith("Caused by")]
    if causes:
        return causes[-1]
    if len(lines) > 1 and lines[1].startswith(": "):
        return lines[1][2:]  # what a call of Java raised
    return lines[0]
