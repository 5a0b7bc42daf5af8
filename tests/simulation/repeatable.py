"""`repeatable`: what the product keeps, or draws, for a whole process begins anew for a run."""

from __future__ import annotations

import gc
import itertools
import logging
import random
import sys
import traceback
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from anabranch.client._topics import list_watch
from anabranch.wire.logging import ROOT


class Faults(logging.Handler):
    """The errors that the product logs, in words; the rest of its log is dropped."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._add(record.getMessage(), error)

    def event(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
        """As a processor of structlog."""
        if level == "error":
            self._add(str(event.get("event")), event.get("exc_info"))
        raise structlog.DropEvent

    def _add(self, what: str, error: Any) -> None:
        if isinstance(error, BaseException):
            what += "".join(traceback.format_exception(error))
        self.found.append(what)


@contextmanager
def repeatable(seed: int) -> Iterator[Faults]:
    """Chance and numbers begin with the seed. Nothing is logged meanwhile, but for errors, which
    are kept.
    """
    faults = Faults()
    state, numbers = random.getstate(), list_watch._numbers
    logged, root = structlog.get_config(), logging.getLogger(ROOT)
    level, handlers, is_collecting = root.level, list(root.handlers), gc.isenabled()
    random.seed(seed)
    list_watch._numbers = itertools.count(1)
    structlog.configure(processors=[faults.event])
    root.setLevel(logging.ERROR)
    root.handlers[:], root.propagate = [faults], False
    gc.disable()  # else coroutines of crashed processes would end in the midst of others
    try:
        yield faults
    finally:
        _forget()
        random.setstate(state)
        list_watch._numbers = numbers
        structlog.configure(**logged)
        root.setLevel(level)
        root.handlers[:], root.propagate = handlers, True
        if is_collecting:
            gc.enable()


def _forget() -> None:
    """Ends what is left of the run's coroutines, which may not do so as asyncio wants it."""
    tell, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings(action="ignore"):
            gc.collect(0)  # all that is younger than the run, since nothing was collected
    finally:
        sys.unraisablehook = tell
