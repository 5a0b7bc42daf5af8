"""Structured log lines: one event per decision, with its fields and why it was made."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec
import structlog
from structlog.typing import EventDict

from anabranch.broker.settings.limits import LogFields
from anabranch.wire.logging import ROOT as LOG_ROOT
from anabranch.wire.logging import plain

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logging(settings: LogFields, stream: TextIO | None = None) -> None:
    """Sends every event to `stream` (standard error if left), as the settings say."""
    # One function does the work of the usual chain: a busy node writes thousands of lines a second.
    structlog.configure(
        processors=[_Lines(_json_line if settings.log_format == "json" else _text_line)],
        # Loggers that are bound keep their class, and the level may change: `_Lines` drops.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(file=_Lasting(stream or sys.stderr)),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(logging.WARNING)
    set_log_level(settings.log_level)


def set_log_level(level: str) -> None:
    """Makes every logger drop lines less severe than this level from now on."""
    _Lines.least = _LEVELS[level]
    logging.getLogger(LOG_ROOT).setLevel(_LEVELS[level])


class _Lines:
    """The lines of events that are severe enough."""

    least = logging.INFO

    def __init__(self, line: Callable[[object, str, EventDict], str]) -> None:
        self._line = line

    def __call__(self, logger: object, level: str, event: EventDict) -> str:
        if _LEVELS.get(level, logging.ERROR) < self.least:
            raise structlog.DropEvent
        return self._line(logger, level, event)


def get_logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger whose events all carry `fields`; with fields, call it after `configure_logging`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger.bind(**fields) if fields else logger


class _Lasting(io.TextIOBase, TextIO):
    """Drops lines that are not taken: a node does not end with the reader of its log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _Bridge(logging.Handler):
    """Turns lines of Python's own logging into events.

    Those lines come from our own parts that log so because the SDK has them too, and from
    libraries, above all librdkafka.
    """

    def emit(self, record: logging.LogRecord) -> None:
        event, fields = getattr(record, "event", ""), getattr(record, "fields", {})
        if not event:
            event, fields = "library", {"by": record.name, "why": record.getMessage()}
        elif record.exc_info:
            fields = {**fields, "exc_info": record.exc_info[1]}
        structlog.get_logger().log(record.levelno, event, **fields)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _with_trace(event: EventDict) -> str:
    """Takes the exception out of the event; its trace, "" for none."""
    error = event.pop("exc_info", None)
    if not isinstance(error, BaseException):
        return ""
    return "".join(traceback.format_exception(error)).rstrip()


def _text_line(_: object, level: str, event: EventDict) -> str:
    trace = _with_trace(event)
    name = event.pop("event")
    fields = " ".join([f"{key}={plain(value)}" for key, value in event.items()])
    line = f"{_now()} {level:7} {name} {fields}"
    return f"{line}\n{trace}" if trace else line


def _json_line(_: object, level: str, event: EventDict) -> str:
    trace = _with_trace(event)
    line = {"timestamp": _now(), "level": level, **event}
    if trace:
        line["trace"] = trace
    return msgspec.json.encode(line, enc_hook=str).decode()
