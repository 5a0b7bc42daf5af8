"""The errors of Spark, and the reasons in their texts."""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

_TRACE: Final = "Traceback (most recent call last)"
_OF_PYTHON: Final = re.compile(r"^[\w.]*(Error|Exception): .+$", re.MULTILINE)  # in a task
SPARK_ERRORS: Final = (PySparkException, Py4JError)  # some reach Python as they are


def cause(error: Exception) -> str:
    """Returns Spark's reason, in a line."""
    text = str(error).strip()
    lines = text.splitlines() or [type(error).__name__]
    python = _OF_PYTHON.search(text, max(0, text.rfind(_TRACE)))
    if _TRACE in text and python is not None:
        return python[0]
    causes = [line.strip() for line in lines if line.startswith("Caused by")]
    if causes:
        return causes[-1]
    if len(lines) > 1 and lines[1].startswith(": "):
        return lines[1][2:]  # the error of a call of Java
    return lines[0]
