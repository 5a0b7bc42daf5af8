"""The outputs of a report: a table or JSON on standard output, JSON in a file, a page."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


class Reported(Protocol):
    """The result, for programs."""

    def json(self) -> str: ...


def write(
    found: Reported,
    table: Callable[[], str],
    page: Callable[[], str],
    json_path: str,
    html_path: Path | None,
) -> None:
    """Writes the report. `json_path` is "-" for JSON in place of the table, "" for none."""
    if json_path == "-":
        _print(found.json() + "\n")
    else:
        _print(table())
        if json_path:
            Path(json_path).write_text(found.json() + "\n", encoding="utf-8")
    if html_path is not None:
        html_path.write_text(page(), encoding="utf-8")
        if json_path != "-":
            _print(f"report: {html_path}\n")


def clock(timestamp_ms: int) -> str:
    """Returns a log timestamp for people and programs alike: ISO 8601, UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print(text: str) -> None:
    """Writes to standard output.
    A reader may end early (`| head`), because files and the status tell all the same.
    """
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(text)
