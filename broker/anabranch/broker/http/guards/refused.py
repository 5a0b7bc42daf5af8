"""`Refused`: requests that nothing was done for, counted by kind and, now and then, logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.broker.logging import get_logger
from anabranch.core.log_rate_limit import LogRateLimit
from anabranch.wire import clock

_SILENT_S: Final = 10.0  # after one of a kind was logged

_log = get_logger()


class Refused:
    """The refusals of one part of a node's HTTP port."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self.counts: dict[str, int] = {}  # by kind, in a word
        self._now = now
        self._logged = LogRateLimit(_SILENT_S)

    def note(self, kind: str, **said: object) -> None:
        """Counts a refusal, and logs one of each kind in a while: floods would fill the log."""
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if self._logged.due(kind, self._now()):
            _log.info("http.refused", **said, count=count)
