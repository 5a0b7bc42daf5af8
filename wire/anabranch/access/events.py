"""The log of this package: a line is an event with fields, none of them a secret."""

from __future__ import annotations

import logging

_logger = logging.getLogger("anabranch.access")


def log_event(level: int, event: str, **fields: str) -> None:
    """Logs an event; programs that read records by themselves find its parts in them."""
    line = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
    _logger.log(level, "%s", line, extra={"event": event, "fields": fields})
