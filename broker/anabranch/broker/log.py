"""Structured log lines: one event per decision, with its fields and why it was made."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, TextIO

import msgspec
import structlog

from anabranch.broker.settings import Settings

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logging(settings: Settings, stream: TextIO | None = None) -> None:
    """Sends every event to `stream` (standard error if left), as the settings say."""
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=_json)
        if settings.log_format == "json"
        else structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "event"], bool_as_flag=False
        ),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.log_level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(logging.WARNING)


class _Bridge(logging.Handler):
    """What libraries say through Python's own logging, librdkafka above all, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, "library", by=record.name, why=record.getMessage()
        )


def _json(event: object, **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def get_logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger whose events all carry `fields`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**fields)
    return logger
