"""`LogRateLimit`: logs a repeated event now and then, because all its lines would fill the log."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Hashable
from typing import Final

_LIBRDKAFKA_APART_S: Final = 30.0
_KINDS_MAX: Final = 1_000
_VARIES: Final = re.compile(r"[0-9]+")  # ports, times, counts, numbers of clients
_REPEATED: Final = re.compile(r", [0-9]+ identical error\(s\) suppressed")


class LogRateLimit:
    """Lets each kind of event pass once in `apart_s` seconds.

    Threads that share one may at worst let an event pass twice.
    """

    def __init__(self, apart_s: float) -> None:
        self._apart_s = apart_s
        self._passed: dict[Hashable, tuple[float, int]] = {}  # its last time, and the count since

    def due(self, kind: Hashable, now: float) -> int:
        """Counts one event: 0 while its kind is held back, else how many came since the last one
        that passed, itself included.
        """
        passed_at, since = self._passed.get(kind, (-math.inf, 0))
        is_due = now - passed_at >= self._apart_s
        if len(self._passed) >= _KINDS_MAX and kind not in self._passed:
            self._passed.clear()
        self._passed[kind] = (now, 0) if is_due else (passed_at, since + 1)
        return since + 1 if is_due else 0


class LibrdkafkaLogFilter(logging.Filter):
    """Lets a line of librdkafka pass once in 30 s; lines that differ in numbers alone are one kind.

    The kind of client is part of the text: `FAIL [rdkafka#producer-1] ...`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogRateLimit(_LIBRDKAFKA_APART_S)

    def filter(self, record: logging.LogRecord) -> bool:
        text = _VARIES.sub("", _REPEATED.sub("", record.getMessage()))
        return self._limit.due(text, record.created) > 0
