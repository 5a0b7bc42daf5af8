"""The log of modules that are part of the SDK: Python's `logging`, which the application
configures.

An event has a name and fields. Both are in the line, `watch.lost topic=a/b/c node=127.0.0.1:6650`.
They are in the record's attributes `event` and `fields`, too, for handlers such as a node's that
write something else. Nothing is printed unless the application asks for it.
"""

from __future__ import annotations

import json
import logging
from typing import Final

ROOT: Final = "anabranch"  # the root of all loggers' names
logging.getLogger(ROOT).addHandler(logging.NullHandler())  # else warnings go to standard error


class EventLog:
    """Logs events. All of them carry the bound fields."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> EventLog:
        """Returns a log with more fields."""
        return EventLog(self._logger, {**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._say(logging.DEBUG, event, None, fields)

    def info(self, event: str, **fields: object) -> None:
        self._say(logging.INFO, event, None, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._say(logging.WARNING, event, None, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        self._say(logging.ERROR, event, exc_info, fields)

    def _say(
        self, level: int, event: str, error: BaseException | None, fields: dict[str, object]
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        every = {**self._fields, **fields}
        line = " ".join([event, *(f"{name}={plain(value)}" for name, value in every.items())])
        more = {"event": event, "fields": every}
        self._logger.log(level, "%s", line, exc_info=error, extra=more, stacklevel=3)


def get_logger(name: str) -> EventLog:
    """Returns the log of a module, by its `__name__`."""
    return EventLog(logging.getLogger(name), {})


def plain(value: object) -> str:
    """Returns a field's value as one word of a line: in quotes if it would not be one.

    >>> plain(5), plain("two words"), plain("")
    ('5', '"two words"', '""')
    """
    text = str(value)
    if text and text.isprintable() and " " not in text and '"' not in text:
        return text
    return json.dumps(text, ensure_ascii=False)
