"""`Calm`: a log that repeats itself says each thing once in a while."""

from __future__ import annotations

import logging
import math
import re
from typing import Final

_CALM_S: Final = 30.0
_KNOWN_MAX: Final = 1_000
_VARIES: Final = re.compile(r"[0-9]+")  # ports, times, counts, numbers of clients
_REPEATED: Final = re.compile(r", [0-9]+ identical error\(s\) suppressed")


class Calm(logging.Filter):
    """Lets a line of librdkafka pass once in 30 s; lines that differ in numbers alone are one.

    The kind of client is part of the text: `FAIL [rdkafka#producer-1] ...`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}  # text without numbers: when it passed, seconds

    def filter(self, record: logging.LogRecord) -> bool:
        text = _VARIES.sub("", _REPEATED.sub("", record.getMessage()))
        if record.created - self._passed.get(text, -math.inf) < _CALM_S:
            return False
        if len(self._passed) >= _KNOWN_MAX:
            self._passed.clear()
        self._passed[text] = record.created
        return True
