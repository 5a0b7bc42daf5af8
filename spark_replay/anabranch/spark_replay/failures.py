"""What Spark raises, and what it says in it."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JError)  # some reach Python as they are


def cause(error: Exception) -> str:
    """Returns what Spark says went wrong, in a line."""
    text = str(error).strip()
    causes = [line.strip() for line in text.splitlines() if line.startswith("Caused by")]
    return causes[-1] if causes else text.splitlines()[0] if text else type(error).__name__
